"""Preemption for one job: which jobs may preempt, with which tasks, and the attempt itself."""

from __future__ import annotations

from collections.abc import Iterable

from hekla.scheduler.actions.allocation.domains import has_hard_topology
from hekla.scheduler.actions.preemption.victims import (
    NEVER,
    Preemption,
    VictimSearch,
    victims_would_retake,
)
from hekla.scheduler.explain.attempts import explain_pipelined, precheck
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.model import Job, Task
from hekla.scheduler.state.status import PENDING


def without_topology_gangs(session: Session, jobs: Iterable[Job], action: str) -> list[Job]:
    """Leave out gangs with a hard topology: as in Volcano, another action preempts for them."""
    out = []
    for job in jobs:
        if not has_hard_topology(session, job):
            out.append(job)
        elif action not in session.config.actions:
            session.verdicts.add_note(
                job, f"a gang with a hard topology preempts only with action {action}; add it"
            )
    return out


def may_evict(session: Session, job: Job) -> bool:
    """Tell whether a job is starving and could be placed."""
    return (
        not job.is_pending
        and bool(job.by_status[PENDING])
        and session.job_starving(job)
        and precheck(session, job) is None
    )


def preemptor_tasks(session: Session, job: Job) -> list[Task]:
    """Return the pending tasks that may preempt, in order; BestEffort tasks never need to."""
    return session.in_task_order(
        task
        for task in job.by_status[PENDING].values()
        if not task.is_gated and not task.is_best_effort and task.preemption_policy != NEVER
    )


def preempt_for(search: VictimSearch, job: Job, tasks: list[Task]) -> None:
    """Preempt for all tasks that make a job ready, or for none."""
    session, rule = search.session, search.rule
    if not tasks:
        return
    if search.failed.includes(tasks[0]):
        session.verdicts.explain_protected(job)
        return
    kept = session.reservations.release(job)
    with session.statement() as statement:
        preemption = Preemption(search, statement, job)
        for task in tasks:
            if not session.job_starving(job):
                break
            if rule.is_eligible is None or rule.is_eligible(task):
                preemption.nominate(task)
        placed, victims = statement.pipelined, statement.evicted
        is_whole = bool(placed) and session.job_pipelined(job)
        if is_whole and not victims_would_retake(session, rule, placed, victims):
            statement.commit()
            explain_pipelined(session, job)
            return
    preemption.discard()
    session.reservations.add(kept)
    session.verdicts.explain_protected(job)
    search.failed.add(tasks[0])
