"""Allocate: place jobs on nodes, gang by gang, queue by queue in fair order.

First every job gets its minimum or nothing. Then members beyond the minimum share what is left.
Volcano places an elastic job's surplus before a later job's minimum whenever its priority is
higher. Here a minimum always comes first, so that a large elastic job cannot keep a gang from
starting.
"""

from __future__ import annotations

from hekla.api.wellknown import PodGroupPhase
from hekla.scheduler.actions.allocation.domains import needs_domain, place_in_domains
from hekla.scheduler.actions.allocation.job_order import PendingJobs
from hekla.scheduler.actions.allocation.nominated import bind_nominated
from hekla.scheduler.actions.allocation.pending import pending_tasks
from hekla.scheduler.actions.allocation.reservation import reserve
from hekla.scheduler.actions.allocation.tasks import place
from hekla.scheduler.explain.attempts import (
    Attempt,
    explain_attempt,
    explain_overused,
    precheck,
)
from hekla.scheduler.session.session import Session
from hekla.scheduler.session.statement import Statement
from hekla.scheduler.state.model import Job, Queue

# Jobs that compete for surplus take it in slices, so that their shares rise together. Volcano's
# slice is one task; with 64 slices per job the error stays below two per cent.
SURPLUS_SLICES = 64


def allocate(session: Session) -> None:
    """Place the pending tasks of all jobs that are Inqueue."""
    jobs = [job for job in session.jobs if _is_schedulable(session, job)]
    bind_nominated(session)
    jobs = [job for job in jobs if pending_tasks(job)]
    served = _place_minimums(session, [job for job in jobs if not session.job_ready(job)])
    surplus = [job for job in jobs if job.key in served or session.job_ready(job)]
    _place_surplus(session, [job for job in surplus if pending_tasks(job)])


def _is_schedulable(session: Session, job: Job) -> bool:
    if job.is_pending:
        if "enqueue" in session.config.actions or not job.has_group:
            return False
        session.set_phase(job, PodGroupPhase.INQUEUE)
    if not pending_tasks(job):
        return False
    found = precheck(session, job)
    if found is not None:
        session.verdicts.explain(found)
    return found is None


def _place_minimums(session: Session, jobs: list[Job]) -> set[str]:
    """Place the minimum of each job, or nothing; return the keys of the jobs that got it."""
    served: set[str] = set()
    order = PendingJobs(session, jobs)
    while (queue := order.next_queue()) is not None:
        if (plugin := session.overused(queue)) is not None:
            for other in order.drain(queue):
                explain_overused(session, other, plugin.name)
            continue
        job = order.next_job(queue)
        if job is None:
            continue
        with session.statement() as statement:
            attempt = _place(session, statement, job, queue)
            if session.job_ready(job):
                statement.commit()
                served.add(job.key)
            elif session.job_pipelined(job):
                statement.keep()
            explain_attempt(session, job, attempt)
        if job.key not in served and not session.job_pipelined(job):
            reserve(session, job, queue)
        order.push_back(queue)
    return served


def _place_surplus(session: Session, jobs: list[Job]) -> None:
    """Place members beyond the minimum, one slice at a time."""
    order = PendingJobs(session, jobs)
    slices = {job.key: max(len(pending_tasks(job)) // SURPLUS_SLICES, 1) for job in jobs}
    while (queue := order.next_queue()) is not None:
        if (plugin := session.overused(queue)) is not None:
            for other in order.drain(queue):
                explain_overused(session, other, plugin.name)
            continue
        job = order.next_job(queue)
        if job is None:
            continue
        is_alone = not order.pending_jobs(queue) and not order.pending_queues
        with session.statement() as statement:
            most = None if is_alone else slices[job.key]
            attempt = _place(session, statement, job, queue, most)
            statement.commit()
        if attempt.is_exhausted or not pending_tasks(job):
            explain_attempt(session, job, attempt)
            order.push_back(queue)
        else:
            order.push_back(queue, job)


def _place(
    session: Session, statement: Statement, job: Job, queue: Queue, most: int | None = None
) -> Attempt:
    if needs_domain(session, job):
        return place_in_domains(session, statement, job, queue, most)
    return place(session, statement, job, queue, most)
