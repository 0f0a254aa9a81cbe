"""Measure the decisions of the scheduler without a server: `python -m bench.core [case …]`.

Wall and CPU time are those of `decide`; loading the cluster is timed separately. Peak memory is
that of the process; each case has its own. Compare ratios of one run, or growth (`g`).
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

from hekla.api.meta import convert
from hekla.api.nodeinfo import Numatopology
from hekla.api.wellknown import TASK_TOPOLOGY_AFFINITY, TASK_TOPOLOGY_ANTI_AFFINITY
from hekla.scheduler.core import decide
from hekla.scheduler.framework import config
from hekla.scheduler.framework.plan import Plan
from hekla.scheduler.plugins import builtin
from hekla.scheduler.state.cluster import Cluster
from hekla.scheduler.state.load import USAGE_PERIOD_S, Reading
from hekla.testing.objects import START, gang, hypernode, node, pod, queue

SPREADING = config.DEFAULT.replace("  - name: binpack\n", "")


def build(
    nodes: int,
    gangs: int,
    size: int,
    *,
    classes: int = 1,
    queues: int = 1,
    cpu: int = 64,
    network: dict[str, object] | None = None,
) -> Cluster:
    """Return empty nodes and pending gangs with `classes` different requests in `queues` queues."""
    state = Cluster()
    for q in range(queues):
        state.job_table.set_queue(queue(f"q{q}" if q else "default"))
    for n in range(nodes):
        state.set_node(node(f"node-{n:05d}", cpu=cpu, memory="256Gi"))
    for g in range(gangs):
        name = f"q{g % queues}" if g % queues else "default"
        one = gang(
            f"gang-{g:05d}",
            members=size,
            queue=name,
            cpu=f"{1000 + g % classes}m",
            memory="2Gi",
            min_resources={"cpu": size, "memory": f"{2 * size}Gi"},
            phase="Pending",
            network=network,
        )
        state.job_table.set_group(one.group)
        for member in one.pods:
            state.set_pod(member)
    return state


def run(name: str, state: Cluster, loading_s: float, conf: str = config.DEFAULT) -> Plan:
    settings = config.parse(conf, builtin())
    start, start_cpu = time.perf_counter(), time.process_time()
    plan = decide(state, settings, START)
    took, took_cpu = time.perf_counter() - start, time.process_time() - start_cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name:58} {took * 1000:9.1f} ms ({took_cpu * 1000:7.1f} CPU)  "
        f"{len(plan.binds):7d} binds  {len(plan.evictions):5d} evictions  "
        f"load {loading_s:5.1f} s  peak {peak:6.0f} MiB",
        flush=True,
    )
    return plan


def timed(make: Callable[[], Cluster]) -> tuple[Cluster, float]:
    start = time.perf_counter()
    state = make()
    state.refresh()
    return state, time.perf_counter() - start


def compare(title: str, variants: dict[str, tuple[Cluster, str]], rounds: int = 9) -> None:
    """Return median CPU of the same load under several configurations, and median ratios.

    The first round is not counted: it fills caches that live across cycles.
    """
    made = {
        name: (state, config.parse(conf, builtin())) for name, (state, conf) in variants.items()
    }
    took: dict[str, list[float]] = {name: [] for name in made}
    binds: dict[str, int] = {}
    for number in range(rounds + 1):
        for name, (state, settings) in made.items():
            start = time.process_time()
            plan = decide(state, settings, START)
            if number:
                took[name].append(time.process_time() - start)
            binds[name] = len(plan.binds)
    first = next(iter(took.values()))
    for name, times in took.items():
        ratio = statistics.median(b / a for a, b in zip(first, times, strict=True))
        print(
            f"{title}, {name:28} {statistics.median(times) * 1000:7.1f} ms CPU "
            f"({min(times) * 1000:.1f} to {max(times) * 1000:.1f})  {ratio:4.2f}x  "
            f"{binds[name]} binds",
            flush=True,
        )


def case_a() -> None:
    run("a  100 gangs of 100 on 5,000 nodes", *timed(lambda: build(5000, 100, 100)))


def case_b() -> None:
    run("b  one gang of 10,000 on 1,000 nodes", *timed(lambda: build(1000, 1, 10000)))


def case_c() -> None:
    run("c  500 gangs of 20 on 1,000 nodes", *timed(lambda: build(1000, 500, 20)))


def case_d() -> None:
    run("d  1,000 gangs of 100 on 10,000 nodes", *timed(lambda: build(10000, 1000, 100)))


def case_s() -> None:
    """Every job is a single pod: no tasks are placed together."""
    run("s  10,000 single pods on 1,000 nodes", *timed(lambda: build(1000, 10000, 1)))


RECLAIMING = """\
actions: "enqueue, allocate, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins:
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
"""


def case_e() -> None:
    """One queue uses the whole cluster; another of equal weight reclaims its half."""
    run(
        "e  reclaim of half of 2,000 nodes: 400 gangs of 20",
        *timed(lambda: full_of_borrowers(2000)),
        conf=RECLAIMING,
    )


def full_of_borrowers(nodes: int, *, per_node: int = 8, size: int = 20) -> Cluster:
    """Return nodes full of elastic jobs of one queue, and pending jobs of another."""
    state = Cluster()
    for name in ("default", "greedy", "hungry"):
        state.job_table.set_queue(queue(name))
    for n in range(nodes):
        state.set_node(node(f"node-{n:05d}", cpu=per_node, memory="64Gi"))
    slots = [f"node-{(i * 7) % nodes:05d}" for i in range(nodes * per_node)]
    jobs = [
        gang(
            f"greedy-{g:05d}",
            members=size,
            minimum=1,
            queue="greedy",
            cpu=1,
            memory="2Gi",
            running_on=slots[g * size : (g + 1) * size],
            phase="Running",
            age=float(g % 50),
        )
        for g in range(nodes * per_node // size)
    ]
    jobs += [
        gang(f"hungry-{g:05d}", members=size, queue="hungry", cpu=1, memory="2Gi")
        for g in range(nodes * per_node // size)
    ]
    for one in jobs:
        state.job_table.set_group(one.group)
        for member in one.pods:
            state.set_pod(member)
    return state


SHARING = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins:
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
"""
DEVICESHARE = """\
  - name: deviceshare
    arguments:
      deviceshare.VGPUEnable: true
      deviceshare.SchedulePolicy: binpack
      deviceshare.ScheduleWeight: 10
"""


def case_v() -> None:
    """Shared GPUs, with and without `deviceshare`."""
    for kinds in (1, 4):
        variants = {
            name: (shared_gpus(1000, 250, 20, kinds=kinds), conf)
            for name, conf in (("without deviceshare", SHARING), ("with", SHARING + DEVICESHARE))
        }
        compare(f"v  5,000 vGPU pods ({kinds} kinds) on 1,000 x 8 cards", variants)


def shared_gpus(nodes: int, gangs: int, size: int, *, kinds: int) -> Cluster:
    """Return nodes with 8 GPUs of ten shares each, and gangs that request parts of a GPU."""
    state = Cluster()
    state.job_table.set_queue(queue("default"))
    devices = "".join(f"GPU-{i},10,81920,NVIDIA-A100,true,hami-core:" for i in range(8))
    for n in range(nodes):
        state.set_node(
            node(
                f"node-{n:05d}",
                cpu=64,
                memory="256Gi",
                annotations={"volcano.sh/node-vgpu-register": devices},
                extra={"volcano.sh/vgpu-number": 80},
            )
        )
    for g in range(gangs):
        wanted = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 10000 + g % kinds}
        one = gang(f"gang-{g:05d}", members=size, cpu=1, memory="2Gi", requests=wanted)
        state.job_table.set_group(one.group)
        for member in one.pods:
            state.set_pod(member)
    return state


NUMA = """\
  - name: numa-aware
    arguments: {weight: 2}
"""


def case_n() -> None:
    """Pods with exclusive CPUs on nodes with two NUMA nodes, with and without `numa-aware`."""
    for kinds in (1, 4):
        variants = {
            name: (pinned(5000, 100, 50, kinds=kinds), conf)
            for name, conf in (("without numa-aware", SHARING), ("with", SHARING + NUMA))
        }
        compare(f"n  5,000 pods with whole CPUs ({kinds} kinds) on 5,000 nodes", variants)


def pinned(nodes: int, gangs: int, size: int, *, kinds: int) -> Cluster:
    """Return nodes of 2 x 32 CPUs with policy single-numa-node, some of them partly used."""
    state = Cluster()
    state.job_table.set_queue(queue("default"))
    details = {str(cpu): {"numa": cpu // 32, "socket": 0, "core": cpu} for cpu in range(64)}
    policies = {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "single-numa-node"}
    for n in range(nodes):
        name = f"node-{n:05d}"
        state.set_node(node(name, cpu=64, memory="256Gi"))
        spec = {
            "policies": policies,
            "numares": {"cpu": {"allocatable": f"{n % 8}-63", "capacity": 64}},
            "cpuDetail": details,
        }
        told = convert({"metadata": {"name": name}, "spec": spec}, Numatopology)
        state.numa_topologies[name] = told
    for g in range(gangs):
        one = gang(
            f"gang-{g:05d}",
            members=size,
            cpu=3 + g % kinds,
            memory="2Gi",
            status={"qosClass": "Guaranteed"},
        )
        state.job_table.set_group(one.group)
        for member in one.pods:
            state.set_pod(member)
    return state


ROLES = """\
  - name: task-topology
    arguments: {task-topology.weight: 10, task-topology.mode: %s}
"""


def case_t() -> None:
    """Jobs with affinity between roles, with and without `task-topology`."""
    for nodes, jobs, servers, workers in ((500, 50, 4, 16), (50, 1, 40, 360)):
        variants = {
            name: (with_roles(nodes, jobs, servers, workers), conf)
            for name, conf in (
                ("without task-topology", SHARING),
                ("buckets", SHARING + ROLES % "buckets"),
                ("communication", SHARING + ROLES % "communication"),
            )
        }
        compare(f"t  {jobs} jobs of {servers} + {workers} on {nodes} nodes", variants)


def with_roles(nodes: int, jobs: int, servers: int, workers: int) -> Cluster:
    """Return nodes of 16 CPUs, and gangs of parameter servers and workers."""
    state = Cluster()
    state.job_table.set_queue(queue("default"))
    for n in range(nodes):
        state.set_node(node(f"node-{n:05d}", cpu=16, memory="64Gi"))
    notes = {TASK_TOPOLOGY_AFFINITY: "ps,worker", TASK_TOPOLOGY_ANTI_AFFINITY: "ps"}
    for j in range(jobs):
        name = f"job-{j:03d}"
        group = gang(name, members=0, minimum=servers + workers, annotations=notes)
        state.job_table.set_group(group.group)
        for role, count, cpu in (("ps", servers, 2), ("worker", workers, 1)):
            for i in range(count):
                one = pod(f"{name}-{role}-{i}", group=name, role=role, cpu=cpu, memory="2Gi")
                state.set_pod(one)
    return state


def case_f() -> None:
    """Idle cycle: 50,000 pods run on 5,000 nodes, one status changed."""

    def make() -> Cluster:
        state = Cluster()
        state.job_table.set_queue(queue("default"))
        for n in range(5000):
            state.set_node(node(f"node-{n:05d}", cpu=64, memory="256Gi"))
        for g in range(500):
            places = [f"node-{(g * 100 + i) % 5000:05d}" for i in range(100)]
            one = gang(f"gang-{g:05d}", members=100, cpu=1, running_on=places, phase="Running")
            state.job_table.set_group(one.group)
            for member in one.pods:
                state.set_pod(member)
        return state

    state, loading = timed(make)
    run("f  first cycle, 50,000 running pods on 5,000 nodes", state, loading)
    state.mark_clean()
    run("f  idle cycle", state, loading)
    state.set_pod(pod("gang-00000-0", group="gang-00000", cpu=1, node="node-00000"))
    run("f  idle cycle after one pod changed", state, loading)


def case_w() -> None:
    """A full cluster and many pending jobs."""

    def make() -> Cluster:
        state = build(1000, 5000, 10)
        for n in range(1000):
            state.set_pod(pod(f"busy-{n}", cpu="63500m", memory="1Gi", node=f"node-{n:05d}"))
        for job in state.jobs.values():
            job.phase = "Inqueue"
        return state

    run("w  5,000 gangs of 10 wait before 1,000 full nodes", *timed(make))


TOPOLOGY = config.DEFAULT.rstrip("\n") + "\n  - name: network-topology-aware\n"


def in_tiers(state: Cluster, nodes: int, *, rack: int = 32, spine: int = 16) -> None:
    """Return HyperNodes: racks of 32 nodes, spines of 16 racks, and one root."""
    names = [f"node-{n:05d}" for n in range(nodes)]
    racks = [names[i : i + rack] for i in range(0, nodes, rack)]
    below = [f"rack-{i:03d}" for i in range(len(racks))]
    spines = [below[i : i + spine] for i in range(0, len(below), spine)]
    for name, members in zip(below, racks, strict=True):
        state.set_hypernode(hypernode(name, 1, nodes=members))
    for i, members in enumerate(spines):
        state.set_hypernode(hypernode(f"spine-{i:02d}", 2, children=members))
    state.set_hypernode(
        hypernode("core", 3, children=[f"spine-{i:02d}" for i in range(len(spines))])
    )


def case_h() -> None:
    """Gangs that require one rack of 32 nodes, and the same gangs without a constraint."""
    demands: dict[str, dict[str, object] | None] = {
        "with HyperNodes, no demand": None,
        "hard, one rack": {"mode": "hard", "highestTierAllowed": 1},
        "soft": {"mode": "soft"},
    }
    variants = {"without HyperNodes": (build(10000, 100, 64), config.DEFAULT)}
    for name, network in demands.items():
        state = build(10000, 100, 64, network=network)
        in_tiers(state, 10000)
        variants[name] = (state, TOPOLOGY)
    compare("h  100 gangs of 64 on 10,000 nodes", variants)


USAGE = config.DEFAULT + "  - name: usage\nmetrics: {address: http://prometheus}\n"
MOVING = """\
actions: "allocate, shuffle"
tiers:
- plugins: [{name: gang}, {name: conformance}, {name: pdb}]
- plugins:
  - {name: predicates}
  - {name: nodeorder}
"""
RESCHEDULING = """\
  - name: rescheduling
    arguments:
      metricsPeriod: 10m
      strategies:
      - name: lowNodeUtilization
        params: {thresholds: {cpu: 30}, targetThresholds: {cpu: 60}}
metrics: {address: http://prometheus}
"""


def case_l() -> None:
    """Measured load: `usage` for pending pods, and `rescheduling` of pods on overloaded nodes."""
    variants = {"without loads": (build(5000, 100, 100), config.DEFAULT)}
    variants["usage"] = (measured(build(5000, 100, 100), lambda n: n * 37 % 80), USAGE)
    compare("l  100 gangs of 100 on 5,000 nodes", variants)
    busy = measured(running(5000, 500, 100), lambda n: 90 if n % 3 else 10)
    compare(
        "l  50,000 running pods on 5,000 nodes",
        {"without rescheduling": (busy, MOVING), "100 evictions": (busy, MOVING + RESCHEDULING)},
    )


def measured(state: Cluster, percent: Callable[[int], float]) -> Cluster:
    """Set a load sample for every node."""
    state.refresh()
    readings = {
        node.name: Reading(percent(n), 10.0, START)
        for n, node in enumerate(state.node_table.node_list)
    }
    state.node_table.measure({USAGE_PERIOD_S: readings})
    return state


def running(nodes: int, gangs: int, size: int) -> Cluster:
    """Return nodes full of gangs with minMember of half their size."""
    state = build(nodes, 0, 0)
    for g in range(gangs):
        places = [f"node-{(g * size + i) % nodes:05d}" for i in range(size)]
        one = gang(f"gang-{g:05d}", members=size, minimum=size // 2, cpu=1, running_on=places)
        state.job_table.set_group(one.group)
        for member in one.pods:
            state.set_pod(member)
    state.mark_clean()
    return state


def case_g() -> None:
    """Growth: double one parameter at a time."""
    for nodes in (1000, 2000, 4000, 8000):
        run(f"g  nodes   {nodes:6d}: 50 gangs of 100", *timed(partial(build, nodes, 50, 100)))
    for size in (50, 100, 200, 400):
        run(f"g  pods    {size * 50:6d}: 50 gangs", *timed(partial(build, 2000, 50, size)))
    for classes in (1, 8, 64):
        run(
            f"g  classes {classes:6d}: 64 gangs of 50",
            *timed(partial(build, 2000, 64, 50, classes=classes)),
        )
    for queues in (1, 8, 64):
        run(
            f"g  queues  {queues:6d}: 64 gangs of 50",
            *timed(partial(build, 2000, 64, 50, queues=queues)),
        )


CASES = {name[5:]: case for name, case in globals().items() if name.startswith("case_")}


def main() -> None:
    chosen = sys.argv[1:]
    if len(chosen) == 1:
        CASES[chosen[0]]()
        return
    for name in chosen or CASES:
        subprocess.run([sys.executable, "-m", "bench.core", name], check=True)


if __name__ == "__main__":
    main()
