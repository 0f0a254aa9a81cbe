"""Laws of eviction on generated clusters: evictions place a preemptor, are minimal, and end."""

from __future__ import annotations

from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.scheduler.actions.preemption.victims import VictimSearch
from hekla.testing import TestCluster, cluster, gang, node, queue

TIERS = """\
tiers:
- plugins:
  - {name: priority}
  - {name: gang, enablePreemptable: %(gang)s, enableReclaimable: %(gang)s}
  - {name: conformance}
- plugins: [{name: predicates}, %(share)s, {name: nodeorder}]
"""
ONLY_PRIORITY_STARVES = TIERS.replace(
    "{name: gang,", "{name: gang, enableJobStarving: false, enableJobOrder: false,"
)
FAIR = """\
tiers:
- plugins: [{name: gang}, {name: conformance}, {name: drf}]
- plugins: [{name: predicates}, %(share)s]
"""
ACTIONS = [
    "allocate, preempt, backfill",
    "allocate, reclaim",
    "allocate, preempt, reclaim, backfill",
    "reclaim, allocate, preempt",
]
SHARES = ["{name: proportion}", "{name: capacity}", "{name: capacity, enableHierarchy: true}"]
CYCLES = 30


@st.composite
def worlds(draw: st.DrawFn) -> TestCluster:
    nodes = [
        node(f"n{i}", cpu=draw(st.integers(1, 4)), memory=f"{draw(st.integers(2, 4))}Gi")
        for i in range(draw(st.integers(1, 3)))
    ]
    amounts: st.SearchStrategy[dict[str, Any] | None] = st.sampled_from(
        [None, {"cpu": 1}, {"cpu": 2}, {"cpu": 2, "memory": "2Gi"}]
    )
    queues = [
        queue(
            name,
            weight=draw(st.integers(1, 3)),
            guarantee=draw(st.sampled_from([None, None, {"cpu": 1}])),
            deserved=draw(amounts),
            reclaimable=draw(st.sampled_from([True, True, False])),
        )
        for name in ("qa", "qb", "qc")[: draw(st.integers(1, 3))]
    ]
    jobs = []
    for i in range(draw(st.integers(2, 5))):
        # The first jobs fill the cluster: small, elastic and of low priority.
        is_early = i < 2
        members = draw(st.integers(2, 4) if is_early else st.integers(1, 3))
        jobs.append(
            gang(
                f"j{i}",
                members=members,
                minimum=1 if is_early else draw(st.integers(1, members)),
                queue=draw(st.sampled_from([q.name for q in queues])),
                cpu=1 if is_early else draw(st.integers(1, 3)),
                memory=f"{draw(st.integers(1, 2))}Gi",
                priority_class=draw(st.sampled_from(["low", "mid", "high"])),
                age=float(draw(st.integers(0, 5))),
            )
        )
    conf = draw(st.sampled_from([TIERS, ONLY_PRIORITY_STARVES, FAIR])) % {
        "gang": draw(st.sampled_from(["true", "false"])),
        "share": draw(st.sampled_from(SHARES)),
    }
    text = f'actions: "{draw(st.sampled_from(ACTIONS))}"\n{conf}'
    early = draw(st.integers(1, 2))
    priorities = {"low": 1, "mid": 5, "high": 9}
    world = cluster(nodes, jobs[:early], queues=queues, priorities=priorities, conf=text)
    world.live(world.run())
    for late in jobs[early:]:
        world.add(late)
    return world


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_an_eviction_implies_a_placement_that_holds(world: TestCluster) -> None:
    """Check by plain arithmetic that every pipelined task fits once the victims are deleted."""
    result = world.run()
    if result.plan.evictions:
        assert result.plan.pipelined
    gone = {eviction.uid for eviction in result.plan.evictions}
    came = {bind.uid: bind.node for bind in result.plan.binds} | result.plan.pipelined
    for machine in world.state.node_table.node_list:
        for row in (0, 1):
            held = sum(
                float(t.klass.request_r[row]) for t in machine.tasks.values() if t.uid not in gone
            )
            held += sum(
                float(world.state.tasks[uid].klass.request_r[row])
                for uid, where in came.items()
                if where == machine.name
            )
            assert held <= world.state.matrix.allocatable_rn[row, machine.index]
    for eviction in result.plan.evictions:
        assert eviction.node in result.plan.pipelined.values(), "it left for nobody"


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_gangs_that_are_protected_keep_their_minimum(world: TestCluster) -> None:
    (gang_plugin,) = [
        option for tier in world.config.tiers for option in tier if option.plugin.name == "gang"
    ]
    if not gang_plugin.switches.get("enablePreemptable", True):
        return
    before = {job.key: job.ready_count for job in world.state.jobs.values()}
    lost: dict[str, int] = {}
    for eviction in world.run().plan.evictions:
        lost[eviction.job] = lost.get(eviction.job, 0) + 1
    for key, count in lost.items():
        assert before[key] - count >= world.state.jobs[key].min_member


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_no_eviction_for_another_queue_breaks_a_guarantee(world: TestCluster) -> None:
    result = world.run()
    before = {name: q.allocated_r.copy() for name, q in world.state.queues.items()}
    lost: dict[str, list[str]] = {}
    for eviction in result.plan.evictions:
        if eviction.reason == "reclaim":
            lost.setdefault(world.state.jobs[eviction.job].queue_name, []).append(eviction.uid)
    for name, uids in lost.items():
        have_r = before[name].copy()
        for uid in uids:
            have_r -= world.state.tasks[uid].klass.request_r
        guarantee_r = world.state.queues[name].guarantee_r
        short = (have_r < guarantee_r) & (have_r < before[name])
        assert not short.any(), (name, have_r, guarantee_r)


@settings(max_examples=120, deadline=None)
@given(worlds())
def test_evictions_come_to_an_end(world: TestCluster) -> None:
    """Recreate victims at once, as a job controller does; bind the pipelined tasks."""
    history = []
    for _ in range(CYCLES):
        result = world.run()
        history.append((result.binds, result.evictions))
        if not result.plan.binds and not result.plan.evictions:
            return
        world.live(result)
    raise AssertionError(f"still busy: {history[-6:]}")


@st.composite
def crowds(draw: st.DrawFn) -> TestCluster:
    """Pods of one size and one victim queue, so that an eviction cost can only rise."""
    share = draw(st.sampled_from(["{name: proportion}", "{name: capacity}"]))
    tiers = TIERS % {"gang": draw(st.sampled_from(["true", "false"])), "share": share}
    text = f'actions: "{draw(st.sampled_from(ACTIONS[1:]))}"\n{tiers}'
    nodes = [node(f"n{i}", cpu=draw(st.integers(1, 4))) for i in range(draw(st.integers(2, 6)))]
    queues = [queue("rich", deserved={"cpu": draw(st.integers(0, 4))})]
    queues += [queue("poor", weight=draw(st.integers(1, 3)), deserved={"cpu": 8})]
    world = cluster(nodes, [], queues=queues, priorities={"low": 1, "high": 9}, conf=text)
    for i in range(draw(st.integers(2, 5))):
        members, age = draw(st.integers(1, 5)), float(draw(st.integers(0, 9)))
        world.add(gang(f"r{i}", members=members, minimum=1, queue="rich", cpu=1, age=age))
    world.live(world.run())
    for i in range(draw(st.integers(2, 6))):
        members, where = draw(st.integers(1, 4)), draw(st.sampled_from(["rich", "poor", "poor"]))
        minimum, rank = draw(st.integers(1, members)), draw(st.sampled_from(["low", "high"]))
        late = gang(
            f"p{i}", members=members, minimum=minimum, queue=where, cpu=1, priority_class=rank
        )
        world.add(late)
    return world


@settings(max_examples=80, deadline=None)
@given(crowds())
def test_shared_eviction_costs_give_the_same_victims(
    world: TestCluster,
) -> None:
    fast = world.run()
    with mock.patch.object(VictimSearch, "is_simple", True):
        simple = world.run()
    assert fast.plan.effects == simple.plan.effects
    assert fast.plan.pipelined == simple.plan.pipelined
