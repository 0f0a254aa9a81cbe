"""Laws that hold for any cluster: the design's safety laws, under Hypothesis."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.scheduler.framework import config
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.status import PENDING
from hekla.testing import TestCluster, cluster, gang, node, pod, queue

PACKING = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins:
  - {name: predicates}
  - {name: proportion}
  - name: binpack
    arguments: {binpack.weight: 10}
"""
SPREADING = PACKING.replace("binpack.weight: 10", "binpack.weight: 0").replace(
    "- {name: predicates}", "- {name: predicates}\n  - {name: nodeorder}"
)

RECLAIMING = """\
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: capacity}, {name: nodeorder}]
"""


@st.composite
def worlds(draw: st.DrawFn) -> TestCluster:
    nodes = [
        node(
            f"n{i}",
            cpu=draw(st.integers(1, 6)),
            memory=f"{draw(st.integers(1, 8))}Gi",
            pods=draw(st.integers(1, 8)),
            labels={"zone": draw(st.sampled_from("ab"))},
            taints=draw(
                st.sampled_from([[], [], ["spot=true:NoSchedule"], ["x=y:PreferNoSchedule"]])
            ),
        )
        for i in range(draw(st.integers(1, 6)))
    ]
    queues = [
        queue("q1", weight=draw(st.integers(1, 3))),
        queue("q2", weight=1, capability=draw(st.sampled_from([None, {"cpu": 4}]))),
    ]
    jobs = []
    for i in range(draw(st.integers(1, 6))):
        members = draw(st.integers(1, 5))
        spec: dict[str, Any] = draw(
            st.sampled_from(
                [
                    {},
                    {"nodeSelector": {"zone": "a"}},
                    {"tolerations": [{"key": "spot", "operator": "Exists"}]},
                ]
            )
        )
        jobs.append(
            gang(
                f"job{i}",
                members=members,
                minimum=draw(st.integers(1, members)),
                queue=draw(st.sampled_from(["q1", "q2"])),
                cpu=draw(st.integers(1, 3)),
                memory=f"{draw(st.integers(1, 3))}Gi",
                age=float(draw(st.integers(0, 9))),
                spec=spec,
            )
        )
    running = [
        pod(f"run{i}", cpu=1, memory="1Gi", node=draw(st.sampled_from(nodes)).name)
        for i in range(draw(st.integers(0, 3)))
    ]
    conf = draw(st.sampled_from([config.DEFAULT, PACKING, SPREADING]))
    return cluster(nodes, jobs, queues=queues, pods=running, conf=conf)


def numbers(world: TestCluster) -> list[bytes]:
    """Every number of a cluster, bit for bit."""
    state = world.state
    matrix = state.matrix
    out = [
        getattr(matrix, name).tobytes()
        for name in ("idle_rn", "used_rn", "releasing_rn", "pipelined_rn", "pods_n", "nonzero_2n")
    ]
    for job in state.jobs.values():
        out += [job.allocated_r.tobytes(), job.pending_r.tobytes(), job.phase.encode()]
        out += [job.inqueue_r.tobytes(), job.elastic_r.tobytes()]
        counts = {role: tally for role, tally in sorted(job.by_role.items()) if any(tally)}
        out += [f"{job.ready_count} {job.pending_best_effort} {counts}".encode()]
        out += [str([sorted(tasks) for tasks in job.by_status]).encode()]
    for one in state.queues.values():
        out += [one.allocated_r.tobytes(), one.pending_r.tobytes()]
        out += [one.inqueue_r.tobytes(), str(one.allocated_pods).encode()]
    out += [f"{t.uid} {t.status} {t.node_name}".encode() for t in state.tasks.values()]
    return out


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_no_node_is_over_committed_and_no_gang_half_placed(world: TestCluster) -> None:
    idle_before = world.state.matrix.idle_rn.copy()
    result = world.run()
    world.state.refresh()
    for bind in result.plan.binds:
        world.state.assume(world.state.tasks[bind.uid], bind.node)
    over = np.minimum(idle_before, 0.0) - world.state.matrix.idle_rn
    assert (over <= 0).all(), "a node was given more than it has"
    count = world.state.matrix.count
    pods_n, max_n = world.state.matrix.pods_n[:count], world.state.matrix.max_pods_n[:count]
    bound_to = {bind.node for bind in result.plan.binds}
    for machine in world.state.node_table.node_list:
        if machine.name in bound_to:
            assert pods_n[machine.index] <= max_n[machine.index]
    for job in world.state.jobs.values():
        assert job.ready_count == 0 or job.ready_count >= job.min_member, job.key


@settings(max_examples=40, deadline=None)
@given(worlds())
def test_a_cycle_changes_nothing_and_gives_the_same_plan_again(world: TestCluster) -> None:
    world.state.refresh()
    before = numbers(world)
    first = world.run()
    assert before == numbers(world)
    again = world.run()
    assert first.plan.effects == again.plan.effects
    assert {k: str(v) for k, v in first.plan.verdicts.items()} == {
        k: str(v) for k, v in again.plan.verdicts.items()
    }


@settings(max_examples=40, deadline=None)
@given(worlds(), st.randoms(use_true_random=False))
def test_the_plan_does_not_depend_on_the_order_of_objects(world: TestCluster, random: Any) -> None:
    want = world.run()
    other = copy.deepcopy(world)
    state = other.state
    for table in (state.jobs, state.queues, state.job_table.pending, state.job_table.changed):
        items = list(table.items())
        random.shuffle(items)
        table.clear()
        table.update(items)  # type: ignore[arg-type]
    for job in state.jobs.values():
        pending = list(job.by_status[PENDING].items())
        random.shuffle(pending)
        job.by_status[PENDING].clear()
        job.by_status[PENDING].update(pending)
    assert want.binds == other.run().binds


@settings(max_examples=40, deadline=None)
@given(worlds())
def test_leaving_a_statement_restores_every_array_bit_for_bit(world: TestCluster) -> None:
    world.state.refresh()
    before = numbers(world)
    with Session(world.state, world.config, 0.0) as session:
        ledgers = ("idle_rn", "used_rn", "releasing_rn", "pipelined_rn", "pods_n", "nonzero_2n")
        saved = [getattr(session.columns, name).tobytes() for name in ledgers]
        with session.statement() as statement:
            for job in world.state.jobs.values():
                for task in session.in_task_order(job.by_status[PENDING].values()):
                    index = session.placer.best_nodes(task, 1)
                    if len(index):
                        statement.allocate((task,), index)
        assert saved == [getattr(session.columns, name).tobytes() for name in ledgers]
    assert before == numbers(world)


@settings(max_examples=40, deadline=None)
@given(worlds())
def test_no_queue_is_given_more_than_its_capability(world: TestCluster) -> None:
    result = world.run()
    for bind in result.plan.binds:
        world.state.assume(world.state.tasks[bind.uid], bind.node)
    limited = world.state.queues["q2"]
    if limited.capability_r[0]:
        assert limited.allocated_r[0] <= limited.capability_r[0]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_task_is_pending_while_a_node_has_capacity_for_it(data: st.DataObject) -> None:
    """Work conservation, checked by plain arithmetic on single-pod jobs of one queue."""
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    wants = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=12))
    world = cluster(
        [node(f"n{i}", cpu=cpu) for i, cpu in enumerate(sizes)],
        [gang(f"j{i:02d}", cpu=cpu) for i, cpu in enumerate(wants)],
        conf=data.draw(st.sampled_from([config.DEFAULT, PACKING, SPREADING])),
    )
    result = world.run()
    left = dict(enumerate(sizes))
    for name, where in result.binds.items():
        left[int(where[1:])] -= wants[int(name[1:3])]
    assert min(left.values()) >= 0
    for i, cpu in enumerate(wants):
        if f"j{i:02d}-0" not in result.binds:
            assert all(room < cpu for room in left.values())
            assert result.why(f"j{i:02d}")


@st.composite
def aftermaths(draw: st.DrawFn) -> TestCluster:
    """Groups in every phase, with pods pending, running, finished or deleted."""
    nodes = [node(f"n{i}", cpu=draw(st.integers(1, 6))) for i in range(draw(st.integers(1, 3)))]
    queues = [
        queue("q1", weight=draw(st.integers(1, 3))),
        queue("q2", weight=1, capability=draw(st.sampled_from([None, {"cpu": 3}]))),
    ]
    jobs = []
    for i in range(draw(st.integers(1, 5))):
        cpu = draw(st.integers(1, 3))
        minimum = draw(st.integers(0, 3))
        group = gang(
            f"job{i}",
            members=0,
            minimum=minimum,
            queue=draw(st.sampled_from(["q1", "q2"])),
            min_resources=draw(st.sampled_from([None, {"cpu": cpu * minimum}])),
            phase=draw(
                st.sampled_from(["", "Pending", "Inqueue", "Running", "Unknown", "Completed"])
            ),
        )
        lives = draw(
            st.lists(st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]), max_size=3)
        )
        where = ["" if each == "Pending" else draw(st.sampled_from(nodes)).name for each in lives]
        jobs.append(
            group.and_pods(
                *(
                    pod(f"job{i}-{j}", group=f"job{i}", cpu=cpu, phase=phase, node=place)
                    for j, (phase, place) in enumerate(zip(lives, where, strict=True))
                )
            )
        )
    conf = draw(st.sampled_from([config.DEFAULT, PACKING, RECLAIMING]))
    return cluster(nodes, jobs, queues=queues, conf=conf)


@settings(max_examples=150, deadline=None)
@given(aftermaths())
def test_undone_work_of_a_cycle_waits_for_an_event_or_requests_a_cycle(world: TestCluster) -> None:
    """There is no periodic cycle, and the watch events of our writes start none: so a cycle that
    moves no pods leaves nothing that can be decided at once, or requests the next cycle."""
    for _ in range(5):
        first = world.run()
        world.live(first)
        if not (first.plan.binds or first.plan.evictions or first.plan.wake_at is not None):
            break
    else:
        raise AssertionError("it never comes to rest")
    second = world.run()
    assert (second.plan.binds, second.plan.evictions) == ([], [])
    now = {job.name: job.phase for job in world.state.jobs.values()}
    assert now | second.phases == now, "a group moved on, and nothing would have called for it"
