"""Buckets of task-topology: sorting tasks, and counting while they are placed."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from hekla.api.wellknown import TASK_TOPOLOGY_AFFINITY, TASK_TOPOLOGY_ANTI_AFFINITY
from hekla.scheduler.plugins.task_topology.buckets import Layout, RoleAffinity
from hekla.scheduler.state.classes import TaskClass
from hekla.scheduler.state.model import Job
from hekla.scheduler.state.status import ALLOCATED, PENDING
from hekla.testing import TestCluster, cluster, gang, node, pod

CONF = "actions: allocate\ntiers:\n- plugins: [{name: task-topology}]\n"
ROLES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), min_size=1, max_size=14)
TOGETHER = st.lists(st.sampled_from(["a,b", "b,c", "a,b,c", "a", "b"]), max_size=2)
APART = st.lists(st.sampled_from(["a", "c", "a,c", "b"]), max_size=2)


def world(
    members: Sequence[tuple[str, int]], together: Sequence[str], apart: Sequence[str]
) -> tuple[TestCluster, Job]:
    """Return a job by role and CPUs; every fourth task runs. Affinity of unknown roles is kept."""
    has = {role for role, _ in members}
    known = [[g for g in groups if set(g.split(",")) <= has] for groups in (together, apart)]
    notes = {
        TASK_TOPOLOGY_AFFINITY: ";".join(known[0]),
        TASK_TOPOLOGY_ANTI_AFFINITY: ";".join(known[1]),
    }
    pods = [
        pod(f"j-{i * 7 % 10}-{i}", group="j", role=role, cpu=cpu, node="" if i % 4 else f"n{i % 3}")
        for i, (role, cpu) in enumerate(members)
    ]
    made = gang("j", members=0, minimum=1, annotations=notes).and_pods(*pods)
    found = cluster([node(f"n{i}", cpu=64) for i in range(3)], [made], conf=CONF)
    found.state.refresh()
    return found, found.state.jobs["default/j"]


def plainly_sorted(layout: Layout) -> list[list[str]]:
    """Assign the tasks in the same order, scanning every bucket for each."""
    affinity, buckets = layout.affinity, list[list[str]]()
    tasks = {uid: bucket.tasks[uid] for uid, bucket in layout.of.items()}

    def attraction(role: str, others: Sequence[str]) -> int:
        pairs = [frozenset((role, tasks[uid].role)) for uid in others]
        return sum((p in affinity.together) - (p in affinity.apart) for p in pairs)

    def load(uids: Sequence[str]) -> float:
        return sum(tasks[uid].klass.amount(0) + tasks[uid].klass.amount(1) / 2**20 for uid in uids)

    for uid, task in tasks.items():
        if task.node_name:
            found = [b for b in buckets if tasks[b[0]].node_name == task.node_name]
        else:
            found = sorted(buckets, key=lambda b: (-attraction(task.role, b), load(b)))
            found = [b for b in found[:1] if attraction(task.role, b) >= 0]
        if not found:
            found = [[]]
            buckets += found
        found[0].append(uid)
    return buckets


@given(ROLES, TOGETHER, APART)
def test_the_bucket_of_a_task_equals_a_full_search(
    members: list[tuple[str, int]], together: list[str], apart: list[str]
) -> None:
    _, job = world(members, together, apart)
    layout = Layout(job, RoleAffinity(job))
    assert [list(bucket.tasks) for bucket in layout.buckets] == plainly_sorted(layout)


@given(ROLES, TOGETHER, APART, st.lists(st.integers(0, 2), max_size=14))
def test_incremental_counts_equal_a_full_count(
    members: list[tuple[str, int]], together: list[str], apart: list[str], places: list[int]
) -> None:
    found, job = world(members, together, apart)
    along, anew = Layout(job, RoleAffinity(job)), Layout(job, RoleAffinity(job))
    along.recount(found.state.nodes)
    for task, place in zip(list(job.by_status[PENDING].values()), places, strict=False):
        job.move([task], ALLOCATED)
        task.node_name = found.state.node_table.node_list[place].name
        along.placed(task, place)
    anew.recount(found.state.nodes)
    assert along.is_counted
    assert along.here == anew.here
    for one, other in zip(along.buckets, anew.buckets, strict=True):
        assert one.here == other.here
        assert [run.waiting for run in one.runs] == [run.waiting for run in other.runs]


def test_a_task_that_was_not_pending_forces_a_new_count() -> None:
    found, job = world([("a", 1), ("a", 1)], ["a"], [])
    layout = Layout(job, RoleAffinity(job))
    layout.recount(found.state.nodes)
    running = next(task for task in job.tasks.values() if task.node_name)
    layout.placed(running, 0)
    assert not layout.is_counted


@given(ROLES, TOGETHER, APART)
def test_pending_tasks_follow_the_name_order(
    members: list[tuple[str, int]], together: list[str], apart: list[str]
) -> None:
    found, job = world(members, together, apart)
    layout = Layout(job, RoleAffinity(job))
    layout.recount(found.state.nodes)
    for uid, bucket in layout.of.items():
        task = job.tasks[uid]
        rest = [t for t in bucket.tasks.values() if t.status == PENDING and t is not task]
        wanted = [task.klass, *(t.klass for t in sorted(rest, key=lambda t: t.name))]
        told: list[TaskClass] = []
        for klass, count in layout.first_and_rest(task):
            told += [klass] * count
        assert told == wanted
