"""Decide what a Pending or Running job creates and deletes.

In order: its claims, its plugins' objects, its PodGroup and, once the scheduler has admitted the
group, its pods, in batches. A task that depends on others waits for them; surplus pods are deleted.
An array creates a pod when one finishes, if its parallelism is limited.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from hekla.api import wellknown
from hekla.api.wellknown import (
    GroupCondition,
    JobPhase,
    JobReason,
    PodGroupPhase,
    PodPhase,
)
from hekla.controllers.job import arrays
from hekla.controllers.job import group as groups
from hekla.controllers.job.effects import (
    CreateClaim,
    CreateGroup,
    CreatePod,
    DeletePod,
    Effect,
    EmitEvent,
    EnsureObjects,
    PatchGroup,
    PatchJob,
    RequeueAfter,
    SetStatus,
)
from hekla.controllers.job.events import EVICTED_PODS, has_returned, stored_evictions
from hekla.controllers.job.plugins import plugins_of
from hekla.controllers.job.pods import PodMaker, claim_name, pod_name
from hekla.controllers.job.state import phase_after_sync
from hekla.controllers.job.status import claim_marks, plugin_marks, status_patch
from hekla.controllers.job.view import (
    JobView,
    index_of,
    is_finished,
    pod_phase,
    task_of,
    version_of,
)
from hekla.controllers.objects import (
    annotations_of,
    is_deleting,
    job_phase,
    owner_reference,
    seconds,
)
from hekla.units.objects import Object

MISSING_CLAIM_RETRY_S: Final = 5.0
MIN_BATCH: Final = 128
MAX_BATCH: Final = 1024
"""Pods to create in one decision. A batch doubles the pods of the job: few decisions for a job of
some hundred, and none that holds the event loop or a worker for long for one of a hundred thousand.
"""


def sync_dependents(view: JobView) -> list[Effect]:
    """Return the effects that sync the dependents and the status of a Pending or Running job."""
    if patches := _patch_job(view):
        return patches
    effects, claims = _claims(view)
    if claims is None:
        return effects + _record(view, None, {})
    plugins = plugins_of(view.job)
    digest = f"{view.job['metadata'].get('uid')}/{view.job['metadata'].get('generation')}"
    if view.ensured != digest:
        objects = tuple(each for plugin in plugins for each in plugin.objects(view.job))
        for plugin in plugins:
            if plugin.problem:
                effects.append(EmitEvent("Warning", JobReason.PLUGIN_ERROR, plugin.problem))
        if objects:
            effects.append(EnsureObjects(objects, digest))
    effects += _group(view)
    pods = list(_pods(view))
    effects += pods
    controlled = {
        **(view.status.get("controlledResources") or {}),
        **plugin_marks([plugin.name for plugin in plugins if plugin.is_tracked]),
        **claim_marks(claims),
    }
    next_phase = phase_after_sync(view.phase, view.facts, view.counts)
    # Also while pods are created, whose names may be taken for long; the writer batches counts.
    return effects + _record(view, next_phase, controlled)


def _record(view: JobView, phase: str | None, controlled: dict[str, str]) -> list[Effect]:
    is_urgent = phase is not None
    if not job_phase(view.job) and phase is None:
        # A new job. The write may wait: a group that is admitted at once brings pod counts too.
        phase = JobPhase.PENDING
    patch = status_patch(view, phase=phase, controlled=controlled or None)
    return [] if patch is None else [SetStatus(patch, is_urgent=is_urgent)]


def _patch_job(view: JobView) -> list[Effect]:
    """Return patches of the job; all other effects wait until the patched job is in the cache."""
    extended = ((view.queue or {}).get("spec") or {}).get("extendClusters")
    if extended and wellknown.JOB_FORWARDING not in annotations_of(view.job):
        return [PatchJob({"metadata": {"annotations": {wellknown.JOB_FORWARDING: "true"}}})]
    evictions = stored_evictions(view.job)
    if evictions and all(has_returned(view, name) for name in evictions):
        return [PatchJob({"metadata": {"annotations": {EVICTED_PODS: None}}})]
    if retries := arrays.new_retries(view.array, view.retries, view.pods):
        record = {wellknown.ARRAY_RETRIED: arrays.record_of(retries)}
        return [PatchJob({"metadata": {"annotations": record}})]
    volumes = view.spec.get("volumes") or []
    if any(not volume.get("volumeClaimName") for volume in volumes):
        named = [
            volume
            if volume.get("volumeClaimName")
            else {**volume, "volumeClaimName": claim_name(view.job, index)}
            for index, volume in enumerate(volumes)
        ]
        return [PatchJob({"spec": {"volumes": named}})]
    return []


def _claims(view: JobView) -> tuple[list[Effect], list[str] | None]:
    """Return the claims to create, and the names of all claims; None while one is missing."""
    marks = view.status.get("controlledResources") or {}
    effects: list[Effect] = []
    names: list[str] = []
    for volume in view.spec.get("volumes") or ():
        name = volume["volumeClaimName"]
        if name in names:
            continue
        names.append(name)
        if volume.get("volumeClaim"):
            if wellknown.CONTROLLED_VOLUME.format(name=name) not in marks:
                effects.append(CreateClaim(_claim(view.job, name, volume["volumeClaim"])))
        elif view.phase == JobPhase.PENDING and view.claims.get(name) is False:
            message = (
                f"persistent volume claim {view.job['metadata']['namespace']}/{name} does not "
                "exist; create it to start the job"
            )
            return [
                EmitEvent("Warning", JobReason.PVC_ERROR, message),
                RequeueAfter(MISSING_CLAIM_RETRY_S),
            ], None
    return effects, names


def _claim(job: Object, name: str, spec: Object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": job["metadata"]["namespace"],
            "ownerReferences": [owner_reference(wellknown.BATCH_API, "Job", job)],
        },
        "spec": spec,
    }


# PodGroup


def _group(view: JobView) -> Iterator[Effect]:
    if view.group is None:
        yield CreateGroup(groups.pod_group(view.job, view.tasks, view.priorities))
        return
    wanted = groups.managed_spec(view.job, view.tasks, view.priorities)
    patch = groups.spec_patch(view.group, wanted)
    if patch is not None:
        yield PatchGroup(view.group["metadata"]["name"], patch)
    if view.phase == JobPhase.PENDING and (message := _pending_reason(view.group)):
        yield EmitEvent("Warning", JobReason.POD_GROUP_PENDING, message)


def _pending_reason(group: Object) -> str:
    true = [
        each
        for each in (group.get("status") or {}).get("conditions") or ()
        if each.get("status") == "True"
    ]
    if not true:
        return ""
    newest = max(true, key=lambda each: seconds(each.get("lastTransitionTime")) or 0.0)
    if newest.get("type") == GroupCondition.SCHEDULED:
        return ""
    return f"PodGroup {group['metadata']['name']}: {newest.get('message') or newest.get('reason')}"


def is_admitted(group: Object | None) -> bool:
    """Return whether the scheduler has admitted a PodGroup."""
    phase = ((group or {}).get("status") or {}).get("phase")
    return phase not in (None, "", PodGroupPhase.PENDING)


# Pods


def _pods(view: JobView) -> Iterator[Effect]:
    replicas = {task["name"]: int(task.get("replicas") or 0) for task in view.tasks}
    for pod in view.pods:
        if not is_deleting(pod) and _is_surplus(view, pod, replicas):
            yield DeletePod(pod)
    if not is_admitted(view.group):
        return
    size = batch_size(len(view.pods))
    slots = arrays.free_slots(view.array, view.retries, view.pods)
    most = size + 1 if slots is None else min(size + 1, slots)
    missing = list(islice(_missing(view, replicas), most))
    maker = PodMaker(view.job) if missing else None
    for task, index in missing[:size]:
        assert maker is not None
        yield CreatePod(maker.pod(task, index))
    if len(missing) > size:
        yield RequeueAfter(0.0)


def batch_size(existing: int) -> int:
    """Return how many pods a job that has `existing` ones creates in one decision."""
    return max(MIN_BATCH, min(existing, MAX_BATCH))


def _missing(view: JobView, replicas: dict[str, int]) -> Iterator[tuple[Object, int]]:
    """Yield the task and index of each pod to create."""
    for task in view.tasks:
        indices = (
            index
            for index in range(replicas[task["name"]])
            if pod_name(view.job, task, index) not in view.by_name
        )
        first = next(indices, None)
        if first is not None and _may_start(view, task):
            yield from ((task, index) for index in chain((first,), indices))


def _is_surplus(view: JobView, pod: Object, replicas: dict[str, int]) -> bool:
    if wellknown.OUT_OF_SYNC in annotations_of(pod) or arrays.is_replaced(pod, view.retries):
        return True
    if index_of(pod) >= replicas.get(task_of(pod), 0):
        return True
    # Finished pods of an earlier version are kept when a job is resumed; running ones are not.
    return version_of(pod) < view.version and not is_finished(pod)


def _may_start(view: JobView, task: Object) -> bool:
    """Return whether the tasks that this one depends on are ready."""
    needs = task.get("dependsOn") or {}
    known = {each["name"]: each for each in view.tasks}
    ready = [_is_ready(view, known[name]) for name in needs.get("name") or () if name in known]
    if not ready:
        return True
    if needs.get("iteration") == "any" and len(ready) > 1:
        return any(ready)
    return all(ready)


def _is_ready(view: JobView, task: Object) -> bool:
    least = task.get("minAvailable")
    if least is None:
        return True
    far = sum(
        1 for pod in view.pods if task_of(pod) == task["name"] and _is_ready_or_succeeded(pod)
    )
    return far >= int(least)


def _is_ready_or_succeeded(pod: Object) -> bool:
    if is_deleting(pod):
        return False
    if pod_phase(pod) == PodPhase.SUCCEEDED:
        return True
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return (
        pod_phase(pod) == PodPhase.RUNNING
        and bool(statuses)
        and all(status.get("ready") for status in statuses)
    )


def partition_at(view: JobView, task_name: str, index: int) -> str | None:
    """Return the partition of an index of a task, whether or not its pod exists."""
    for task in view.tasks:
        policy = task.get("partitionPolicy")
        if task["name"] == task_name and policy and index >= 0:
            return str(index // max(1, policy.get("partitionSize") or 1))
    return None
