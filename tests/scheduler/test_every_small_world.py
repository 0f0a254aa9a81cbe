"""All small clusters, not a sample: cycles run to a fixed point, and the laws hold.

A cluster has two nodes of 2 cpu, queues with weights, deserved amounts and guarantees from small
sets, two jobs that fill it first, and one or two later jobs; with each share plugin and each order
of actions. Victims are created again at once, as by a job controller, so two jobs that evict each
other in turn would never settle.

The default run covers 2,520 clusters with two queues. With HEKLA_EXHAUSTIVE=1 a third queue, a
second late job and more amounts make it 20,160, which takes five to ten minutes.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from hekla.scheduler.framework import config
from hekla.scheduler.plugins import builtin
from hekla.testing import Result, TestCluster, cluster, gang, node, queue

IS_LARGE = bool(os.environ.get("HEKLA_EXHAUSTIVE"))
CYCLES = 12
PARTS = 8
TIERS = """\
tiers:
- plugins: [{name: priority}, {name: gang, %s}, {name: conformance}]
- plugins: [{name: predicates}, {name: %s}]
"""
PROTECTED = "enablePreemptable: true, enableReclaimable: true"
BROKEN = "enablePreemptable: false, enableReclaimable: false"
ACTIONS = (
    "allocate, preempt, reclaim",
    "reclaim, allocate, preempt",
    "allocate, gangpreempt, gangreclaim",
)
CONFIGS = {
    (actions, protection, share): config.parse(
        f'actions: "{actions}"\n{TIERS % (protection, share)}', builtin()
    )
    for actions in ACTIONS
    for protection in (PROTECTED, BROKEN)
    for share in ("proportion", "capacity")
    if protection == PROTECTED or "gang" not in actions  # victim sets respect gangs
}


@dataclass(frozen=True)
class Shape:
    """A job: its queue, members, minimum, cpu of each and priority."""

    queue: str
    members: int
    minimum: int
    cpu: int
    priority: str


def early() -> Iterator[tuple[Shape, ...]]:
    """Yield pairs of jobs that together request the whole cluster."""
    for first, second, minimum in itertools.product("ab", "ab", (1, 2)):
        if (first, second, minimum) != ("b", "a", 1):  # the same as with a and b exchanged
            yield Shape(first, 2, minimum, 1, "low"), Shape(second, 2, 1, 1, "low")


def late() -> Iterator[tuple[Shape, ...]]:
    sizes = ((1, 1, 1), (2, 2, 1), (1, 1, 2))
    for where, size, priority in itertools.product("ab", sizes, ("low", "high")):
        first = Shape(where, *size, priority)
        yield (first,)
        if IS_LARGE:
            for other in "abc":
                yield first, Shape(other, 2, 1, 1, "low")


def shares() -> Iterator[dict[str, tuple[int, int, int]]]:
    """Weight, deserved and guaranteed cpu of each queue."""
    choices = [(1, 2, 0), (3, 1, 1)] + ([(1, 4, 0)] if IS_LARGE else [])
    for a, b in itertools.product(choices[:-1] if IS_LARGE else choices[:1], choices):
        yield {"a": a, "b": b, **({"c": (1, 1, 0)} if IS_LARGE else {})}
    if not IS_LARGE:
        yield {"a": (3, 1, 1), "b": (1, 2, 0)}


def worlds() -> list[tuple[object, ...]]:
    return list(itertools.product(CONFIGS, early(), late(), shares()))


def build(
    settings: config.Config, jobs: tuple[Shape, ...], figures: dict[str, tuple[int, int, int]]
) -> TestCluster:
    queues = [
        queue(name, weight=weight, deserved={"cpu": deserved}, guarantee={"cpu": guaranteed})
        for name, (weight, deserved, guaranteed) in figures.items()
    ]
    nodes = [node(f"n{i}", cpu=2) for i in (1, 2)]
    world = cluster(nodes, [], queues=queues, priorities={"low": 1, "high": 9})
    world.config = settings
    add(world, jobs, "early")
    return world


def add(world: TestCluster, jobs: tuple[Shape, ...], when: str) -> None:
    for i, shape in enumerate(jobs):
        world.add(
            gang(
                f"{when}{i}",
                members=shape.members,
                minimum=shape.minimum,
                queue=shape.queue,
                cpu=shape.cpu,
                memory="1Mi",
                priority_class=shape.priority,
            )
        )


def check_laws(world: TestCluster, result: Result) -> None:
    """The safety laws, by plain arithmetic on the state before and the plan."""
    state, plan = world.state, result.plan
    assert plan.failures == []
    gone = {eviction.uid for eviction in plan.evictions}
    came = {bind.uid: bind.node for bind in plan.binds} | plan.pipelined
    if gone:
        assert plan.pipelined, "an eviction for nobody"
    for machine in state.node_table.node_list:
        held = sum(
            float(task.klass.request_r[0])
            for task in machine.tasks.values()
            if task.uid not in gone
        )
        held += sum(
            float(state.tasks[uid].klass.request_r[0])
            for uid, where in came.items()
            if where == machine.name
        )
        assert held <= 2000, "a node is over-committed"
    for job in state.jobs.values():
        bound = sum(task.uid in {bind.uid for bind in plan.binds} for task in job.tasks.values())
        assert bound == 0 or job.ready_count + bound >= job.min_member, "a gang is half placed"
    for name, one in state.queues.items():
        lost = sum(
            float(state.tasks[e.uid].klass.request_r[0])
            for e in plan.evictions
            if "reclaim" in e.reason and state.jobs[e.job].queue_name == name
        )
        gained = sum(
            float(state.tasks[bind.uid].klass.request_r[0])
            for bind in plan.binds
            if state.jobs[bind.job].queue_name == name
        )
        left = float(one.allocated_r[0]) + gained - lost
        assert lost == 0 or left >= float(one.guarantee_r[0]), "a guarantee is broken"


def run_to_rest(world: TestCluster) -> int:
    """Run cycles until nothing changes; return the number of evictions."""
    evictions = 0
    for _ in range(CYCLES):
        result = world.run()
        check_laws(world, result)
        if not result.plan.binds and not result.plan.evictions:
            return evictions
        evictions += len(result.plan.evictions)
        world.live(result)
    raise AssertionError(f"still busy: {result.binds} {result.evictions}")


@pytest.mark.parametrize("part", range(PARTS))
def test_in_every_small_world_evictions_end_and_the_laws_hold(part: int) -> None:
    evictions = 0
    for key, first, then, figures in worlds()[part::PARTS]:
        world = build(CONFIGS[key], first, figures)  # type: ignore[index, arg-type]
        run_to_rest(world)
        add(world, then, "late")  # type: ignore[arg-type]
        try:
            evictions += run_to_rest(world)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{key}\n{first}\n{then}\n{figures}") from error
    assert evictions > 0, "no world of this part had anything to evict"


def test_the_stated_number_of_small_clusters_is_enumerated() -> None:
    assert len(worlds()) == (20_160 if IS_LARGE else 2_520)
