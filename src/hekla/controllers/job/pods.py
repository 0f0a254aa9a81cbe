"""The pods of a job: names, marks, volumes, and what its plugins add.

What a newcomer gets wrong: labels are for selecting and annotations for telling, and Volcano's
clients read either, so most marks are both. The job version on a pod says which life of the job it
belongs to; after a restart, what happens to older pods is nobody's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from hashlib import sha256
from typing import Final

from hekla.api import wellknown
from hekla.controllers.job.plugins import JobPlugin, Place, plugins_of
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
    return f"{job['metadata']['name']}-{task['name']}-{index}"


def group_name(job: Object) -> str:
    """The UID keeps it apart from that of an earlier namesake."""
    return f"{job['metadata']['name']}-{job['metadata']['uid']}"


def queue_of(job: Object) -> str:
    return str(job["spec"].get("queue") or wellknown.DEFAULT_QUEUE)


def fingerprint(*parts: object) -> str:
    """Twelve letters and digits that look drawn and are the same after a restart."""
    number = int.from_bytes(sha256("/".join(map(str, parts)).encode()).digest(), "big")
    letters = []
    for _ in range(RANDOM_CHARS):
        number, digit = divmod(number, len(_BASE36))
        letters.append(_BASE36[digit])
    return "".join(letters)


def claim_name(job: Object, index: int) -> str:
    """The claim made for a job's volume: Volcano draws it, we derive it, so it is made once."""
    return f"{job['metadata']['name']}-pvc-{fingerprint(job['metadata']['uid'], index)}"


class PodMaker:
    """Makes the pods of one job in its present state."""

    def __init__(self, job: Object) -> None:
        self._job = job
        self._status = job.get("status") or {}
        self._plugins: list[JobPlugin] = plugins_of(job)
        self._owner = owner_reference(wellknown.BATCH_API, "Job", job)
        self._volumes = list(_volumes(job))

    def pod(self, task: Object, index: int) -> Object:
        """The pod of a task at an index."""
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
        place = Place(job, task, index)
        for plugin in self._plugins:
            plugin.on_pod(body, place)
        return body

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
        # Only plugins and volumes change what is below the first level; copying is most of the
        # work of making a pod, so it is done only for them.
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
    """The job's volumes as pods mount them; a claim named twice is mounted once, as in Volcano."""
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
