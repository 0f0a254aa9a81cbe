"""Delete finished jobs after `ttlSecondsAfterFinished`.

The time counts from the transition to the final phase, which is stored in the job; a restart of the
controller does not change it.
"""

from __future__ import annotations

from hekla.api.wellknown import JobPhase
from hekla.controllers.informers import InformerFactory
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import Key, is_deleting, job_phase, seconds, status_of, uid_of
from hekla.controllers.reconciler import Reconciler
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import JOBS
from hekla.units.objects import Object


def seconds_left(job: Object, now: float) -> float | None:
    """Return the seconds until a job expires; None if it does not."""
    ttl = job["spec"].get("ttlSecondsAfterFinished")
    if ttl is None or is_deleting(job) or job_phase(job) not in JobPhase.FINISHED:
        return None
    finished_at = seconds((status_of(job).get("state") or {}).get("lastTransitionTime"))
    if finished_at is None:
        return None  # unknown since when; keep it
    return max(0.0, finished_at + float(ttl) - now)


class GarbageController(Reconciler):
    """Deletes expired jobs."""

    name = "gc-controller"
    workers = 1

    def __init__(
        self, informers: InformerFactory, recorder: EventRecorder, metrics: Metrics
    ) -> None:
        super().__init__(informers, recorder, metrics)
        self._jobs = informers.cache(JOBS)
        self._jobs.add_handler(self._on_job)

    def _on_job(self, event: str, old: Object | None, new: Object | None) -> None:
        if new is not None and seconds_left(new, 0.0) is not None:
            self.enqueue(event, old, new)

    async def reconcile(self, key: Key) -> float | None:
        job = self._jobs.get(*key)
        left_s = None if job is None else seconds_left(job, self.clock.now())
        if job is None or left_s is None or left_s > 0:
            return left_s
        # The cache may lag: read the job from the server before a deletion that cannot be undone.
        fresh = await self.client.find(JOBS, key[1], namespace=key[0])
        if fresh is None or uid_of(fresh) != uid_of(job):
            return None
        left_s = seconds_left(fresh, self.clock.now())
        if left_s is None or left_s > 0:
            return left_s
        await self.client.delete(
            JOBS,
            key[1],
            namespace=key[0],
            uid=uid_of(fresh),
            propagation="Foreground",
            missing_ok=True,
        )
        self.metrics.count("jobs_expired")
        return None
