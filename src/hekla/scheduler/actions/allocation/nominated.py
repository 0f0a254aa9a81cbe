"""Nominated tasks are placed first: capacity freed by preemption belongs to the preemptor."""

from __future__ import annotations

import numpy as np

from hekla.scheduler.actions.allocation.pending import group_equal, pending_tasks
from hekla.scheduler.explain.attempts import Attempt, explain_attempt, precheck
from hekla.scheduler.placement.greedy import NO_NODES
from hekla.scheduler.session.session import Session
from hekla.scheduler.session.statement import Statement
from hekla.scheduler.state.dimensions import IntArray
from hekla.scheduler.state.model import Job, Task
from hekla.scheduler.state.status import PENDING, PIPELINED


def bind_nominated(session: Session) -> None:
    """Place the nominated tasks of all jobs. Only the first call of a cycle has an effect."""
    if session.has_bound_nominated:
        return
    session.has_bound_nominated = True
    nominated = [job for job in session.jobs if not job.is_pending and _nominated(job)]
    for job in sorted(nominated, key=session.job_key):
        if precheck(session, job) is None:
            _bind_job(session, job)


def _bind_job(session: Session, job: Job) -> None:
    """Place a job on any idle resources; if it is not ready then, keep it on its nominated nodes.

    Keeping it on other nodes would take the nominated nodes of other jobs.
    """
    with session.statement() as statement:
        _place(session, statement, job, other_nodes=True)
        if session.job_ready(job):
            statement.commit()
            explain_attempt(session, job, Attempt(job))
            return
    with session.statement() as statement:
        _place(session, statement, job, other_nodes=False)
        if session.job_pipelined(job):
            statement.keep()
        explain_attempt(session, job, Attempt(job))


def _place(session: Session, statement: Statement, job: Job, *, other_nodes: bool) -> None:
    assert job.queue is not None
    for tasks in group_equal(session.in_task_order(_nominated(job))):
        while tasks and (allowed := session.allowance(job.queue, tasks[0], len(tasks))):
            left = place_nominated(session, statement, tasks[:allowed], other_nodes=other_nodes)
            is_stuck = len(left) == allowed
            tasks = [*([] if is_stuck else left), *tasks[allowed:]]


def place_nominated(
    session: Session, statement: Statement, tasks: list[Task], *, other_nodes: bool = True
) -> list[Task]:
    """Place equal nominated tasks, each on its nominated node if it fits there. Return the rest.

    With `other_nodes`, a task whose victims have not terminated takes any node with idle resources.
    A task whose nominated node was taken in this way is nominated for releasing resources
    elsewhere.
    """
    may_move = _may_move(tasks[0].job)
    while tasks:
        put = statement.allocate
        chosen, index = _on_nominated_nodes(session, tasks, future=False)
        if not chosen and other_nodes and may_move:
            chosen, index = _on_any_node(session, tasks, future=False)
        if not chosen:
            put = statement.pipeline
            chosen, index = _on_nominated_nodes(session, tasks, future=True)
        if not chosen and may_move:
            chosen, index = _on_any_node(session, tasks, future=True)
        if not chosen:
            break
        put(chosen, index)
        session.nominate(task for task in chosen if task.status == PIPELINED)
        tasks = [task for task in tasks if task.status == PENDING]
    return tasks


def _on_any_node(
    session: Session, tasks: list[Task], *, future: bool
) -> tuple[list[Task], IntArray]:
    index = session.placer.best_nodes(tasks[0], len(tasks), future=future)
    return tasks[: len(index)], index


def _on_nominated_nodes(
    session: Session, tasks: list[Task], *, future: bool
) -> tuple[list[Task], IntArray]:
    """Return the tasks that fit on their nominated node, and these nodes."""
    nodes, placer = session.cluster.nodes, session.placer
    targets = [
        (task, node.index)
        for task in tasks
        if (node := nodes.get(task.nominated_node)) is not None and node.is_known
    ]
    if not targets:
        return [], NO_NODES
    left = placer.capacity_on([column for _, column in targets], tasks[0], future=future)
    chosen: list[Task] = []
    columns: list[int] = []
    for task, column in targets:
        if left[column] > 0:
            left[column] -= 1
            chosen.append(task)
            columns.append(column)
    if len(chosen) > 1 and placer.affects_other_nodes(tasks[0]):
        del chosen[1:], columns[1:]
    return chosen, np.asarray(columns, dtype=np.int64)


def _may_move(job: Job | None) -> bool:
    """Tell whether a task may use another node: with a network topology, its gang would follow."""
    return job is None or (job.topology is None and not job.policies)


def _nominated(job: Job) -> list[Task]:
    return [task for task in pending_tasks(job) if task.nominated_node]
