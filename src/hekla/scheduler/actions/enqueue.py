"""Enqueue: move PodGroups from Pending to Inqueue, as far as queues and cluster have capacity.

Only groups that are Inqueue get pods (the job controller waits for it), so this keeps a cluster
from filling with pods that cannot run. A group without `minResources` is always enqueued. A group
that is refused does not block the groups after it. Neither does a group that is Inqueue and could
not be placed on empty nodes (sums admitted it, its shape never fits), nor one whose bindings fail.
"""

from __future__ import annotations

from hekla.api.wellknown import PodGroupPhase
from hekla.scheduler.actions.allocation.job_order import PendingJobs
from hekla.scheduler.actions.allocation.reservation import is_unplaceable
from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.verdict import Gate, Verdict
from hekla.scheduler.session.session import Session


def enqueue(session: Session) -> None:
    """Enqueue pending PodGroups in order."""
    pending = [job for job in session.jobs if job.has_group and job.is_pending]
    for other in session.jobs if pending else ():
        if other.phase == PodGroupPhase.INQUEUE and (
            other.key in session.skipped or is_unplaceable(session, other)
        ):
            session.tiers.notify(hooks.job_unplaceable, other)
    order = PendingJobs(session, pending)
    while (queue := order.next_queue()) is not None:
        job = order.next_job(queue)
        if job is None:
            continue
        if job.min_resources_r is None or session.job_enqueueable(job):
            session.tiers.notify(hooks.job_enqueued, job)
            session.set_phase(job, PodGroupPhase.INQUEUE)
            session.plan.verdicts.pop(job.key, None)
        elif job.key not in session.plan.verdicts:
            session.verdicts.explain(
                Verdict(job.key, Gate.NOT_ENQUEUED, "a plugin refused to enqueue the job")
            )
        order.push_back(queue)
