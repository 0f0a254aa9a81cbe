"""Preempt: within a queue, a starving job evicts tasks of jobs that the plugins rank below it.

First between jobs: the evictions and placements of a starving job are one statement, and only a
plan that makes the job ready is committed. Then within a job: tasks of higher rank replace tasks of
lower rank.

A gang with a hard network topology needs room in one domain, and is tried domain by domain with
the victims that plugins allow. Volcano's preempt leaves such gangs out.

The preemptor is nominated for its node and bound once the victims have terminated. Volcano takes
the node with the best score that can be cleared; here it is the node with the lowest eviction cost.
"""

from __future__ import annotations

from hekla.scheduler.actions.allocation.domains import has_hard_topology
from hekla.scheduler.actions.allocation.job_order import PendingJobs
from hekla.scheduler.actions.allocation.nominated import bind_nominated
from hekla.scheduler.actions.preemption.gangs import GangPreemption
from hekla.scheduler.actions.preemption.jobs import (
    may_evict,
    preempt_for,
    preemptor_tasks,
    without_gangs_of,
)
from hekla.scheduler.actions.preemption.victims import (
    EvictionRule,
    Preemption,
    VictimSearch,
)
from hekla.scheduler.explain.attempts import explain_pipelined
from hekla.scheduler.framework import hooks
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.model import Job, Task


def preempt(session: Session) -> None:
    """Preempt for all starving jobs."""
    bind_nominated(session)
    starving = [job for job in session.jobs if may_evict(session, job)]
    order = PendingJobs(session, without_gangs_of(session, starving, "gangpreempt"))
    others = VictimSearch(session, BETWEEN_JOBS)
    gangs = GangPreemption(session, BETWEEN_JOBS, allow_whole=True)
    while (queue := order.next_queue()) is not None:
        job = order.next_job(queue)
        if job is None:
            continue
        if session.job_starving(job):
            if has_hard_topology(session, job):
                gangs.preempt_for(job)
            else:
                preempt_for(others, job, preemptor_tasks(session, job))
        order.push_back(queue)
    own = VictimSearch(session, WITHIN_A_JOB)
    for job in sorted(starving, key=session.job_key):
        if session.job_starving(job) and not has_hard_topology(session, job):
            _preempt_within_job(own, job)


def _preempt_within_job(search: VictimSearch, job: Job) -> None:
    session = search.session
    for task in preemptor_tasks(session, job):
        with session.statement() as statement:
            preemption = Preemption(search, statement, job)
            if preemption.nominate(task) is None or not statement.evicted:
                return  # allocate has refused what fits without a victim
            statement.commit()
            explain_pipelined(session, job)


def _is_in_same_queue(task: Task, other: Task) -> bool:
    """Tell whether the other task is of another job in the same queue."""
    if task.job is None or other.job is None or other.job is task.job:
        return False
    return other.job.queue_name == task.job.queue_name


def _is_in_same_job(task: Task, other: Task) -> bool:
    return other.job is task.job


BETWEEN_JOBS = EvictionRule("preempt", hooks.preemptable, "preempt", _is_in_same_queue)
WITHIN_A_JOB = EvictionRule("preempt", hooks.preemptable, "preempt", _is_in_same_job)
