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

from hekla.scheduler.actions.allocation.domains import has_hard_topology
from hekla.scheduler.actions.allocation.job_order import PendingJobs
from hekla.scheduler.actions.allocation.nominated import bind_nominated
from hekla.scheduler.actions.preemption.victims import (
    NEVER,
    EvictionRule,
    Preemption,
    VictimSearch,
    victims_would_retake,
)
from hekla.scheduler.explain.attempts import explain_pipelined, precheck
from hekla.scheduler.framework import hooks
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.model import PENDING, Job, Task


def preempt(session: Session) -> None:
    bind_nominated(session)
    starving = [job for job in session.jobs if may_evict(session, job)]
    starving = without_topology_gangs(session, starving, "gangpreempt")
    turns = PendingJobs(session, starving)
    others = VictimSearch(session, BETWEEN_JOBS)
    while (queue := turns.next_queue()) is not None:
        job = turns.next_job(queue)
        if job is None:
            continue
        if session.job_starving(job):
            preempt_for(others, job, preemptor_tasks(session, job))
        turns.push_back(queue)
    own = VictimSearch(session, WITHIN_A_JOB)
    for job in sorted(starving, key=session.job_key):
        if session.job_starving(job):
            _preempt_within_job(own, job)


def without_topology_gangs(session: Session, jobs: Iterable[Job], action: str) -> list[Job]:
    """As in Volcano, gangs that must be close together take room by another action alone."""
    out = []
    for job in jobs:
        if not has_hard_topology(session, job):
            out.append(job)
        elif action not in session.config.actions:
            session.verdicts.add_note(
                job, f"nobody leaves for a gang that must be close; add action {action}"
            )
    return out


def may_evict(session: Session, job: Job) -> bool:
    """Whether a job starves and could do with room that others have."""
    return (
        not job.is_pending
        and bool(job.by_status[PENDING])
        and session.job_starving(job)
        and precheck(session, job) is None
    )


def preemptor_tasks(session: Session, job: Job) -> list[Task]:
    """Tasks that may ask others to leave; those that request nothing never need to."""
    return session.in_task_order(
        task
        for task in job.by_status[PENDING].values()
        if not task.is_gated and not task.is_best_effort and task.preemption_policy != NEVER
    )


def preempt_for(search: VictimSearch, job: Job, tasks: list[Task]) -> None:
    """All that a job needs, or nothing."""
    session, rule = search.session, search.rule
    if not tasks:
        return
    if search.failed.known(tasks[0]):
        session.verdicts.explain_protected(job)
        return
    kept = session.reservations.release(job)
    with session.statement() as statement:
        hunt = Preemption(search, statement, job)
        for task in tasks:
            if not session.job_starving(job):
                break
            if rule.is_eligible is None or rule.is_eligible(task):
                hunt.nominate(task)
        placed, victims = statement.pipelined, statement.evicted
        is_whole = bool(placed) and session.job_pipelined(job)
        if is_whole and not victims_would_retake(session, rule, placed, victims):
            statement.commit()
            explain_pipelined(session, job)
            return
    hunt.discard()
    session.reservations.add(kept)
    session.verdicts.explain_protected(job)
    search.failed.add(tasks[0])


def _preempt_within_job(search: VictimSearch, job: Job) -> None:
    session = search.session
    for task in preemptor_tasks(session, job):
        with session.statement() as statement:
            hunt = Preemption(search, statement, job)
            if not hunt.nominate(task) or not statement.evicted:
                return  # what fits without a victim, allocate has refused for a better reason
            statement.commit()
            explain_pipelined(session, job)


def _is_neighbour(task: Task, other: Task) -> bool:
    """Another job of the same queue."""
    if task.job is None or other.job is None or other.job is task.job:
        return False
    return other.job.queue_name == task.job.queue_name


def _is_sibling(task: Task, other: Task) -> bool:
    return other.job is task.job


BETWEEN_JOBS = EvictionRule(hooks.preemptable, "preempt", _is_neighbour)
WITHIN_A_JOB = EvictionRule(hooks.preemptable, "preempt", _is_sibling)
