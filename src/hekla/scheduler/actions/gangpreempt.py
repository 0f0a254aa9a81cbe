"""Gangpreempt: within a queue, gangs leave as a whole for a gang of higher priority.

Where preempt asks single pods and may leave cripples behind, this asks for what jobs can spare
first, and then for whole jobs (`allowWholeBundle: false` stops before that).
"""

from __future__ import annotations

from hekla.scheduler.actions.allocation.job_order import PendingJobs
from hekla.scheduler.actions.allocation.nominated import bind_nominated
from hekla.scheduler.actions.preempt import may_evict
from hekla.scheduler.actions.preemption.gangs import GangPreemption
from hekla.scheduler.actions.preemption.victims import EvictionRule
from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.action_arguments import ALLOW_WHOLE_BUNDLE
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.model import Task


def gangpreempt(session: Session) -> None:
    bind_nominated(session)
    starving = [job for job in session.jobs if may_evict(session, job)]
    if not starving:
        return
    turns = PendingJobs(session, starving)
    allow_whole = session.config.argument("gangpreempt", ALLOW_WHOLE_BUNDLE)
    hunt = GangPreemption(session, RULE, allow_whole=allow_whole)
    while (queue := turns.next_queue()) is not None:
        job = turns.next_job(queue)
        if job is None:
            continue
        if session.job_starving(job):
            hunt.preempt_for(job)
        turns.push_back(queue)


def _is_lower_neighbour(task: Task, other: Task) -> bool:
    """A job of the same queue with a lower priority."""
    if task.job is None or other.job is None or other.job.queue_name != task.job.queue_name:
        return False
    return other.job.priority < task.job.priority


RULE = EvictionRule(hooks.unified_evictable, "gangpreempt", _is_lower_neighbour, kind="preempt")
