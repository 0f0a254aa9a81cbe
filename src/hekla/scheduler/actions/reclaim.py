"""Reclaim: a queue below its deserved share evicts tasks of queues above theirs.

The queue plugin (`proportion` or `capacity`) decides: `preemptive` for the reclaiming queue,
`reclaimable` for the victims. Whatever plugins answer, no queue falls below its guarantee. As in
preempt, the evictions and placements of a job are one plan. Volcano visits nodes in any order and
checks resources only; here the node with the lowest eviction cost is used and all filters apply.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
from hekla.scheduler.actions.preemption.victims import EvictionRule, VictimSearch
from hekla.scheduler.framework import hooks
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.dimensions import EPSILON, FloatArray
from hekla.scheduler.state.model import Task
from hekla.scheduler.state.status import RUNNING


def reclaim(session: Session) -> None:
    """Reclaim for all starving jobs."""
    bind_nominated(session)
    starving = [job for job in session.jobs if may_evict(session, job)]
    order = PendingJobs(session, without_gangs_of(session, starving, "gangreclaim"))
    search = VictimSearch(session, rule_of(session))
    gangs = GangPreemption(session, search.rule, allow_whole=True)
    while (queue := order.next_queue()) is not None:
        if session.overused(queue) is not None:
            continue
        job = order.next_job(queue)
        if job is None:
            continue
        tasks = preemptor_tasks(session, job)
        if session.job_starving(job) and not has_hard_topology(session, job):
            preempt_for(search, job, tasks)
        elif session.job_starving(job) and all(map(search.rule.may_evict, tasks[:1])):
            gangs.preempt_for(job)
        order.push_back(queue)


def rule_of(session: Session) -> EvictionRule:
    """Return the rule of reclaim."""
    return EvictionRule(
        "reclaim",
        hooks.reclaimable,
        "reclaim",
        _is_from_reclaimable_queue,
        may_lose=above_guarantee,
        is_eligible=lambda task: _is_eligible(session, task),
        statuses=(RUNNING,),
    )


def _is_from_reclaimable_queue(task: Task, other: Task) -> bool:
    if task.job is None or other.job is None or other.job.queue is None:
        return False
    return other.job.queue is not task.job.queue and other.job.queue.is_reclaimable


def _is_eligible(session: Session, task: Task) -> bool:
    queue = task.job.queue if task.job is not None else None
    return queue is not None and session.overused(queue) is None and session.preemptive(queue, task)


def above_guarantee(candidates: Sequence[Task]) -> Iterator[bool]:
    """Tell which candidates leave their queue its guarantee, evicted in this order."""
    left: dict[str, FloatArray] = {}
    for task in candidates:
        queue = task.job.queue if task.job is not None else None
        if queue is None or not queue.has_guarantee:
            yield True
            continue
        have_r = left.setdefault(queue.name, queue.allocated_r.copy())
        is_above = all(
            queue.guarantee_r[row] <= 0 or have_r[row] - amount >= queue.guarantee_r[row] - EPSILON
            for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True)
        )
        if is_above:
            have_r -= task.klass.request_r
        yield is_above
