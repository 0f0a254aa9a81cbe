"""Promises: room that was made by evictions goes to whom it was made for, before anybody is served.

Otherwise the one who had to leave could be the first to come back, and be told to leave again. That
holds whichever action comes first in a cycle, so each that gives room away asks for this.
"""

from __future__ import annotations

import numpy as np

from hekla.scheduler.actions.allocation.pending import group_equal, pending_tasks
from hekla.scheduler.explain.attempts import Attempt, explain_attempt, precheck
from hekla.scheduler.placement.greedy import NO_NODES
from hekla.scheduler.session.session import Session
from hekla.scheduler.session.statement import Statement
from hekla.scheduler.state.dimensions import IntArray
from hekla.scheduler.state.model import PENDING, Job, Task


def bind_nominated(session: Session) -> None:
    """Once in a cycle; calling it again does nothing."""
    if session.has_bound_nominated:
        return
    session.has_bound_nominated = True
    promised = [job for job in session.jobs if not job.is_pending and _nominated(job)]
    for job in sorted(promised, key=session.job_key):
        if precheck(session, job) is None:
            _keep(session, job)


def _keep(session: Session, job: Job) -> None:
    """Let a job start on any room there is; if that is not enough, hold what was promised to it.

    Held elsewhere, it would be somebody else's own, who would have to be promised another in turn.
    """
    with session.statement() as statement:
        _place(session, statement, job, strays=True)
        if session.job_ready(job):
            statement.commit()
            explain_attempt(session, job, Attempt(job))
            return
    with session.statement() as statement:
        _place(session, statement, job, strays=False)
        if session.job_pipelined(job):
            statement.keep()
        explain_attempt(session, job, Attempt(job))


def _place(session: Session, statement: Statement, job: Job, *, strays: bool) -> None:
    assert job.queue is not None
    for tasks in group_equal(session.in_task_order(_nominated(job))):
        while tasks and (allowed := session.allowance(job.queue, tasks[0], len(tasks))):
            left = place_nominated(session, statement, tasks[:allowed], strays=strays)
            tried_in_vain = len(left) == allowed
            tasks = [*([] if tried_in_vain else left), *tasks[allowed:]]


def place_nominated(
    session: Session, statement: Statement, tasks: list[Task], *, strays: bool = True
) -> list[Task]:
    """Room was made on nodes for these equal tasks: each goes to its own if it still can.

    While that room is still being left, who `strays` takes any other that came free meanwhile:
    nobody waits for a promise where there is a place. Whose own was taken in this way is promised
    what others leave elsewhere. Gives back those who have none of these.
    """
    may_stray = _may_stray(tasks[0].job)
    while tasks:
        put = statement.allocate
        chosen, index = _at_home(session, tasks, future=False)
        if not chosen and strays and may_stray:
            chosen, index = _anywhere(session, tasks, future=False)
        if not chosen:
            put = statement.pipeline
            chosen, index = _at_home(session, tasks, future=True)
        if not chosen and may_stray:
            chosen, index = _anywhere(session, tasks, future=True)
            session.nominated.update(task.uid for task in chosen)
        if not chosen:
            break
        put(chosen, index)
        tasks = [task for task in tasks if task.status == PENDING]
    return tasks


def _anywhere(session: Session, tasks: list[Task], *, future: bool) -> tuple[list[Task], IntArray]:
    index = session.placer.best_nodes(tasks[0], len(tasks), future=future)
    return tasks[: len(index)], index


def _at_home(session: Session, tasks: list[Task], *, future: bool) -> tuple[list[Task], IntArray]:
    """Those of equal tasks whose own node has room for them, and these nodes."""
    nodes, finder = session.cluster.nodes, session.placer
    homes = [
        (task, node.index)
        for task in tasks
        if (node := nodes.get(task.nominated_node)) is not None and node.is_known
    ]
    if not homes:
        return [], NO_NODES
    left = finder.capacity_on([column for _, column in homes], tasks[0], future=future)
    chosen: list[Task] = []
    columns: list[int] = []
    for task, column in homes:
        if left[column] > 0:
            left[column] -= 1
            chosen.append(task)
            columns.append(column)
    if len(chosen) > 1 and finder.affects_other_nodes(tasks[0]):
        del chosen[1:], columns[1:]
    return chosen, np.asarray(columns, dtype=np.int64)


def _may_stray(job: Job | None) -> bool:
    """One that strays would draw its gang after it, where that must be close together."""
    return job is None or (job.topology is None and not job.policies)


def _nominated(job: Job) -> list[Task]:
    return [task for task in pending_tasks(job) if task.nominated_node]
