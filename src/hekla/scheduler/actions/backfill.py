"""Backfill: tasks that request nothing go wherever a node will have them.

They take no room, so only filters are asked, not resources and not the queue's share (as in
Volcano). A gang that is not ready keeps its BestEffort members waiting too.
"""

from __future__ import annotations

from hekla.scheduler.actions.allocation.job_order import PendingJobs
from hekla.scheduler.explain.attempts import Attempt, explain_attempt, precheck
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.model import PENDING, Job, Task


def backfill(session: Session) -> None:
    jobs = [
        job
        for job in session.jobs
        if not job.is_pending and _best_effort(job) and precheck(session, job) is None
    ]
    turns = PendingJobs(session, jobs)
    while (queue := turns.next_queue()) is not None:
        job = turns.next_job(queue)
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
        turns.push_back(queue)


def _best_effort(job: Job) -> list[Task]:
    if not job.pending_best_effort:
        return []
    return [
        task
        for task in job.by_status[PENDING].values()
        if task.is_best_effort and not task.is_gated
    ]
