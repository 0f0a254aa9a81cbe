"""The base of controllers that create jobs: it applies the effects that they decide on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hekla.controllers.effects import CreateJob, DeleteJob, EmitEvent, RequeueAfter, SetStatus
from hekla.controllers.informers import InformerFactory
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import is_controlled_by, key_of, uid_of
from hekla.controllers.reconciler import Reconciler
from hekla.kube.errors import AlreadyExists
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import Resource
from hekla.units.objects import Object

Effect = CreateJob | DeleteJob | SetStatus | EmitEvent | RequeueAfter


class JobOwnerReconciler(Reconciler):
    """Reconciles objects of one kind (`owners`) that own jobs (`jobs`)."""

    def __init__(
        self,
        informers: InformerFactory,
        recorder: EventRecorder,
        metrics: Metrics,
        *,
        owner_resource: Resource[Any],
        job_resource: Resource[Any],
    ) -> None:
        super().__init__(informers, recorder, metrics)
        self._owner_resource = owner_resource
        self._job_resource = job_resource
        self.owners = informers.cache(owner_resource)
        self.jobs = informers.cache(job_resource)
        self.owners.add_handler(self.enqueue)

    async def apply_effects(self, owner: Object, effects: Iterable[Effect]) -> float | None:
        """Apply effects in order; return the seconds after which to reconcile again, if any."""
        requeue_s: float | None = None
        for effect in effects:
            match effect:
                case CreateJob(body):
                    await self._create_job(owner, body)
                case DeleteJob(job):
                    await self._delete_job(owner, job)
                case SetStatus(patch):
                    await self._set_status(owner, patch)
                case EmitEvent(type, reason, message):
                    self.emit_event(self._owner_resource, owner, type, reason, message)
                case RequeueAfter(after_s):
                    requeue_s = after_s
        return requeue_s

    def on_job_created(self, owner: Object, name: str) -> None:
        """Called after a job was created."""

    def on_job_deleted(self, owner: Object, name: str) -> None:
        """Called after a job was deleted."""

    def on_status_set(self, owner: Object, patch: Object) -> None:
        """Called after the owner's status was patched."""

    def on_foreign_job(self, owner: Object, name: str, error: AlreadyExists) -> None:
        """Called when a job of that name exists and has another owner."""
        raise error

    async def create_job(self, owner: Object, body: Object) -> Any:
        """Send the request that creates a job."""
        return await self.client.create(self._job_resource, body)

    async def _create_job(self, owner: Object, body: Object) -> None:
        namespace, name = key_of(body)
        try:
            created = await self.create_job(owner, body)
        except AlreadyExists as error:
            found = await self.client.get(self._job_resource, name, namespace=namespace)
            if not is_controlled_by(found, uid_of(owner)):
                self.on_foreign_job(owner, name, error)
            return
        self.jobs.record_write(created)
        self.on_job_created(owner, name)

    async def _delete_job(self, owner: Object, job: Object) -> None:
        namespace, name = key_of(job)
        await self.client.delete(
            self._job_resource,
            name,
            namespace=namespace,
            uid=uid_of(job),
            propagation="Background",
            missing_ok=True,
        )
        self.jobs.record_delete(job)
        self.on_job_deleted(owner, name)

    async def _set_status(self, owner: Object, patch: Object) -> None:
        namespace, name = key_of(owner)
        written = await self.client.patch_status(
            self._owner_resource,
            name,
            patch,
            namespace=namespace,
            expect=owner["metadata"]["resourceVersion"],
        )
        self.owners.record_write(written)
        self.on_status_set(owner, patch)
