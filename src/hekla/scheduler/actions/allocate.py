"""Allocate: give jobs their nodes, gang by gang, queue by queue in fair order.

First every job gets its minimum or nothing; then what members jobs have beyond it share the room
that is left. Volcano serves an elastic job's surplus before a later job's minimum whenever its
priority is higher; here a minimum always comes first, so that a large elastic job cannot keep a
gang from starting.
"""

from __future__ import annotations

from collections.abc import Iterator

from hekla.api.wellknown import PodGroupPhase
from hekla.scheduler.actions.promises import keep_promises, place_nominated
from hekla.scheduler.actions.reservation import reserve
from hekla.scheduler.actions.turns import Turns
from hekla.scheduler.actions.verdicts import (
    Attempt,
    explain_attempt,
    explain_overused,
    hindrance,
)
from hekla.scheduler.classes import TaskClass
from hekla.scheduler.model import PENDING, Job, Queue, Task
from hekla.scheduler.session import Session
from hekla.scheduler.statement import Statement

# Jobs that compete for what is left take it in slices, so that their shares rise together.
# Volcano's slice is one task; with 64 turns per job the error stays below two per cent.
SURPLUS_TURNS = 64


def allocate(session: Session) -> None:
    jobs = [job for job in session.jobs if _takes_part(session, job)]
    keep_promises(session)
    jobs = [job for job in jobs if _waiting(job)]
    served = _serve_minimums(session, [job for job in jobs if not session.job_ready(job)])
    surplus = [job for job in jobs if job.key in served or session.job_ready(job)]
    _serve_surplus(session, [job for job in surplus if _waiting(job)])


def _takes_part(session: Session, job: Job) -> bool:
    if job.is_pending:
        if "enqueue" in session.config.actions or not job.has_group:
            return False
        session.set_phase(job, PodGroupPhase.INQUEUE)
    if not _waiting(job):
        return False
    found = hindrance(session, job)
    if found is not None:
        session.explain(found)
    return found is None


def _waiting(job: Job) -> list[Task]:
    """What this action places: BestEffort tasks are backfill's, gated ones nobody's."""
    return [
        task
        for task in job.by_status[PENDING].values()
        if not task.is_gated and not task.is_best_effort
    ]


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
    slices = {job.key: max(len(_waiting(job)) // SURPLUS_TURNS, 1) for job in jobs}
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
            attempt = _place(session, statement, job, queue, most=most)
            statement.commit()
        if attempt.is_exhausted or not _waiting(job):
            explain_attempt(session, job, attempt)
            turns.again(queue)
        else:
            turns.again(queue, job)


def _place(
    session: Session, statement: Statement, job: Job, queue: Queue, *, most: int | None = None
) -> Attempt:
    """Place tasks until the job is ready, or `most` of them; the statement holds what was done."""
    attempt = Attempt(job)
    is_surplus = session.job_ready(job)
    for run in _runs(session, job):
        if run[0].role and run[0].role in attempt.failed_roles:
            continue
        while run and (most is None or statement.placed < most):
            count = len(run)
            if not is_surplus:
                count = _until_ready(job, run)
            if most is not None:
                count = min(count, most - statement.placed)
            allowed = session.allowance(queue, run[0], count)
            if allowed == 0:
                attempt.refused_by_queue(run[0])
                break
            if job.min_member >= len(job.tasks) and not is_surplus:
                # Every member is needed: if there is no room for all, trying would be in vain.
                room = session.room(run[0], allowed)
                if room < allowed:
                    attempt.no_node_for(session, run[0], room=room, wanted=allowed)
                    break
            placed = _place_equal(session, statement, run[:allowed])
            run = run[placed:]
            if placed < allowed:
                attempt.no_node_for(session, run[0])
                break
            if not is_surplus and session.job_ready(job):
                return attempt
        if attempt.is_hopeless(is_surplus):
            break
    attempt.is_exhausted = most is None or statement.placed < most
    return attempt


def _place_equal(session: Session, statement: Statement, tasks: list[Task]) -> int:
    """Place as many of some equal tasks as fit, on what is free and then on what will be."""
    placed = 0
    if tasks[0].nominated_node and len(tasks) == 1:
        placed = place_nominated(session, statement, tasks)
    for future in (False, True):
        put = statement.pipeline if future else statement.allocate
        while placed < len(tasks):
            index = session.places(tasks[placed], len(tasks) - placed, future=future)
            if len(index) == 0:
                break
            put(tasks[placed : placed + len(index)], index)
            placed += len(index)
    return placed


def _until_ready(job: Job, run: list[Task]) -> int:
    """How many of these equal tasks one-by-one placing would place before the job is ready."""
    short = job.short_roles()
    role = run[0].role
    if [name for name in short if name != role]:
        return len(run)  # it cannot be ready before another role has come
    missing = job.min_task_member.get(role, 0) - job.role_ready(role) if short else 0
    return min(max(job.needs_until_ready, missing, 1), len(run))


def _runs(session: Session, job: Job) -> Iterator[list[Task]]:
    """The waiting tasks in order, cut into runs that can be placed together.

    Where every task is needed anyway, equal ones are brought together: which pods run does not
    depend on it, and two roles of thousands do not alternate one by one.
    """
    tasks = session.in_task_order(_waiting(job))
    if len(tasks) <= job.needs_until_ready:
        together: dict[tuple[TaskClass, str, int, str], list[Task]] = {}
        for task in tasks:
            key = (task.klass, task.role, id(task.group), task.nominated_node and task.uid)
            together.setdefault(key, []).append(task)
        yield from together.values()
        return
    run: list[Task] = []
    for task in tasks:
        if run and (
            task.nominated_node
            or run[-1].nominated_node
            or (task.klass, task.role, task.group) != (run[0].klass, run[0].role, run[0].group)
        ):
            yield run
            run = []
        run.append(task)
    if run:
        yield run
