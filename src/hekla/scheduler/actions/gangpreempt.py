"""Gangpreempt: within a queue, gangs leave as a whole for a gang of higher priority.

Where preempt asks single pods and may leave cripples behind, this asks for what jobs can spare
first, and then for whole jobs (`allowWholeBundle: false` stops before that).
"""

from __future__ import annotations

from hekla.scheduler.actionargs import ALLOW_WHOLE_BUNDLE
from hekla.scheduler.actions.ganghunt import GangHunt
from hekla.scheduler.actions.preempt import may_evict
from hekla.scheduler.actions.promises import keep_promises
from hekla.scheduler.actions.turns import Turns
from hekla.scheduler.actions.victims import Rule
from hekla.scheduler.model import Task
from hekla.scheduler.session import Session


def gangpreempt(session: Session) -> None:
    keep_promises(session)
    starving = [job for job in session.jobs if may_evict(session, job)]
    if not starving:
        return
    turns = Turns(session, starving)
    allow_whole = session.config.argument("gangpreempt", ALLOW_WHOLE_BUNDLE)
    hunt = GangHunt(session, RULE, allow_whole=allow_whole)
    while (queue := turns.next_queue()) is not None:
        job = turns.next_job(queue)
        if job is None:
            continue
        if session.job_starving(job):
            hunt.take_for(job)
        turns.again(queue)


def _is_lower_neighbour(task: Task, other: Task) -> bool:
    """A job of the same queue with a lower priority."""
    if task.job is None or other.job is None or other.job.queue_name != task.job.queue_name:
        return False
    return other.job.priority < task.job.priority


RULE = Rule("unified_evictable", "gangpreempt", _is_lower_neighbour, kind="preempt")
