"""Preemption for one job: which jobs may preempt, with which tasks, and the attempt itself."""

from __future__ import annotations

from typing import Final

from hekla.scheduler.actions.allocation.domains import has_hard_topology
from hekla.scheduler.actions.preemption.victims import (
    NEVER,
    Preemption,
    VictimSearch,
    victims_would_retake,
)
from hekla.scheduler.explain.attempts import explain_pipelined, precheck
from hekla.scheduler.explain.limits import beyond_deserved
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.model import Job, Task
from hekla.scheduler.state.status import PENDING

MAX_FIRST_NODES: Final = 8
"""How many nodes are tried for the first task of a gang that must stay together."""


def without_gangs_of(session: Session, jobs: list[Job], action: str) -> list[Job]:
    """Leave gangs with a hard topology to the action for whole gangs, if it is configured."""
    if action not in session.config.actions:
        return jobs
    return [job for job in jobs if not has_hard_topology(session, job)]


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
    if search.failed.includes(tasks):
        explain_no_victims(search, job)
        return
    kept = session.reservations.release(job)
    tried: set[int] = set()
    while len(tried) < MAX_FIRST_NODES:
        with session.statement() as statement:
            preemption = Preemption(search, statement, job)
            first = _nominate(preemption, tasks, tried)
            placed, victims = statement.pipelined, statement.evicted
            # What fits without a victim is left to allocate, which may run after this action.
            is_whole = bool(victims) and session.job_pipelined(job)
            if is_whole and not victims_would_retake(session, rule, placed, victims):
                statement.commit()
                explain_pipelined(session, job)
                return
        preemption.discard()
        if first is None or not tasks[0].klass.affinity.pod_affinity:
            break
        tried.add(first)  # the others must be beside the first one: it may have better places
    session.reservations.add(kept)
    explain_no_victims(search, job)
    search.failed.add(tasks)


def _nominate(preemption: Preemption, tasks: list[Task], tried: set[int]) -> int | None:
    """Nominate tasks until their job is not starving; return the node of the first one.

    The first one is not placed on a node that was tried.
    """
    session, rule = preemption.session, preemption.rule
    first: int | None = None
    for task in tasks:
        assert task.job is not None
        if not session.job_starving(task.job):
            break
        if rule.may_evict(task):
            index = preemption.nominate(task, without=tried if first is None else ())
            first = index if first is None else first
    return first


def explain_no_victims(search: VictimSearch, job: Job) -> None:
    """Add to a job's verdict that a search for victims failed, and what protects them."""
    if search.has_targets(job):
        text = f"{search.rule.reason} was tried: no victims that may be evicted free enough for it"
        if search.rule.kind == "reclaim" and (beyond := beyond_deserved(search.session, job)):
            text = f"{search.rule.reason} was tried and evicts nothing for it: {beyond}"
        search.session.verdicts.add_note(job, text)
    search.session.verdicts.explain_protected(job)
