"""The life of a generated cluster under Volcano and under hekla, cycle by cycle.

After each cycle the effects of a system are applied to its own copy of the cluster: bound pods
run, evicted pods are deleted and created again, PodGroups keep their phases.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.peers.oracle import Oracle

from hekla.testing.objects import START
from tests.fidelity import catalogue, ours
from tests.fidelity.catalogue import Case
from tests.fidelity.theirs import TheirCluster

CYCLES = 6
Counts = dict[str, int]
Json = dict[str, Any]


@dataclass(frozen=True)
class Cycle:
    """One cycle in numbers of pods per job, and the state after it."""

    placed: Counts
    evicted: Counts
    pipelined: Counts
    phases: dict[str, str]
    where: dict[str, list[str]] = field(repr=False)
    """Per job the shapes of nodes that its running pods are on."""
    nodes: list[Counts] = field(repr=False, default_factory=list)
    """Per node that runs any, the number of pods of each job; without names, sorted."""

    @property
    def numbers(self) -> tuple[Counts, Counts, list[str]]:
        """The pods placed and evicted, and the jobs for which pods were evicted.

        How many tasks of a job are pipelined, or that some are without a victim, is not seen
        outside of the cycle.
        """
        return self.placed, self.evicted, sorted(self.pipelined) if self.evicted else []


Life = tuple[Cycle, ...]


def running(life: Life) -> Counts:
    """Return how many pods of each job run at the end."""
    return {job: len(places) for job, places in life[-1].where.items() if places}


def evicted(life: Life) -> Counts:
    """Return how many pods of each job were evicted altogether."""
    total: Counter[str] = Counter()
    for cycle in life:
        total.update(cycle.evicted)
    return dict(sorted(total.items()))


def volcano(case: Case, oracle: Oracle, ties: str, cycles: int = CYCLES) -> Life:
    """Return the life under Volcano."""
    world, shape_of, lived = TheirCluster(case), shapes(case), []
    for _ in range(cycles):
        answer = world.run(oracle, ties)
        world.live(answer)
        phases = {name: status.get("phase", "") for name, status in answer["groups"].items()}
        pods = [
            (pod["metadata"]["name"], pod["spec"].get("nodeName", ""))
            for pod in world.objects["pods"]
        ]
        where = _where(pods, shape_of)
        lived.append(
            Cycle(
                _by_job(answer["binds"]),
                _by_job(answer["evictions"]),
                _gangs(case, _by_job(answer["pipelined"]), where),
                dict(sorted(phases.items())),
                where,
                _nodes(pods),
            )
        )
    return tuple(lived)


def hekla(case: Case, cycles: int = CYCLES) -> Life:
    """Return the life under hekla."""
    return tuple(hekla_cycles(case, cycles))


def hekla_cycles(case: Case, cycles: int = CYCLES) -> Iterator[Cycle]:
    world, shape_of = ours.world(case), shapes(case)
    for number in range(cycles):
        result = world.run(now=START + number)
        binds, evictions, pipelined = result.binds, result.evictions, result.pipelined
        world.live(result)
        phases = {
            job.name: job.phase
            for job in world.state.jobs.values()
            if job.namespace == catalogue.NAMESPACE and job.name in case.body["groups"]
        }
        pods = [(pod.metadata.name, pod.spec.node_name) for pod in world.pods.values()]
        where = _where(pods, shape_of)
        yield Cycle(
            _by_job(binds),
            _by_job(evictions),
            _gangs(case, _by_job(pipelined), where),
            dict(sorted(phases.items())),
            where,
            _nodes(pods),
        )


def _gangs(case: Case, pipelined: Counts, where: Mapping[str, list[str]]) -> Counts:
    """Return pipelined tasks of jobs that have their minimum with them.

    Volcano's preempt leaves a task of a job pipelined although the job lacks the others. That ends
    with the cycle.
    """
    groups = case.body["groups"]
    return {
        job: count
        for job, count in pipelined.items()
        if len(where.get(job, ())) + count >= groups[job]["min"]
    }


def _by_job(pods: Iterable[str]) -> Counts:
    return dict(sorted(Counter(_job(pod) for pod in pods).items()))


def _job(pod: str) -> str:
    """`j0-1` and `j0-worker-1` are pods of j0."""
    return pod.partition("-")[0]


def _where(pods: Iterable[tuple[str, str]], shape_of: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, node in pods:
        if node and "-" in name:
            found.setdefault(_job(name), []).append(shape_of[node])
    return {job: sorted(places) for job, places in sorted(found.items())}


def _nodes(pods: Iterable[tuple[str, str]]) -> list[Counts]:
    on: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name, node in pods:
        if node and "-" in name:
            on[node][_job(name)] += 1
    return sorted((dict(sorted(jobs.items())) for jobs in on.values()), key=repr)


def shapes(case: Case) -> dict[str, str]:
    """Return for each node the first node that is equal to it, which stands for both."""
    first: dict[str, str] = {}
    found = {}
    for name, said in case.body["nodes"].items():
        key = repr(sorted(said.items()))
        racks = [rack for rack, has in case.body.get("hypernodes", {}).items()
                 if name in has.get("nodes", ())]  # fmt: skip
        found[name] = first.setdefault(f"{key} {racks}", name)
    return found
