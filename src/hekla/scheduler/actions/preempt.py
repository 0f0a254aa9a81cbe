"""Preempt: within a queue, a job that starves takes room from those that the plugins rank below it.

First job from job: what a starving job needs is planned as a whole, evictions and placements in one
statement, and only a plan that places the job is carried out. Then task from task inside a job:
members that matter more take the place of those that matter less.

The preemptor is promised the room and told so (nominated node); it is bound when the victims have
left. Unlike Volcano, which takes the best scored node that can be cleared, the node is taken that
costs the fewest victims.
"""

from __future__ import annotations

from collections.abc import Iterable

from hekla.scheduler.actions.domains import is_bound
from hekla.scheduler.actions.promises import keep_promises
from hekla.scheduler.actions.turns import Turns
from hekla.scheduler.actions.verdicts import explain_promised, hindrance
from hekla.scheduler.actions.victims import NEVER, Hunt, Rule, Search, comes_back
from hekla.scheduler.model import PENDING, Job, Task
from hekla.scheduler.session import Session


def preempt(session: Session) -> None:
    keep_promises(session)
    starving = [job for job in session.jobs if may_evict(session, job)]
    starving = without_close_gangs(session, starving, "gangpreempt")
    turns = Turns(session, starving)
    others = Search(session, BETWEEN_JOBS)
    while (queue := turns.next_queue()) is not None:
        job = turns.next_job(queue)
        if job is None:
            continue
        if session.job_starving(job):
            take_from(others, job, waiting(session, job))
        turns.again(queue)
    own = Search(session, WITHIN_A_JOB)
    for job in sorted(starving, key=session.job_key):
        if session.job_starving(job):
            _take_from_own(own, job)


def without_close_gangs(session: Session, jobs: Iterable[Job], action: str) -> list[Job]:
    """As in Volcano, gangs that must be close together take room by another action alone."""
    out = []
    for job in jobs:
        if not is_bound(session, job):
            out.append(job)
        elif action not in session.config.actions:
            session.note(job, f"nobody leaves for a gang that must be close; add action {action}")
    return out


def may_evict(session: Session, job: Job) -> bool:
    """Whether a job starves and could do with room that others have."""
    return (
        not job.is_pending
        and bool(job.by_status[PENDING])
        and session.job_starving(job)
        and hindrance(session, job) is None
    )


def waiting(session: Session, job: Job) -> list[Task]:
    """Tasks that may ask others to leave; those that request nothing never need to."""
    return session.in_task_order(
        task
        for task in job.by_status[PENDING].values()
        if not task.is_gated and not task.is_best_effort and task.preemption_policy != NEVER
    )


def take_from(search: Search, job: Job, tasks: list[Task]) -> None:
    """All that a job needs, or nothing."""
    session, rule = search.session, search.rule
    if not tasks:
        return
    if search.in_vain.known(tasks[0]):
        session.note_spared(job)
        return
    kept = session.lift(job)
    with session.statement() as statement:
        hunt = Hunt(search, statement, job)
        for task in tasks:
            if not session.job_starving(job):
                break
            if rule.may_try is None or rule.may_try(task):
                hunt.make_room(task)
        placed, victims = statement.promised, statement.evicted
        is_whole = bool(placed) and session.job_pipelined(job)
        if is_whole and not comes_back(session, rule, placed, victims):
            statement.commit()
            explain_promised(session, job)
            return
    hunt.give_up()
    session.hold(kept)
    session.note_spared(job)
    search.in_vain.add(tasks[0])


def _take_from_own(search: Search, job: Job) -> None:
    session = search.session
    for task in waiting(session, job):
        with session.statement() as statement:
            hunt = Hunt(search, statement, job)
            if not hunt.make_room(task) or not statement.evicted:
                return  # what fits without a victim, allocate has refused for a better reason
            statement.commit()
            explain_promised(session, job)


def _is_neighbour(task: Task, other: Task) -> bool:
    """Another job of the same queue."""
    if task.job is None or other.job is None or other.job is task.job:
        return False
    return other.job.queue_name == task.job.queue_name


def _is_sibling(task: Task, other: Task) -> bool:
    return other.job is task.job


BETWEEN_JOBS = Rule("preemptable", "preempt", _is_neighbour)
WITHIN_A_JOB = Rule("preemptable", "preempt", _is_sibling)
