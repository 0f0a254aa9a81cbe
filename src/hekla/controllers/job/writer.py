"""Apply the effects of a job: the only place where the job controller writes.

Pods are written in parallel, at most `MAX_WRITES_IN_FLIGHT` at once over all jobs, which take
turns. Every write can be repeated: creations have fixed names, deletions name a UID, decisions a
resourceVersion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from hekla.api import wellknown
from hekla.api.wellknown import JobPhase, JobReason
from hekla.controllers.command import delete_command
from hekla.controllers.informers import MutationCache
from hekla.controllers.job.effects import (
    CreateClaim,
    CreateGroup,
    CreatePod,
    DeleteGroup,
    DeletePod,
    DropObjects,
    Effect,
    EmitEvent,
    EnsureObjects,
    FinishCommand,
    MarkPod,
    PatchGroup,
    PatchJob,
    RequeueAfter,
    SetStatus,
)
from hekla.controllers.job.managed_objects import delete_object, ensure_object
from hekla.controllers.job.pods import queue_of
from hekla.controllers.job.slots import FairSlots
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import is_controlled_by, key_of, uid_of
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from hekla.kube.resources import JOBS, PERSISTENT_VOLUME_CLAIMS, PODGROUPS, PODS
from hekla.units.clock import Clock
from hekla.units.objects import Object
from hekla.units.timestamps import parse_time

MAX_WRITES_IN_FLIGHT: Final = 64
FOREIGN_POD_RETRY_S: Final = 5.0
NAME_FREED_RETRY_S: Final = 0.05


@dataclass
class WriterContext:
    """What the writers of all jobs share.

    `ensured` and `counted_at` are lost in a restart; they only save requests.
    """

    client: Client
    clock: Clock
    metrics: Metrics
    jobs: MutationCache
    pods: MutationCache
    groups: MutationCache
    commands: MutationCache
    emit_event: Callable[[Object, EmitEvent], None]
    counts_batch_period_s: float
    ensured: dict[str, str] = field(default_factory=dict)
    counted_at: dict[str, float] = field(default_factory=dict)
    slots: FairSlots = field(default_factory=lambda: FairSlots(MAX_WRITES_IN_FLIGHT))

    def forget(self, uid: str) -> None:
        self.ensured.pop(uid, None)
        self.counted_at.pop(uid, None)


class JobWriter:
    """Applies the effects of one reconciliation of a job."""

    def __init__(self, context: WriterContext, job: Object) -> None:
        self._context = context
        self._client = context.client
        self._job = job
        self._namespace, self._name = key_of(job)

    async def apply(self, effects: list[Effect]) -> float | None:
        """Apply effects in order; return the seconds after which to reconcile again, if any."""
        waits_s: list[float] = []
        for kind, several in groupby(effects, key=type):
            if kind in (CreatePod, DeletePod, MarkPod):
                waits_s += await self._write_in_parallel(list(several))
                continue
            for effect in several:
                after_s = await self._apply_one(effect)
                if after_s is not None:
                    waits_s.append(after_s)
        return min(waits_s) if waits_s else None

    async def _write_in_parallel(self, effects: list[Effect]) -> list[float]:
        """Write pods in parallel, all of them even if some fail; then raise the first failure."""

        async def one(effect: Effect) -> float | None:
            async with self._context.slots.slot((self._namespace, self._name)):
                return await self._write_pod(effect)

        results = await asyncio.gather(*(one(each) for each in effects), return_exceptions=True)
        failures = [each for each in results if isinstance(each, BaseException)]
        for failure in failures:
            if not isinstance(failure, KubeError):
                raise failure
        if failures:
            is_create = isinstance(effects[0], CreatePod)
            reason = JobReason.FAILED_CREATE if is_create else JobReason.FAILED_DELETE
            self._warn(reason, f"{len(failures)} of {len(effects)} pods: {failures[0]}")
            raise failures[0]
        return [each for each in results if isinstance(each, float)]

    async def _write_pod(self, effect: Effect) -> float | None:
        pods = self._context.pods
        match effect:
            case CreatePod(body):
                try:
                    created = await self._client.create(PODS, body, namespace=self._namespace)
                except AlreadyExists:
                    return await self._name_taken(body)
                pods.record_write(created)
                self._context.metrics.pod_created(self._age_s())
            case DeletePod(pod):
                try:
                    await self._client.delete(
                        PODS,
                        pod["metadata"]["name"],
                        namespace=self._namespace,
                        uid=uid_of(pod),
                        missing_ok=True,
                    )
                except Conflict:
                    return None  # the name belongs to a newer pod
                pods.record_delete(pod)
                self._context.metrics.count("pods_deleted")
            case MarkPod(pod):
                body = {
                    "metadata": {"uid": uid_of(pod), "annotations": {wellknown.OUT_OF_SYNC: "true"}}
                }
                try:
                    marked = await self._client.patch(
                        PODS, pod["metadata"]["name"], body, namespace=self._namespace
                    )
                except (NotFound, Conflict):
                    return None
                pods.record_write(marked)
        return None

    def _age_s(self) -> float:
        created = self._job["metadata"].get("creationTimestamp")
        return self._context.clock.now() - parse_time(created) if created else 0.0

    async def _name_taken(self, body: Object) -> float | None:
        """Record the pod if it is the job's and only the watch is late; else warn."""
        name = body["metadata"]["name"]
        found = await self._client.find(PODS, name, namespace=self._namespace)
        if found is not None and is_controlled_by(found, uid_of(self._job)):
            self._context.pods.record_write(found)
            return None
        if found is None:
            return NAME_FREED_RETRY_S
        self._warn(
            JobReason.FAILED_CREATE,
            f"pod {self._namespace}/{name} exists and is not owned by this job; delete it",
        )
        return FOREIGN_POD_RETRY_S

    async def _apply_one(self, effect: Effect) -> float | None:
        match effect:
            case SetStatus(patch, is_urgent):
                return await self._set_status(patch, is_urgent)
            case PatchJob(patch):
                self._record_job(
                    await self._client.patch(
                        JOBS, self._name, patch, namespace=self._namespace, expect=self._version
                    )
                )
            case CreateGroup() | PatchGroup() | DeleteGroup():
                await self._write_group(effect)
            case CreateClaim(body):
                await self._create_claim(body)
            case EnsureObjects(objects, digest):
                try:
                    for managed in objects:
                        await ensure_object(self._client, self._job, managed)
                except KubeError as error:
                    self._warn(JobReason.PLUGIN_ERROR, str(error))
                    raise
                self._context.ensured[uid_of(self._job)] = digest
            case DropObjects(objects):
                for managed in objects:
                    await delete_object(self._client, self._job, managed)
                self._context.ensured.pop(uid_of(self._job), None)
            case FinishCommand(command):
                await delete_command(self._client, self._context.commands, command)
            case EmitEvent():
                self._context.emit_event(self._job, effect)
            case RequeueAfter(after_s):
                return after_s
            case _:
                raise TypeError(f"no such effect: {effect}")
        return None

    @property
    def _version(self) -> str:
        return str(self._job["metadata"]["resourceVersion"])

    def _record_job(self, job: Object) -> None:
        self._job = job
        self._context.jobs.record_write(job)

    def _warn(self, reason: str, message: str) -> None:
        self._context.emit_event(self._job, EmitEvent("Warning", reason, message))

    async def _set_status(self, patch: Object, is_urgent: bool) -> float | None:
        uid, now = uid_of(self._job), self._context.clock.monotonic()
        if not is_urgent and self._context.counts_batch_period_s:
            wait_s = (
                self._context.counted_at.setdefault(uid, now)
                + self._context.counts_batch_period_s
                - now
            )
            if wait_s > 0:
                return wait_s
        try:
            written = await self._client.patch_status(
                JOBS, self._name, patch, namespace=self._namespace, expect=self._version
            )
        except Conflict:
            raise
        except KubeError as error:
            self._warn(JobReason.JOB_STATUS_ERROR, str(error))
            raise
        self._context.counted_at[uid] = now
        self._record_job(written)
        phase = (patch.get("state") or {}).get("phase")
        if phase:
            self._context.metrics.count("job_phase_changes", phase=phase)
            if phase in (JobPhase.COMPLETED, JobPhase.FAILED):
                self._context.metrics.count(
                    f"job_{phase.lower()}_phase_count",
                    job_name=f"{self._namespace}/{self._name}",
                    queue_name=queue_of(self._job),
                )
        return None

    async def _write_group(self, effect: CreateGroup | PatchGroup | DeleteGroup) -> None:
        groups = self._context.groups
        try:
            match effect:
                case CreateGroup(body):
                    groups.record_write(
                        await self._client.create(PODGROUPS, body, namespace=self._namespace)
                    )
                case PatchGroup(name, patch):
                    groups.record_write(
                        await self._client.patch(PODGROUPS, name, patch, namespace=self._namespace)
                    )
                case DeleteGroup(name, uid):
                    await self._client.delete(
                        PODGROUPS, name, namespace=self._namespace, uid=uid, missing_ok=True
                    )
                    groups.record_delete({"metadata": {
                        "name": name, "namespace": self._namespace, "uid": uid,
                    }})  # fmt: skip
        except AlreadyExists:
            pass  # the watch is late
        except KubeError as error:
            self._warn(JobReason.POD_GROUP_ERROR, str(error))
            raise

    async def _create_claim(self, body: Object) -> None:
        try:
            await self._client.create(PERSISTENT_VOLUME_CLAIMS, body, namespace=self._namespace)
        except AlreadyExists:
            pass  # the name contains the UID of the job
        except KubeError as error:
            self._warn(JobReason.PVC_ERROR, str(error))
            raise
