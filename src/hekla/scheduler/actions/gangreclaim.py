"""Gangreclaim: a queue that has less than it deserves takes room back in whole gangs.

As reclaim, but victims leave in bundles: what jobs can spare first, then jobs as a whole.
"""

from __future__ import annotations

from dataclasses import replace

from hekla.scheduler.actionargs import ALLOW_WHOLE_BUNDLE
from hekla.scheduler.actions.ganghunt import GangHunt
from hekla.scheduler.actions.preempt import may_evict, waiting
from hekla.scheduler.actions.promises import keep_promises
from hekla.scheduler.actions.reclaim import rule_of
from hekla.scheduler.actions.turns import Turns
from hekla.scheduler.session import Session


def gangreclaim(session: Session) -> None:
    keep_promises(session)
    starving = [job for job in session.jobs if may_evict(session, job)]
    if not starving:
        return
    turns = Turns(session, starving)
    rule = replace(rule_of(session), hook="unified_evictable", reason="gangreclaim", kind="reclaim")
    allow_whole = session.config.argument("gangreclaim", ALLOW_WHOLE_BUNDLE)
    hunt = GangHunt(session, rule, allow_whole=allow_whole)
    while (queue := turns.next_queue()) is not None:
        if session.overused(queue) is not None:
            continue
        job = turns.next_job(queue)
        if job is None:
            continue
        if session.job_starving(job) and all(
            session.preemptive(queue, task) for task in waiting(session, job)[:1]
        ):
            hunt.take_for(job)
        turns.again(queue)
