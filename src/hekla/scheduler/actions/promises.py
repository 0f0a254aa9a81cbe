"""Promises: room that was made by evictions goes to whom it was made for, before anybody is served.

Otherwise the one who had to leave could be the first to come back, and be told to leave again. That
holds whichever action comes first in a cycle, so each that gives room away asks for this.
"""

from __future__ import annotations

import numpy as np

from hekla.scheduler.actions.verdicts import Attempt, explain_attempt, hindrance
from hekla.scheduler.model import PENDING, Job, Task
from hekla.scheduler.session import Session
from hekla.scheduler.statement import Statement


def keep_promises(session: Session) -> None:
    """Once in a cycle; calling it again does nothing."""
    if session.has_kept_promises:
        return
    session.has_kept_promises = True
    promised = [job for job in session.jobs if not job.is_pending and _nominated(job)]
    for job in sorted(promised, key=session.job_key):
        if hindrance(session, job) is not None:
            continue
        assert job.queue is not None
        with session.statement() as statement:
            for task in session.in_task_order(_nominated(job)):
                if session.allowance(job.queue, task, 1):
                    place_nominated(session, statement, [task])
            if session.job_ready(job):
                statement.commit()
            elif session.job_pipelined(job):
                statement.keep()
            explain_attempt(session, job, Attempt(job))


def place_nominated(session: Session, statement: Statement, tasks: list[Task]) -> int:
    """Room was made for this task on a node: it goes there if it still can.

    While that room is still being left, any other that came free meanwhile is taken: nobody waits
    for a promise where there is a place.
    """
    task = tasks[0]
    node = session.cluster.nodes.get(task.nominated_node)
    if node is not None and session.finder.fits(task, node.index):
        statement.allocate(tasks, np.asarray([node.index]))
        return 1
    # One that strays would draw its gang after it, where that must be close together.
    if task.job is None or (task.job.topology is None and not task.job.policies):
        index = session.places(task, 1)
        if len(index):
            statement.allocate(tasks, index)
            return 1
    if node is not None and session.finder.fits(task, node.index, future=True):
        statement.pipeline(tasks, np.asarray([node.index]))
        return 1
    return 0


def _nominated(job: Job) -> list[Task]:
    return [
        task
        for task in job.by_status[PENDING].values()
        if task.nominated_node and not task.is_gated and not task.is_best_effort
    ]
