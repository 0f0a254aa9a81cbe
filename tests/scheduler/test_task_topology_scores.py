"""Sequential scores of task-topology: placing a role at once equals one at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.api.wellknown import TASK_TOPOLOGY_AFFINITY, TASK_TOPOLOGY_ANTI_AFFINITY
from hekla.scheduler import SequentialScore
from hekla.scheduler.placement import sequential
from hekla.scheduler.placement.placer import Placer
from hekla.scheduler.plugins.task_topology.buckets import Layout, RoleAffinity
from hekla.scheduler.plugins.task_topology.scores import ByBucket, ByTraffic, NodeCapacities
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.classes import TaskClass
from hekla.scheduler.state.dimensions import EPSILON
from hekla.scheduler.state.model import Job, Task
from hekla.scheduler.state.status import PENDING
from hekla.testing import TestCluster, cluster, gang, node, pod
from tests.scheduler.test_buckets import APART, ROLES, TOGETHER, world

CONF = """\
actions: "allocate, backfill"
tiers:
- plugins:
  - {name: gang}
  - {name: predicates}
  - {name: %s}
  - {name: task-topology, arguments: {task-topology.weight: %d, task-topology.mode: %s}}
"""
WEIGHT = 3
Where = Mapping[str, int]
"""The columns of tasks that are on nodes, by uid."""


def fitting(session: Session, placed: Sequence[tuple[Task, int]], column: int,
            tasks: Sequence[Task]) -> int:  # fmt: skip
    """Return how many of the tasks fit on a node, one after the other."""
    free_r = session.columns.idle_rn[:, column].copy()
    for task, there in placed:
        free_r -= task.klass.request_r[: len(free_r)] * (there == column)

    def takes(klass: TaskClass) -> bool:
        return all(a < free_r[r] + EPSILON for r, a in zip(klass.rows, klass.amounts, strict=True))

    found = 0
    for task in tasks:
        if takes(task.klass):
            free_r -= task.klass.request_r[: len(free_r)]
            found += 1
    return found


def by_bucket(job: Job, layout: Layout, task: Task, where: Where, column: int, fits: int) -> float:
    """Return the fit of the bucket plus its tasks on the node, minus tasks with anti-affinity."""
    near = sum(where.get(uid) == column for uid in layout.of[task.uid].tasks)
    repelled = [
        other
        for other in job.tasks.values()
        if frozenset((task.role, other.role)) in layout.affinity.apart
    ]
    far = sum(where.get(foe.uid) == column for foe in repelled)
    return (fits + near - far) * (WEIGHT * 100.0 / layout.largest)


def by_traffic(job: Job, layout: Layout, task: Task, where: Where, column: int, fits: int) -> float:
    """Return the traffic between nodes with the task here, over all pairs of tasks."""
    after = {**where, task.uid: column}
    links = dict[frozenset[int], int]()
    for a in after:
        for b in after:
            roles = frozenset((job.tasks[a].role, job.tasks[b].role))
            if a < b and after[a] != after[b] and roles in layout.affinity.together:
                pair = frozenset((after[a], after[b]))
                links[pair] = links.get(pair, 0) + 1
    own = [
        uid
        for uid, there in where.items()
        if there != column
        and frozenset((task.role, job.tasks[uid].role)) in layout.affinity.together
    ]
    members = len(job.tasks)
    here = sum(there == column for there in where.values()) / (members + 1)
    cost = max(links.values(), default=0) * members**2 + len(own) * members - fits - here
    return -cost * (WEIGHT * 100.0)


@pytest.mark.parametrize("is_by_traffic", [False, True])
@given(ROLES, TOGETHER, APART, st.sampled_from("abc"), st.lists(st.integers(0, 2), max_size=14))
def test_incremental_scores_equal_scores_from_scratch(
    is_by_traffic: bool,
    members: list[tuple[str, int]],
    together: list[str],
    apart: list[str],
    role: str,
    places: list[int],
) -> None:
    found, job = world(members, together, apart)
    layout = Layout(job, RoleAffinity(job))
    pending = sorted(job.by_status[PENDING].values(), key=lambda task: task.order)
    alike = [task for task in pending if task.role == role and task.uid in layout.of]
    alike = [task for task in alike if task.klass is alike[0].klass]
    if not alike:
        return
    with Session(found.state, found.config, 0.0) as session:
        layout.recount(found.state.nodes)
        make, plainly = (ByTraffic, by_traffic) if is_by_traffic else (ByBucket, by_bucket)
        turn: SequentialScore = make(layout, alike[0], NodeCapacities(session), WEIGHT)
        running = [task for task in job.tasks.values() if task.node_name]
        where = {task.uid: found.state.nodes[task.node_name].index for task in running}
        placed: list[tuple[Task, int]] = []
        for task, place in zip(alike, [*places, *[0] * len(alike)], strict=False):
            others = [t for t in pending if t.uid not in where and t is not task]
            if is_by_traffic:
                others.sort(key=lambda t: (*layout.affinity.order(t.role), t.role, t.order))
            else:
                of_bucket = layout.of[task.uid].tasks
                others = sorted((t for t in others if t.uid in of_bucket), key=lambda t: t.name)
            capacities = [fitting(session, placed, c, [task, *others]) for c in range(3)]
            wanted = [plainly(job, layout, task, where, c, capacities[c]) for c in range(3)]
            assert turn.score(task).tolist() == wanted
            turn.placed(task, place)
            where[task.uid] = place
            placed.append((task, place))


@st.composite
def worlds(draw: st.DrawFn) -> TestCluster:
    """Jobs with wishes before nodes of which some are full, some hold few pods, some are left."""
    machines = [
        node(f"n{i}", cpu=draw(st.integers(1, 9)), pods=draw(st.sampled_from([2, 5, 110])))
        for i in range(draw(st.integers(1, 8)))
    ]
    running = [
        pod(f"r{i}", cpu=2, node=draw(st.sampled_from(machines)).name, deleting=i % 2 == 0)
        for i in range(draw(st.integers(0, 3)))
    ]
    jobs = []
    for j in range(draw(st.integers(1, 3))):
        members = draw(ROLES)
        has = {role for role, _ in members}
        together, apart = (
            [group for group in draw(groups) if set(group.split(",")) <= has]
            for groups in (TOGETHER, APART)
        )
        notes = {
            TASK_TOPOLOGY_AFFINITY: ";".join(together),
            TASK_TOPOLOGY_ANTI_AFFINITY: ";".join(apart),
        }
        pods = [
            pod(f"j{j}-{role}-{i}", group=f"j{j}", role=role, cpu=cpu)
            for i, (role, cpu) in enumerate(members)
        ]
        least = draw(st.sampled_from([1, len(pods) // 2, len(pods)]))
        jobs.append(gang(f"j{j}", members=0, minimum=least, annotations=notes).and_pods(*pods))
    mode = draw(st.sampled_from(["buckets", "communication"]))
    conf = CONF % (draw(st.sampled_from(["nodeorder", "binpack"])), draw(st.integers(0, 10)), mode)
    return cluster(machines, jobs, pods=running, conf=conf)


@settings(max_examples=150, deadline=None)
@given(worlds(), st.booleans())
def test_placing_a_role_at_once_equals_placing_its_tasks_one_by_one(
    found: TestCluster, tells_little: bool
) -> None:
    """Run both ways; the reference builds a new `SequentialScore` for each task."""
    little = 1 if tells_little else sequential._BATCH
    with (
        mock.patch.object(sequential, "_BATCH", little),
        mock.patch.object(sequential, "_AT_ONCE", little * 32),
        mock.patch.object(sequential, "_FEW", 1),
    ):
        quick = found.run()
    with mock.patch.object(Placer, "_has_only_sequential", return_value=False):
        plain = found.run()
    assert not quick.plan.failures
    assert quick.plan.effects == plain.plan.effects
    assert quick.plan.pipelined == plain.plan.pipelined
    assert quick.plan.verdicts == plain.plan.verdicts


class _Broken(ByBucket):
    def placed(self, task: Task, node: int) -> None:
        raise ArithmeticError("lost count")


def test_a_sequential_score_that_raises_leaves_its_plugin_out_and_places_the_job() -> None:
    notes = {TASK_TOPOLOGY_AFFINITY: "a"}
    pods = [pod(f"j-a-{i}", group="j", role="a", cpu=1) for i in range(4)]
    made = gang("j", members=0, minimum=4, annotations=notes).and_pods(*pods)
    machines = [node(f"n{i}", cpu=3) for i in range(2)]
    found = cluster(machines, [made], conf=CONF % ("nodeorder", 1, "buckets"))
    with mock.patch("hekla.scheduler.plugins.task_topology.plugin.ByBucket", _Broken):
        result = found.run()
    assert len(result.binds) == 4
    assert [failure.plugin for failure in result.plan.failures] == ["task-topology"]
