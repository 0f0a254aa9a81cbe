"""The pods of a job: names, labels, annotations, volumes, and what its plugins add.

Note: Volcano's clients read labels or annotations, so most values are in both. The job version on a
pod names the version it was created for; events of older pods are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from hashlib import sha256
from typing import Final

from hekla.api import arrays as api_arrays
from hekla.api import wellknown
from hekla.api.volcano.groups import default_queue_gate
from hekla.controllers.job import arrays
from hekla.controllers.job.plugins import JobPlugin, PodContext, plugins_of
from hekla.controllers.objects import annotations_of, labels_of, owner_reference
from hekla.units.objects import Object

_BASE36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
RANDOM_CHARS: Final = 12

# Copied from the job: (key, from annotations, from labels).
_INHERITED: Final = (
    (wellknown.PREEMPTABLE, True, True),
    (wellknown.COOLDOWN_TIME, True, True),
    (wellknown.REVOCABLE_ZONE, True, False),
)


def pod_name(job: Object, task: Object, index: int) -> str:
    """Return the name of the pod at an index of a task; pods of an array have the array index."""
    return f"{job['metadata']['name']}-{task['name']}-{arrays.array_index(job, index)}"


def group_name(job: Object) -> str:
    """Return the name of the PodGroup; the UID distinguishes jobs of the same name."""
    return f"{job['metadata']['name']}-{job['metadata']['uid']}"


def queue_of(job: Object) -> str:
    return str(job["spec"].get("queue") or wellknown.DEFAULT_QUEUE)


def fingerprint(*parts: object) -> str:
    """Return twelve letters and digits derived from `parts`, the same after a restart."""
    number = int.from_bytes(sha256("/".join(map(str, parts)).encode()).digest(), "big")
    letters = []
    for _ in range(RANDOM_CHARS):
        number, digit = divmod(number, len(_BASE36))
        letters.append(_BASE36[digit])
    return "".join(letters)


def claim_name(job: Object, index: int) -> str:
    """Return the name of the claim of a volume.

    It is derived, so it is created once; Volcano's is random.
    """
    return f"{job['metadata']['name']}-pvc-{fingerprint(job['metadata']['uid'], index)}"


class PodMaker:
    """Builds the pods of one job."""

    def __init__(self, job: Object) -> None:
        self._job = job
        self._status = job.get("status") or {}
        self._plugins: list[JobPlugin] = plugins_of(job)
        self._owner = owner_reference(wellknown.BATCH_API, "Job", job)
        self._volumes = list(_volumes(job))
        self._array = api_arrays.array_of(job)
        self._retries = arrays.retries_so_far(job) if self._array else {}

    def pod(self, task: Object, index: int) -> Object:
        """Return the pod of a task at an index."""
        job, template = self._job, task["template"]
        given = template.get("metadata") or {}
        body: Object = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": pod_name(job, task, index),
                "namespace": job["metadata"]["namespace"],
                "labels": {**(given.get("labels") or {}), **self._labels(task, index)},
                "annotations": {
                    **(given.get("annotations") or {}),
                    **self._annotations(task, index),
                },
                "ownerReferences": [self._owner],
            },
            "spec": self._spec(task),
        }
        if self._array is not None:
            self._mark(body, self._array, self._array.indices[index])
        default_queue_gate(body)
        context = PodContext(job, task, index)
        for plugin in self._plugins:
            plugin.on_pod(body, context)
        return body

    def _mark(self, body: Object, array: api_arrays.Array, index: int) -> None:
        """Give the pod of an array its index, as label, annotation and variables."""
        marks = {wellknown.ARRAY_INDEX: str(index)}
        attempt = str(self._retries.get(index, 0))
        body["metadata"]["labels"] |= marks
        body["metadata"]["annotations"] |= {**marks, wellknown.ARRAY_ATTEMPT: attempt}
        name = self._job["metadata"]["name"]
        body["spec"] = arrays.with_environment(body["spec"], name, array, index)

    def _labels(self, task: Object, index: int) -> dict[str, str]:
        job = self._job
        labels = {
            wellknown.TASK_INDEX: str(index),
            wellknown.TASK_SPEC: task["name"],
            wellknown.JOB_NAME: job["metadata"]["name"],
            wellknown.JOB_NAMESPACE: job["metadata"]["namespace"],
            wellknown.QUEUE_NAME: queue_of(job),
        }
        if policy := task.get("partitionPolicy"):
            labels[wellknown.PARTITION_ID] = str(index // max(1, policy.get("partitionSize") or 1))
        inherited = labels_of(job)
        for key, _, from_labels in _INHERITED:
            if from_labels and key in inherited:
                labels[key] = inherited[key]
        if wellknown.JOB_FORWARDING in annotations_of(job):
            labels[wellknown.JOB_FORWARDING] = "true"
        return labels

    def _annotations(self, task: Object, index: int) -> dict[str, str]:
        job, name = self._job, self._job["metadata"]["name"]
        annotations = {
            wellknown.TASK_INDEX: str(index),
            wellknown.TASK_SPEC: task["name"],
            wellknown.GROUP_NAME: group_name(job),
            wellknown.JOB_NAME: name,
            wellknown.QUEUE_NAME: queue_of(job),
            wellknown.JOB_VERSION: str(self._status.get("version") or 0),
            wellknown.TEMPLATE_UID: f"{name}-{task['name']}",
            wellknown.JOB_RETRY_COUNT: str(self._status.get("retryCount") or 0),
        }
        if task.get("topologyPolicy"):
            annotations[wellknown.NUMA_TOPOLOGY_POLICY] = task["topologyPolicy"]
        inherited = annotations_of(job)
        for key, from_annotations, _ in _INHERITED:
            if from_annotations and key in inherited:
                annotations[key] = inherited[key]
        for key in (wellknown.JDB_MIN_AVAILABLE, wellknown.JDB_MAX_UNAVAILABLE):
            if key in inherited:
                annotations[key] = inherited[key]
                break
        if wellknown.JOB_FORWARDING in inherited:
            annotations[wellknown.JOB_FORWARDING] = "true"
        return annotations

    def _spec(self, task: Object) -> Object:
        given = task["template"].get("spec") or {}
        # Only plugins and volumes change nested fields. The copy is most of the cost of a pod, so
        # it is made only for them.
        spec: Object = deepcopy(given) if self._plugins or self._volumes else dict(given)
        if not spec.get("schedulerName"):
            spec["schedulerName"] = self._job["spec"].get("schedulerName") or (
                wellknown.DEFAULT_SCHEDULER
            )
        priority = self._job["spec"].get("priorityClassName")
        if priority and not spec.get("priorityClassName"):
            spec["priorityClassName"] = priority
        for volume, path in self._volumes:
            spec.setdefault("volumes", []).append(volume)
            for container in spec.get("containers") or ():
                container.setdefault("volumeMounts", []).append(
                    {"name": volume["name"], "mountPath": path}
                )
        return spec


def _volumes(job: Object) -> Iterator[tuple[Object, str]]:
    """Yield the job's volumes and mount paths.

    A claim named twice is mounted once, as in Volcano.
    """
    seen: set[str] = set()
    for index, volume in enumerate(job["spec"].get("volumes") or ()):
        claim = volume.get("volumeClaimName") or claim_name(job, index)
        if claim in seen:
            continue
        seen.add(claim)
        name = f"{job['metadata']['name']}-{fingerprint(job['metadata']['uid'], 'volume', index)}"
        yield (
            {"name": name[:63], "persistentVolumeClaim": {"claimName": claim}},
            volume["mountPath"],
        )
