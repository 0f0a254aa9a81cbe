"""Measure the quality of placements: `python -m bench.quality [--plot FILE]`.

Three jobs of 2 parameter servers and 4 workers are submitted to three nodes. How long does a
training step take when they are spread, packed, or placed by `task-topology`? Nothing is trained;
the model is:

- In a step every worker sends its gradients to every parameter server of its job and receives the
  new parameters: 1 unit of data each way, split evenly over the servers.
- Data between pods on one node costs nothing. Between nodes it uses the network interfaces of both;
  an interface sends and receives 1 unit per unit of time, shared by all jobs.
- All jobs communicate at once: a step takes as long as the busiest interface of the nodes that the
  job uses.
- Computing takes the same time everywhere (COMPUTE) and does not overlap with communication.

The model ignores bursts, switches, and contention for memory and CPU, so it favours packing. Use
the numbers only to compare placements.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from bench.sidebyside.plot import lines
from hekla.api.wellknown import TASK_TOPOLOGY_AFFINITY, TASK_TOPOLOGY_ANTI_AFFINITY
from hekla.testing import GroupBuilder, cluster, gang, node, pod

COMPUTE = 1.0
JOBS, SERVERS, WORKERS = 3, 2, 4
MACHINES, CPUS = 3, 8
_CONF = """\
actions: "enqueue, allocate"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins:
  - {name: predicates}
%s"""
POLICIES: Mapping[str, str] = {
    "spread": "  - {name: nodeorder}\n",
    "packed": "  - {name: binpack}\n",
    "task-topology": "  - {name: nodeorder}\n"
    "  - {name: task-topology, arguments: {task-topology.weight: 10}}\n",
    "communication": "  - {name: nodeorder}\n  - {name: task-topology, arguments: "
    "{task-topology.weight: 10, task-topology.mode: communication}}\n",
}
Placement = Mapping[str, str]


def jobs() -> list[GroupBuilder]:
    wishes = {TASK_TOPOLOGY_AFFINITY: "ps,worker", TASK_TOPOLOGY_ANTI_AFFINITY: "ps"}
    made = []
    for number in range(JOBS):
        name = f"tf{number}"
        group = gang(name, members=0, minimum=SERVERS + WORKERS, annotations=wishes)
        pods = [
            pod(f"{name}-{role}-{i}", group=name, role=role, cpu=1)
            for role, count in (("ps", SERVERS), ("worker", WORKERS))
            for i in range(count)
        ]
        made.append(group.and_pods(*pods))
    return made


def step_times(placed: Placement) -> dict[str, float]:
    """Return the step time of each job."""
    sent: dict[str, float] = {}
    received: dict[str, float] = {}
    used: dict[str, set[str]] = {}
    for worker, here in placed.items():
        job, role, _ = worker.split("-")
        used.setdefault(job, set()).add(here)
        if role != "worker":
            continue
        for server in range(SERVERS):
            there = placed[f"{job}-ps-{server}"]
            if there != here:
                for one, other in ((here, there), (there, here)):
                    sent[one] = sent.get(one, 0.0) + 1 / SERVERS
                    received[other] = received.get(other, 0.0) + 1 / SERVERS
    busy = {name: max(sent.get(name, 0.0), received.get(name, 0.0)) for name in placed.values()}
    return {job: COMPUTE + max(busy[name] for name in names) for job, names in used.items()}


def run(policy: str, seed: int) -> dict[str, float]:
    """Return the three jobs on nodes that are partly used, at random."""
    chance = random.Random(seed)
    machines = [node(f"n{i}", cpu=CPUS) for i in range(MACHINES)]
    others = [
        pod(f"busy-{i}", cpu=chance.choice([1, 2]), node=f"n{i}")
        for i in range(MACHINES)
        if chance.random() < 0.5
    ]
    world = cluster(machines, jobs(), pods=others, conf=_CONF % POLICIES[policy])
    placed = world.run().binds
    if len(placed) < JOBS * (SERVERS + WORKERS):
        raise AssertionError(f"{policy}, seed {seed}: only {len(placed)} pods were placed")
    return step_times(placed)


def measure(seeds: Sequence[int]) -> dict[str, list[float]]:
    """Return the mean step time of the three jobs for each policy and seed."""
    return {name: [mean(run(name, seed).values()) for seed in seeds] for name in POLICIES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", type=Path, help="draw the step times: a .png or .svg")
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    found = measure(range(given.seeds))
    first = mean(found["spread"])
    for name, times in found.items():
        print(
            f"{name:14} mean step {mean(times):5.2f}  best {min(times):5.2f}  "
            f"worst {max(times):5.2f}  {mean(times) / first:4.2f} of spread"
        )
    if given.plot is not None:
        curves = {
            name: [(float(i), time) for i, time in enumerate(sorted(times))]
            for name, times in found.items()
        }
        title = "Step time of three jobs of 2 ps + 4 workers"
        lines(given.plot, title, "clusters, from the best to the worst", curves)


if __name__ == "__main__":
    main()
