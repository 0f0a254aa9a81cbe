"""overcommit: enqueue somewhat more than the cluster holds, so that it is always busy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np

from hekla.api.wellknown import PodGroupPhase
from hekla.scheduler.explain.limits import absence, absent
from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.answers import PERMIT, REJECT, Vote
from hekla.scheduler.framework.arguments import Key
from hekla.scheduler.framework.plan import Event
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.framework.verdict import Blocked, Gate, Verdict
from hekla.scheduler.state.dimensions import show_amount
from hekla.scheduler.state.model import Job

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session

DEFAULT_FACTOR = 1.2
RECLAIMING = ("reclaim", "gangreclaim")


class Overcommit(Plugin, name="overcommit"):
    """Enqueues PodGroups until their minimums reach the idle resources times a factor."""

    factor: Annotated[float, Key("overcommit-factor")] = DEFAULT_FACTOR

    def open(self, session: Session) -> None:
        self._session = session
        factor = self.factor if self.factor >= 1.0 else DEFAULT_FACTOR
        used_r = np.zeros_like(session.total_r)
        used = session.columns.used_rn.sum(axis=1)
        used_r[: len(used)] = used
        self._factor = factor
        self._total_r = session.total_r * factor
        self._idle_r = self._total_r - used_r
        self._inqueue_r = np.zeros_like(self._idle_r)
        for queue in session.cluster.queues.values():
            # An Inqueue job reserves the rest of its minimum. Volcano counts the whole minimum,
            # and so counts twice what the job already uses.
            self._inqueue_r += queue.inqueue_r

    def _basis(self, row: int) -> str:
        resource = self._session.dimensions.names[row]
        whole = show_amount(resource, float(self._session.total_r[row]))
        basis = f"the cluster's {whole}, times overcommit-factor {self._factor:g}"
        if self._inqueue_r[row] > 0:
            reserved = show_amount(resource, float(self._inqueue_r[row]))
            basis += f"; {reserved} of the used is reserved for enqueued jobs"
        return basis

    def _way_in(self, job: Job, short: Blocked) -> str:
        row = self._session.dimensions.intern(short.resource)
        real = float(self._session.total_r[row])
        if short.asked > real:
            most = show_amount(short.resource, real)
            return f"request at most {most} {short.resource}, all there is, or add nodes"
        queues = self._session.cluster.queues.values()
        lent = any(each is not job.queue and each.allocated_r[row] > 0 for each in queues)
        if job.queue is not None and lent and self._is_entitled(job):
            return (
                "wait for jobs to end, or add the action reclaim to the configuration, since queue "
                f"{job.queue.name!r} is entitled to this much of the cluster"
            )
        return "wait for jobs to end, or add nodes"

    def job_enqueueable(self, job: Job) -> Vote | None:
        wanted_r = job.min_resources_r
        if wanted_r is None:
            return PERMIT
        names = self._session.dimensions.names
        blocked = [
            Blocked(
                names[r],
                float(wanted_r[r]),
                float(self._total_r[r]),
                float(self._total_r[r] - self._idle_r[r] + self._inqueue_r[r]),
                self._basis(r),
            )
            for r in job.min_rows
            if wanted_r[r] > 0 and self._inqueue_r[r] + wanted_r[r] > self._idle_r[r]
        ]
        if not blocked or self._is_reclaimed_for(job):
            return PERMIT
        missing = absent(self._session, (each.resource for each in blocked))
        if missing:
            message, change = absence(self._session, missing)
        else:
            over = ", ".join(f"overused {b.resource}" for b in blocked)
            message = f"resource in cluster is overused: {over}"
            change = self._way_in(job, blocked[0])
        self._session.verdicts.explain(
            Verdict(
                job.key,
                Gate.NOT_ENQUEUED,
                message,
                blocked=tuple(b for b in blocked if b.resource not in missing),
                change=change,
                holders=self._session.verdicts.holders(
                    job, self._session.dimensions.intern(blocked[0].resource)
                ),
            )
        )
        if not any(c.message.startswith(message) for c in job.conditions):
            self._session.events.append(
                Event(
                    "PodGroup", job.namespace, job.name, job.uid, "Normal", "Unschedulable", message
                )
            )
        return REJECT

    def _is_reclaimed_for(self, job: Job) -> bool:
        """Tell whether reclaim would free resources for the job.

        Volcano keeps the job out of a full cluster, so reclaim never considers it.
        """
        reclaims = any(action in RECLAIMING for action in self._session.config.actions)
        return reclaims and self._is_entitled(job)

    def _is_entitled(self, job: Job) -> bool:
        return self._session.tiers.any_true(hooks.entitled, job) is not None

    def job_unplaceable(self, job: Job) -> None:
        self._inqueue_r -= job.inqueue_r

    def job_enqueued(self, job: Job) -> None:
        if job.min_resources_r is not None and job.phase != PodGroupPhase.INQUEUE:
            self._inqueue_r += job.without_gated(job.min_resources_r)
