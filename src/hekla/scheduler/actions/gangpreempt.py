"""Gangpreempt: within a queue, whole gangs are evicted for a gang of higher priority.

Preempt evicts single pods and may leave victims below their minimum. This action evicts surplus
members first and then whole jobs (`allowWholeBundle: false` stops before that).
"""

from __future__ import annotations

from hekla.scheduler.actions.allocation.job_order import PendingJobs
from hekla.scheduler.actions.allocation.nominated import bind_nominated
from hekla.scheduler.actions.preemption.gangs import GangPreemption
from hekla.scheduler.actions.preemption.jobs import may_evict
from hekla.scheduler.actions.preemption.victims import EvictionRule
from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.action_arguments import ALLOW_WHOLE_BUNDLE
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.model import Task


def gangpreempt(session: Session) -> None:
    """Preempt whole gangs for all starving jobs."""
    bind_nominated(session)
    starving = [job for job in session.jobs if may_evict(session, job)]
    if not starving:
        return
    order = PendingJobs(session, starving)
    allow_whole = session.config.argument("gangpreempt", ALLOW_WHOLE_BUNDLE)
    preemption = GangPreemption(session, RULE, allow_whole=allow_whole)
    while (queue := order.next_queue()) is not None:
        job = order.next_job(queue)
        if job is None:
            continue
        if session.job_starving(job):
            preemption.preempt_for(job)
        order.push_back(queue)


def _is_lower_neighbour(task: Task, other: Task) -> bool:
    """A job of the same queue with a lower priority."""
    if task.job is None or other.job is None or other.job.queue_name != task.job.queue_name:
        return False
    return other.job.priority < task.job.priority


RULE = EvictionRule("preempt", hooks.unified_evictable, "gangpreempt", _is_lower_neighbour)
