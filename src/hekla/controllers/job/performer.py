"""Carrying out effects: the only place where the job controller writes.

Pods go side by side, over all jobs together no more than `MAX_WRITES_IN_FLIGHT` at once. Everything
is safe to repeat: creations have fixed names, deletions name a UID, decisions a resourceVersion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, Literal

from hekla.api import wellknown
from hekla.api.wellknown import JobPhase, JobReason
from hekla.controllers.command import finish
from hekla.controllers.job import effects as do
from hekla.controllers.job.plugins import Managed
from hekla.controllers.job.pods import queue_of
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import is_controlled_by, key_of, uid_of
from hekla.controllers.watched import Watched
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from hekla.kube.resources import JOBS, PERSISTENT_VOLUME_CLAIMS, PODGROUPS, PODS
from hekla.units.clock import Clock
from hekla.units.objects import Object
from hekla.units.patches import merge_patch
from hekla.units.timestamps import parse_time

MAX_WRITES_IN_FLIGHT: Final = 64
FOREIGN_POD_RETRY_S: Final = 5.0
NAME_FREED_RETRY_S: Final = 0.05


class ForeignObject(KubeError):
    """Something that is not the job's has a name that the job needs."""


@dataclass
class Desk:
    """What performers share: where to write, and what is worth remembering between two steps.

    All of the memory may be lost in a restart; it only saves work.
    """

    client: Client
    clock: Clock
    metrics: Metrics
    jobs: Watched
    pods: Watched
    groups: Watched
    commands: Watched
    tell: Callable[[Object, do.Tell], None]
    gather_counts_s: float
    ensured: dict[str, str] = field(default_factory=dict)
    counted_at: dict[str, float] = field(default_factory=dict)
    slots: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MAX_WRITES_IN_FLIGHT)
    )

    def forget(self, uid: str) -> None:
        self.ensured.pop(uid, None)
        self.counted_at.pop(uid, None)


class Performer:
    """Carries out the effects of one step."""

    def __init__(self, desk: Desk, job: Object) -> None:
        self._desk = desk
        self._client = desk.client
        self._job = job
        self._namespace, self._name = key_of(job)

    async def perform(self, effects: list[do.Effect]) -> float | None:
        """Do them in order; how long until the job must be looked at again, if at all."""
        wakes: list[float] = []
        for kind, several in groupby(effects, key=type):
            if kind in (do.CreatePod, do.DeletePod, do.MarkPod):
                wakes += await self._together(list(several))
                continue
            for effect in several:
                again_s = await self._one(effect)
                if again_s is not None:
                    wakes.append(again_s)
        return min(wakes) if wakes else None

    async def _together(self, effects: list[do.Effect]) -> list[float]:
        """Pods side by side, all of them even if some fail; then the first failure is raised."""

        async def one(effect: do.Effect) -> float | None:
            async with self._desk.slots:
                return await self._pod(effect)

        results = await asyncio.gather(*(one(each) for each in effects), return_exceptions=True)
        failures = [each for each in results if isinstance(each, BaseException)]
        for failure in failures:
            if not isinstance(failure, KubeError):
                raise failure
        if failures:
            is_create = isinstance(effects[0], do.CreatePod)
            reason = JobReason.FAILED_CREATE if is_create else JobReason.FAILED_DELETE
            self._tell("Warning", reason, f"{len(failures)} of {len(effects)} pods: {failures[0]}")
            raise failures[0]
        return [each for each in results if isinstance(each, float)]

    async def _pod(self, effect: do.Effect) -> float | None:
        pods = self._desk.pods
        match effect:
            case do.CreatePod(body):
                try:
                    made = await self._client.create(PODS, body, namespace=self._namespace)
                except AlreadyExists:
                    return await self._name_taken(body)
                pods.wrote(made)
                self._desk.metrics.pod_created(self._age_s())
            case do.DeletePod(pod):
                try:
                    await self._client.delete(
                        PODS,
                        pod["metadata"]["name"],
                        namespace=self._namespace,
                        uid=uid_of(pod),
                        missing_ok=True,
                    )
                except Conflict:
                    return None  # another pod has the name by now; it is not the one we meant
                pods.deleted(pod)
                self._desk.metrics.count("pods_deleted")
            case do.MarkPod(pod):
                body = {
                    "metadata": {"uid": uid_of(pod), "annotations": {wellknown.OUT_OF_SYNC: "true"}}
                }
                try:
                    marked = await self._client.patch(
                        PODS, pod["metadata"]["name"], body, namespace=self._namespace
                    )
                except (NotFound, Conflict):
                    return None
                pods.wrote(marked)
        return None

    def _age_s(self) -> float:
        created = self._job["metadata"].get("creationTimestamp")
        return self._desk.clock.now() - parse_time(created) if created else 0.0

    async def _name_taken(self, body: Object) -> float | None:
        """Ours, and only our watch is late; or somebody else's."""
        name = body["metadata"]["name"]
        found = await self._client.find(PODS, name, namespace=self._namespace)
        if found is not None and is_controlled_by(found, uid_of(self._job)):
            self._desk.pods.wrote(found)
            return None
        if found is None:
            return NAME_FREED_RETRY_S
        self._tell(
            "Warning",
            JobReason.FAILED_CREATE,
            f"pod {self._namespace}/{name} exists and is not this job's; delete it",
        )
        return FOREIGN_POD_RETRY_S

    async def _one(self, effect: do.Effect) -> float | None:
        match effect:
            case do.SetStatus(patch, is_urgent):
                return await self._set_status(patch, is_urgent)
            case do.PatchJob(patch):
                self._took(
                    await self._client.patch(
                        JOBS, self._name, patch, namespace=self._namespace, expect=self._version
                    )
                )
            case do.CreateGroup() | do.PatchGroup() | do.DeleteGroup():
                await self._group(effect)
            case do.CreateClaim(body):
                await self._claim(body)
            case do.EnsureObjects(objects, digest):
                try:
                    for managed in objects:
                        await self._ensure(managed)
                except KubeError as error:
                    self._tell("Warning", JobReason.PLUGIN_ERROR, str(error))
                    raise
                self._desk.ensured[uid_of(self._job)] = digest
            case do.DropObjects(objects):
                for managed in objects:
                    await self._drop(managed)
                self._desk.ensured.pop(uid_of(self._job), None)
            case do.FinishCommand(command):
                await finish(self._client, self._desk.commands, command)
            case do.Tell():
                self._desk.tell(self._job, effect)
            case do.Wake(after_s):
                return after_s
            case _:
                raise TypeError(f"no such effect: {effect}")
        return None

    @property
    def _version(self) -> str:
        return str(self._job["metadata"]["resourceVersion"])

    def _took(self, job: Object) -> None:
        self._job = job
        self._desk.jobs.wrote(job)

    def _tell(self, type: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self._desk.tell(self._job, do.Tell(type, reason, message))

    async def _set_status(self, patch: Object, is_urgent: bool) -> float | None:
        uid, now = uid_of(self._job), self._desk.clock.monotonic()
        if not is_urgent and self._desk.gather_counts_s:
            wait_s = self._desk.counted_at.setdefault(uid, now) + self._desk.gather_counts_s - now
            if wait_s > 0:
                return wait_s
        try:
            written = await self._client.patch_status(
                JOBS, self._name, patch, namespace=self._namespace, expect=self._version
            )
        except Conflict:
            raise
        except KubeError as error:
            self._tell("Warning", JobReason.JOB_STATUS_ERROR, str(error))
            raise
        self._desk.counted_at[uid] = now
        self._took(written)
        phase = (patch.get("state") or {}).get("phase")
        if phase:
            self._desk.metrics.count("job_phase_changes", phase=phase)
            if phase in (JobPhase.COMPLETED, JobPhase.FAILED):
                self._desk.metrics.count(
                    f"job_{phase.lower()}_phase_count",
                    job_name=f"{self._namespace}/{self._name}",
                    queue_name=queue_of(self._job),
                )
        return None

    async def _group(self, effect: do.CreateGroup | do.PatchGroup | do.DeleteGroup) -> None:
        groups = self._desk.groups
        try:
            match effect:
                case do.CreateGroup(body):
                    groups.wrote(
                        await self._client.create(PODGROUPS, body, namespace=self._namespace)
                    )
                case do.PatchGroup(name, patch):
                    groups.wrote(
                        await self._client.patch(PODGROUPS, name, patch, namespace=self._namespace)
                    )
                case do.DeleteGroup(name, uid):
                    await self._client.delete(
                        PODGROUPS, name, namespace=self._namespace, uid=uid, missing_ok=True
                    )
                    groups.deleted({"metadata": {
                        "name": name, "namespace": self._namespace, "uid": uid,
                    }})  # fmt: skip
        except AlreadyExists:
            pass  # the watch is late
        except KubeError as error:
            self._tell("Warning", JobReason.POD_GROUP_ERROR, str(error))
            raise

    async def _claim(self, body: Object) -> None:
        try:
            await self._client.create(PERSISTENT_VOLUME_CLAIMS, body, namespace=self._namespace)
        except AlreadyExists:
            pass  # its name is derived from our UID
        except KubeError as error:
            self._tell("Warning", JobReason.PVC_ERROR, str(error))
            raise

    async def _ensure(self, managed: Managed) -> None:
        """Create it, or bring ours up to date; somebody else's is left alone."""
        resource, body = managed.resource, managed.body
        name = body["metadata"]["name"]
        found: Object | None = await self._client.find(resource, name, namespace=self._namespace)
        if found is None:
            if managed.make_once is not None:
                body = merge_patch(body, await asyncio.to_thread(managed.make_once))
            try:
                await self._client.create(resource, body, namespace=self._namespace)
                return
            except AlreadyExists:
                found = await self._client.get(resource, name, namespace=self._namespace)
        assert found is not None
        if not is_controlled_by(found, uid_of(self._job)):
            raise ForeignObject(
                f"{resource.kind} {self._namespace}/{name} exists and is not this job's; "
                "delete it or give the job another name"
            )
        patch = {
            part: body[part] for part in body if part != "metadata" and not holds(found, body, part)
        }
        if patch:
            await self._client.patch(resource, name, patch, namespace=self._namespace)

    async def _drop(self, managed: Managed) -> None:
        name = managed.body["metadata"]["name"]
        found = await self._client.find(managed.resource, name, namespace=self._namespace)
        if found is not None and is_controlled_by(found, uid_of(self._job)):
            await self._client.delete(
                managed.resource,
                name,
                namespace=self._namespace,
                uid=uid_of(found),
                missing_ok=True,
            )


def holds(found: Object, wanted: Object, part: str) -> bool:
    """Whether the stored object has what is wanted of it; what the server added does not count."""
    return _covers(found.get(part), wanted[part])


def _covers(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            _covers(found.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(_covers(a, b) for a, b in zip(found, wanted, strict=True))
        )
    return bool(found == wanted) or (not found and not wanted)
