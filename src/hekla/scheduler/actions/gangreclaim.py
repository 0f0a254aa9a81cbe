"""Gangreclaim: a queue that has less than it deserves takes room back in whole gangs.

As reclaim, but victims leave in bundles: what jobs can spare first, then jobs as a whole.
"""

from __future__ import annotations

from dataclasses import replace

from hekla.scheduler.actions.allocation.job_order import PendingJobs
from hekla.scheduler.actions.allocation.nominated import bind_nominated
from hekla.scheduler.actions.preempt import may_evict, preemptor_tasks
from hekla.scheduler.actions.preemption.gangs import GangPreemption
from hekla.scheduler.actions.reclaim import rule_of
from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.action_arguments import ALLOW_WHOLE_BUNDLE
from hekla.scheduler.session.session import Session


def gangreclaim(session: Session) -> None:
    bind_nominated(session)
    starving = [job for job in session.jobs if may_evict(session, job)]
    if not starving:
        return
    turns = PendingJobs(session, starving)
    rule = replace(
        rule_of(session), hook=hooks.unified_evictable, reason="gangreclaim", kind="reclaim"
    )
    allow_whole = session.config.argument("gangreclaim", ALLOW_WHOLE_BUNDLE)
    hunt = GangPreemption(session, rule, allow_whole=allow_whole)
    while (queue := turns.next_queue()) is not None:
        if session.overused(queue) is not None:
            continue
        job = turns.next_job(queue)
        if job is None:
            continue
        if session.job_starving(job) and all(
            session.preemptive(queue, task) for task in preemptor_tasks(session, job)[:1]
        ):
            hunt.preempt_for(job)
        turns.push_back(queue)
