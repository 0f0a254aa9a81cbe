"""The controller of Volcano's CronJobs."""

from __future__ import annotations

from datetime import UTC, tzinfo
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from hekla.api.wellknown import CronReason
from hekla.controllers.cronjob.schedule import VOLCANO, CronJobKind, CronView, next_step
from hekla.controllers.informers import OWNER, InformerFactory
from hekla.controllers.job_owner import JobOwnerReconciler
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import Key, controller_of, job_phase, key_of, uid_of
from hekla.kube.errors import AlreadyExists, KubeError
from hekla.kube.recorder import EventRecorder
from hekla.units.objects import Object


@lru_cache(maxsize=1)
def local_zone() -> tzinfo:
    """Return this machine's time zone with its daylight-saving rules; UTC if unknown."""
    try:
        with Path("/etc/localtime").open("rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError):
        return UTC


class CronJobController(JobOwnerReconciler):
    """Reconciles Volcano's CronJobs; a subclass sets another `kind`."""

    name = "cronjob-controller"
    kind: ClassVar[CronJobKind] = VOLCANO

    def __init__(
        self, informers: InformerFactory, recorder: EventRecorder, metrics: Metrics
    ) -> None:
        super().__init__(
            informers,
            recorder,
            metrics,
            owner_resource=self.kind.crons,
            job_resource=self.kind.jobs,
        )
        self.jobs.add_handler(self._on_job)

    def _on_job(self, event: str, old: Object | None, new: Object | None) -> None:
        job = new or old
        assert job is not None
        owner = controller_of(job)
        if owner is None or owner.get("kind") != "CronJob":
            return
        outcome = self.kind.outcome
        if old is not None and new is not None and outcome(old) == outcome(new):
            return
        key = (key_of(job)[0], owner["name"])
        self.queue.add(key)
        if new is not None and outcome(new):
            cron = self.owners.get(*key)
            if cron is not None:
                message = f"{job['metadata']['name']}: {job_phase(new) or outcome(new)}"
                self._emit(cron, CronReason.SAW_COMPLETED_JOB, message)

    async def reconcile(self, key: Key) -> float | None:
        cron = self.owners.get(*key)
        if cron is None:
            return None
        jobs = self.jobs.by_index(OWNER, uid_of(cron))
        view = CronView(cron, self.clock.now(), jobs, local_zone(), self.kind)
        return await self.apply_effects(cron, next_step(view))

    async def create_job(self, owner: Object, body: Object) -> Any:
        try:
            return await super().create_job(owner, body)
        except AlreadyExists:
            raise
        except KubeError as error:
            message = f"job {body['metadata']['name']} could not be created: {error}"
            self._warn(owner, CronReason.FAILED_CREATE, message)
            raise

    def on_job_created(self, owner: Object, name: str) -> None:
        self.metrics.count("cronjob_runs_started")
        self._emit(owner, CronReason.SUCCESSFUL_CREATE, f"created job {name}")

    def on_job_deleted(self, owner: Object, name: str) -> None:
        self._emit(owner, CronReason.SUCCESSFUL_DELETE, f"deleted job {name}")

    def on_foreign_job(self, owner: Object, name: str, error: AlreadyExists) -> None:
        message = f"job {name} exists and is not owned by this CronJob; the run is skipped"
        self._warn(owner, CronReason.FOREIGN_JOB, message)

    def _emit(self, cron: Object, reason: str, message: str) -> None:
        self.emit_event(self.kind.crons, cron, "Normal", reason, message)

    def _warn(self, cron: Object, reason: str, message: str) -> None:
        self.emit_event(self.kind.crons, cron, "Warning", reason, message)
