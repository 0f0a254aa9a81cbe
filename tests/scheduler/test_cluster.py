"""Building the cluster state: any order and any history of objects give equal state."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.scheduler.state.cluster import Cluster
from hekla.scheduler.state.status import BINDING, PENDING, RELEASING, RUNNING
from hekla.testing import gang, node, pod, queue


def write(state: Cluster, kind: str, obj: Any) -> None:
    """Call the method of the cluster, or of its job table, that takes an object."""
    getattr(state if hasattr(state, kind) else state.job_table, kind)(obj)


def load(steps: list[tuple[str, Any]]) -> Cluster:
    state = Cluster()
    for kind, obj in steps:
        write(state, kind, obj)
    state.refresh()
    return state


def amounts(state: Cluster) -> dict[str, Any]:
    n = state.matrix.count
    out: dict[str, Any] = {
        name: getattr(state.matrix, name)[:4, :n].tolist()
        for name in ("allocatable_rn", "idle_rn", "used_rn", "releasing_rn")
    }
    out["pods"] = state.matrix.pods_n[:n].tolist()
    out["names"] = [one.name for one in state.node_table.node_list]
    out["total"] = state.node_table.total_r[:4].tolist()
    for key, job in sorted(state.jobs.items()):
        out[f"job {key}"] = (
            job.allocated_r.tolist(),
            job.pending_r.tolist(),
            job.ready_count,
            sorted(job.tasks),
            job.queue_name,
        )
    for name, one in sorted(state.queues.items()):
        out[f"queue {name}"] = (
            one.allocated_r.tolist(),
            one.pending_r.tolist(),
            one.inqueue_r.tolist(),
            one.elastic_r.tolist(),
            sorted(one.jobs),
        )
    out["waiting"] = sorted(state.job_table.pending)
    return out


def objects() -> list[tuple[str, Any]]:
    jobs = [
        gang("a", members=3, minimum=2, cpu=1, running_on=["n1", "n2"], min_resources={"cpu": 2}),
        gang("b", members=2, memory="1Gi", queue="q", min_resources={"memory": "2Gi"}),
        gang("c", members=1, cpu=2, queue="q", running_on=["n3"], phase="Running"),
    ]
    steps: list[tuple[str, Any]] = [("set_node", node(f"n{i}", cpu=4)) for i in (3, 1, 2)]
    steps += [("set_queue", queue("q")), ("set_queue", queue("default"))]
    for job in jobs:
        steps += [("set_group", job.group), *(("set_pod", one) for one in job.pods)]
    steps += [
        ("set_pod", pod("leaving", cpu=1, node="n1", deleting=True)),
        ("set_pod", pod("foreign", cpu=1, node="n2", scheduler="default-scheduler")),
        ("set_pod", pod("other", cpu=1, scheduler="default-scheduler")),
    ]
    return steps


@settings(max_examples=80, deadline=None)
@given(st.permutations(objects()))
def test_objects_may_arrive_in_any_order(steps: list[tuple[str, Any]]) -> None:
    assert amounts(load(steps)) == amounts(load(objects()))


@settings(max_examples=60, deadline=None)
@given(st.permutations(objects()), st.lists(st.integers(0, 15), max_size=12))
def test_repeating_and_undoing_changes_restores_the_state(
    steps: list[tuple[str, Any]], again: list[int]
) -> None:
    state = load(steps)
    for i in again:
        kind, obj = steps[i % len(steps)]
        if kind == "set_pod":
            state.delete_pod(obj.metadata.uid)
        elif kind == "set_node":
            state.delete_node(obj.name)
            if i % 2:
                state.refresh()
        elif kind == "set_queue":
            state.job_table.delete_queue(obj.name)
        elif kind == "set_group":
            state.job_table.delete_group(obj.namespace, obj.name)
        write(state, kind, obj)
    state.refresh()
    assert amounts(state) == amounts(load(objects()))


def test_node_accounting_follows_the_status_of_tasks() -> None:
    """Reference §2.6: releasing takes from idle, adds to used and to releasing."""
    state = load(
        [
            ("set_node", node("n1", cpu=4)),
            ("set_pod", pod("run", cpu=1, node="n1")),
            ("set_pod", pod("go", cpu=2, node="n1", deleting=True)),
            ("set_pod", pod("done", cpu=3, node="n1", phase="Succeeded")),
        ]
    )
    matrix = state.matrix
    assert (matrix.idle_rn[0, 0], matrix.used_rn[0, 0], matrix.releasing_rn[0, 0]) == (
        1000.0,
        3000.0,
        2000.0,
    )
    assert matrix.future_idle(0)[0] == 3000.0
    assert [t.status for t in state.tasks.values()][:2] == [RUNNING, RELEASING]


def test_a_bind_is_assumed_until_the_watch_confirms_it_and_can_be_taken_back() -> None:
    job = gang("a", members=1, cpu=1)
    state = load(
        [
            ("set_node", node("n1", cpu=4)),
            ("set_queue", queue("default")),
            ("set_group", job.group),
            ("set_pod", job.pods[0]),
        ]
    )
    before = amounts(state)
    task = state.tasks["default-a-0"]
    state.assume(task, "n1")
    assert state.matrix.idle_rn[0, 0] == 3000.0
    state.set_pod(job.pods[0])  # the watch is behind
    assuming = state.tasks["default-a-0"]
    assert assuming.status == BINDING
    state.forget(assuming)
    state.refresh()
    assert state.tasks["default-a-0"].status == PENDING
    assert amounts(state) == before
    state.assume(task, "n1")
    state.set_pod(pod("a-0", group="a", cpu=1, node="n1"))
    running = state.tasks["default-a-0"]
    assert running.status == RUNNING
    assert state.matrix.idle_rn[0, 0] == 3000.0


def test_equal_pods_share_one_class_and_numbering_labels_do_not_split_it() -> None:
    state = Cluster()
    for i in range(3):
        state.set_pod(pod(f"p-{i}", cpu=1, labels={"volcano.sh/task-index": str(i), "x": str(i)}))
    assert len({task.klass for task in state.tasks.values()}) == 1
    state.set_pod(pod("q", cpu=2))
    assert len({task.klass for task in state.tasks.values()}) == 2


def test_more_resources_than_rows_make_the_arrays_grow() -> None:
    extra = {f"example.com/r{i:02d}": 4 for i in range(40)}
    state = load(
        [
            ("set_queue", queue("default")),
            ("set_node", node("n1", cpu=4)),
            ("set_pod", pod("early", cpu=1, node="n1")),
            ("set_node", node("n2", extra=extra)),
            ("set_pod", pod("late", node="n2", requests={"example.com/r39": 3})),
        ]
    )
    row = state.dimensions.row("example.com/r39")
    assert row is not None
    assert state.matrix.idle_rn[row, :2].tolist() == [0.0, 1000.0]
    assert np.count_nonzero(state.node_table.total_r) == 42


STEPS = st.lists(
    st.one_of(
        st.sampled_from(["assume", "forget", "release", "retain"]),
        st.tuples(
            st.sampled_from(["", "n1", "n2"]),
            st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
        ),
    ),
    max_size=12,
)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.sampled_from(["", "a"]))
def test_advance_pod_equals_set_pod(steps: list[Any], group: str) -> None:
    """A bound pod that starts to run changes its status count, but no amounts."""
    wanted, found = (
        load(
            [
                *(("set_node", node(name, cpu=4)) for name in ("n1", "n2")),
                ("set_queue", queue("default")),
                ("set_group", gang("a", members=1, cpu=1).group),
                ("set_pod", pod("p", cpu=1, group=group)),
            ]
        )
        for _ in range(2)
    )
    for step in steps:
        for state, put in ((wanted, wanted.set_pod), (found, found.advance_pod)):
            task = state.tasks["default-p"]
            if isinstance(step, tuple):
                said = {"conditions": [{"type": "PodScheduled", "status": str(bool(step[0]))}]}
                put(pod("p", cpu=1, group=group, node=step[0], phase=step[1], status=said))
            elif step == "assume":
                if task.status == PENDING:
                    state.assume(task, "n1")
            else:
                getattr(state, step)(task)
            state.refresh()
        assert amounts(found) == amounts(wanted)
        mine, theirs = found.tasks["default-p"], wanted.tasks["default-p"]
        assert (mine.status, mine.node_name) == (theirs.status, theirs.node_name)
        assert mine.condition == theirs.condition
        assert (sorted(found.job_table.changed), sorted(found.job_table.pending)) == (
            sorted(wanted.job_table.changed),
            sorted(wanted.job_table.pending),
        )
