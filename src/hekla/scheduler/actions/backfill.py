"""Backfill: place BestEffort tasks on any feasible node.

They request no resources, so only filters apply, not the queue's share (as in Volcano). A gang that
is not ready keeps its BestEffort members pending too.
"""

from __future__ import annotations

from hekla.scheduler.actions.allocation.job_order import PendingJobs
from hekla.scheduler.explain.attempts import Attempt, explain_attempt, precheck
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.model import Job, Task
from hekla.scheduler.state.status import PENDING


def backfill(session: Session) -> None:
    """Place the pending BestEffort tasks of all jobs."""
    jobs = [
        job
        for job in session.jobs
        if not job.is_pending and _best_effort(job) and precheck(session, job) is None
    ]
    order = PendingJobs(session, jobs)
    while (queue := order.next_queue()) is not None:
        job = order.next_job(queue)
        if job is None:
            continue
        with session.statement() as statement:
            attempt = Attempt(job)
            for task in session.in_task_order(_best_effort(job)):
                index = session.placer.best_nodes(task, 1, ignore_resources=True)
                if len(index):
                    statement.allocate((task,), index)
                else:
                    attempt.no_node_for(session, task)
            if session.job_ready(job):
                statement.commit()
            if attempt.unplaced is not None:
                explain_attempt(session, job, attempt)
        order.push_back(queue)


def _best_effort(job: Job) -> list[Task]:
    if not job.pending_best_effort:
        return []
    return [
        task
        for task in job.by_status[PENDING].values()
        if task.is_best_effort and not task.is_gated
    ]
