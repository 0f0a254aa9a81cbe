"""Allocate: give jobs their nodes, gang by gang, queue by queue in fair order.

First every job gets its minimum or nothing; then what members jobs have beyond it share the room
that is left. Volcano serves an elastic job's surplus before a later job's minimum whenever its
priority is higher; here a minimum always comes first, so that a large elastic job cannot keep a
gang from starting.
"""

from __future__ import annotations

from hekla.api.wellknown import PodGroupPhase
from hekla.scheduler.actions.domains import is_together, place_in_domains
from hekla.scheduler.actions.equals import waiting
from hekla.scheduler.actions.placing import place
from hekla.scheduler.actions.promises import keep_promises
from hekla.scheduler.actions.reservation import reserve
from hekla.scheduler.actions.turns import Turns
from hekla.scheduler.actions.verdicts import (
    Attempt,
    explain_attempt,
    explain_overused,
    hindrance,
)
from hekla.scheduler.model import Job, Queue
from hekla.scheduler.session import Session
from hekla.scheduler.statement import Statement

# Jobs that compete for what is left take it in slices, so that their shares rise together.
# Volcano's slice is one task; with 64 turns per job the error stays below two per cent.
SURPLUS_TURNS = 64


def allocate(session: Session) -> None:
    jobs = [job for job in session.jobs if _takes_part(session, job)]
    keep_promises(session)
    jobs = [job for job in jobs if waiting(job)]
    served = _serve_minimums(session, [job for job in jobs if not session.job_ready(job)])
    surplus = [job for job in jobs if job.key in served or session.job_ready(job)]
    _serve_surplus(session, [job for job in surplus if waiting(job)])


def _takes_part(session: Session, job: Job) -> bool:
    if job.is_pending:
        if "enqueue" in session.config.actions or not job.has_group:
            return False
        session.set_phase(job, PodGroupPhase.INQUEUE)
    if not waiting(job):
        return False
    found = hindrance(session, job)
    if found is not None:
        session.explain(found)
    return found is None


def _serve_minimums(session: Session, jobs: list[Job]) -> set[str]:
    """Each job its minimum, or nothing; the keys of those that got it."""
    served: set[str] = set()
    turns = Turns(session, jobs)
    while (queue := turns.next_queue()) is not None:
        if (plugin := session.overused(queue)) is not None:
            for other in turns.rest(queue):
                explain_overused(session, other, plugin.name)
            continue
        job = turns.next_job(queue)
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
        turns.again(queue)
    return served


def _serve_surplus(session: Session, jobs: list[Job]) -> None:
    """Members beyond the minimum, a slice per turn."""
    turns = Turns(session, jobs)
    slices = {job.key: max(len(waiting(job)) // SURPLUS_TURNS, 1) for job in jobs}
    while (queue := turns.next_queue()) is not None:
        if (plugin := session.overused(queue)) is not None:
            for other in turns.rest(queue):
                explain_overused(session, other, plugin.name)
            continue
        job = turns.next_job(queue)
        if job is None:
            continue
        is_alone = not turns.waiting(queue) and not turns.queues_waiting
        with session.statement() as statement:
            most = None if is_alone else slices[job.key]
            attempt = _place(session, statement, job, queue, most)
            statement.commit()
        if attempt.is_exhausted or not waiting(job):
            explain_attempt(session, job, attempt)
            turns.again(queue)
        else:
            turns.again(queue, job)


def _place(
    session: Session, statement: Statement, job: Job, queue: Queue, most: int | None = None
) -> Attempt:
    if is_together(session, job):
        return place_in_domains(session, statement, job, queue, most)
    return place(session, statement, job, queue, most)
