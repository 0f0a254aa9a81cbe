"""Gangreclaim: a queue below its deserved share reclaims from whole gangs.

Like reclaim, but with victim sets: surplus members first, then whole jobs.
"""

from __future__ import annotations

from dataclasses import replace

from hekla.scheduler.actions.allocation.job_order import PendingJobs
from hekla.scheduler.actions.allocation.nominated import bind_nominated
from hekla.scheduler.actions.preemption.gangs import GangPreemption
from hekla.scheduler.actions.preemption.jobs import may_evict, preemptor_tasks
from hekla.scheduler.actions.reclaim import rule_of
from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.action_arguments import ALLOW_WHOLE_BUNDLE
from hekla.scheduler.session.session import Session


def gangreclaim(session: Session) -> None:
    """Reclaim whole gangs for all starving jobs."""
    bind_nominated(session)
    starving = [job for job in session.jobs if may_evict(session, job)]
    if not starving:
        return
    order = PendingJobs(session, starving)
    rule = replace(rule_of(session), hook=hooks.unified_evictable, reason="gangreclaim")
    allow_whole = session.config.argument("gangreclaim", ALLOW_WHOLE_BUNDLE)
    preemption = GangPreemption(session, rule, allow_whole=allow_whole)
    while (queue := order.next_queue()) is not None:
        if session.overused(queue) is not None:
            continue
        job = order.next_job(queue)
        if job is None:
            continue
        if session.job_starving(job) and all(
            session.preemptive(queue, task) for task in preemptor_tasks(session, job)[:1]
        ):
            preemption.preempt_for(job)
        order.push_back(queue)
