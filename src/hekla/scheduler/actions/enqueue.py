"""Enqueue: let PodGroups in, from Pending to Inqueue, as far as queues and cluster have room.

Only groups that are let in get pods (the job controller waits for it), so this is what keeps a
cluster from filling with pods that cannot run. A group without `minResources` is always let in; a
refused one does not stand in the way of others.
"""

from __future__ import annotations

from hekla.api.wellknown import PodGroupPhase
from hekla.scheduler.actions.allocation.job_order import PendingJobs
from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.verdict import Gate, Verdict
from hekla.scheduler.session.session import Session


def enqueue(session: Session) -> None:
    turns = PendingJobs(session, [job for job in session.jobs if job.has_group and job.is_pending])
    while (queue := turns.next_queue()) is not None:
        job = turns.next_job(queue)
        if job is None:
            continue
        if job.min_resources_r is None or session.job_enqueueable(job):
            session.tiers.notify(hooks.job_enqueued, job)
            session.set_phase(job, PodGroupPhase.INQUEUE)
            session.plan.verdicts.pop(job.key, None)
        elif job.key not in session.plan.verdicts:
            session.verdicts.explain(
                Verdict(job.key, Gate.NOT_ENQUEUED, "a plugin refused to let the job in")
            )
        turns.push_back(queue)
