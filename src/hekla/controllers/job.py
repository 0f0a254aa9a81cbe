"""The job controller: from a Job to its PodGroup, its pods and its status.

`next_step` is pure: what exists in, effects out. The phases here are the straight way from Pending
to Completed or Failed; policies, restarts and plugins build on it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from hekla.api import wellknown
from hekla.api.wellknown import JobPhase, PodGroupPhase, PodPhase
from hekla.units.quantity import Quantity, parse_quantity

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CreateGroup:
    body: Object


@dataclass(frozen=True, slots=True)
class CreatePod:
    body: Object


@dataclass(frozen=True, slots=True)
class SetStatus:
    status: Object


Effect = CreateGroup | CreatePod | SetStatus


def next_step(job: Object, group: Object | None, pods: list[Object], now: str) -> list[Effect]:
    """What to do about a job, given what exists of it."""
    if "deletionTimestamp" in job["metadata"]:
        return []
    effects: list[Effect] = []
    phase = (job.get("status") or {}).get("state", {}).get("phase", "")
    if phase not in JobPhase.FINISHED:
        if group is None:
            effects.append(CreateGroup(pod_group(job)))
        elif (group.get("status") or {}).get("phase") not in (None, "", PodGroupPhase.PENDING):
            effects += [CreatePod(body) for body in _missing_pods(job, pods)]
    status = _status(job, pods, now)
    if status is not None:
        effects.append(SetStatus(status))
    return effects


def _tasks(job: Object) -> list[Object]:
    tasks: list[Object] = job["spec"].get("tasks") or []
    return tasks


def _owner(job: Object) -> Object:
    return {
        "apiVersion": wellknown.BATCH_API,
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def group_name(job: Object) -> str:
    return f"{job['metadata']['name']}-{job['metadata']['uid']}"


def minimum(job: Object) -> int:
    total = sum(task.get("replicas", 0) for task in _tasks(job))
    return int(job["spec"].get("minAvailable") or total)


def pod_group(job: Object) -> Object:
    """The PodGroup of a job: the gang the scheduler admits and places."""
    spec: Object = {
        "minMember": minimum(job),
        "queue": job["spec"].get("queue") or wellknown.DEFAULT_QUEUE,
        "minTaskMember": {
            task["name"]: task.get("minAvailable", task.get("replicas", 0)) for task in _tasks(job)
        },
        "minResources": _min_resources(job),
    }
    if job["spec"].get("priorityClassName"):
        spec["priorityClassName"] = job["spec"]["priorityClassName"]
    return {
        "apiVersion": wellknown.SCHEDULING_API,
        "kind": "PodGroup",
        "metadata": {
            "name": group_name(job),
            "namespace": job["metadata"]["namespace"],
            "ownerReferences": [_owner(job)],
        },
        "spec": spec,
    }


def _min_resources(job: Object) -> dict[str, str]:
    """What the first `minAvailable` pods ask for together."""
    total: dict[str, Quantity] = {}
    left = minimum(job)
    for task in _tasks(job):
        count = min(left, task.get("replicas", 0))
        left -= count
        for container in task["template"]["spec"].get("containers", ()):
            requests = (container.get("resources") or {}).get("requests") or {}
            for name, text in requests.items():
                for _ in range(count):
                    amount = parse_quantity(text)
                    total[name] = total[name] + amount if name in total else amount
    return {name: str(amount) for name, amount in total.items()}


def _missing_pods(job: Object, pods: list[Object]) -> list[Object]:
    names = {pod["metadata"]["name"] for pod in pods}
    return [
        body
        for task in _tasks(job)
        for index in range(task.get("replicas", 0))
        if (body := pod(job, task, index))["metadata"]["name"] not in names
    ]


def pod(job: Object, task: Object, index: int) -> Object:
    """The pod of a task at an index, named and marked as Volcano's."""
    metadata, template = job["metadata"], task["template"]
    given = template.get("metadata") or {}
    queue = job["spec"].get("queue") or wellknown.DEFAULT_QUEUE
    shared = {
        wellknown.TASK_INDEX: str(index),
        wellknown.TASK_SPEC: task["name"],
        wellknown.JOB_NAME: metadata["name"],
        wellknown.QUEUE_NAME: queue,
    }
    annotations = {
        **(given.get("annotations") or {}),
        **shared,
        wellknown.GROUP_NAME: group_name(job),
        wellknown.JOB_VERSION: str((job.get("status") or {}).get("version", 0)),
        wellknown.TEMPLATE_UID: f"{metadata['name']}-{task['name']}",
        wellknown.JOB_RETRY_COUNT: str((job.get("status") or {}).get("retryCount", 0)),
    }
    labels = {
        **(given.get("labels") or {}),
        **shared,
        wellknown.JOB_NAMESPACE: metadata["namespace"],
    }
    spec = dict(template["spec"])
    spec.setdefault("schedulerName", job["spec"].get("schedulerName", wellknown.DEFAULT_SCHEDULER))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{metadata['name']}-{task['name']}-{index}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [_owner(job)],
        },
        "spec": spec,
    }


_COUNTS = {
    PodPhase.PENDING: "pending",
    PodPhase.RUNNING: "running",
    PodPhase.SUCCEEDED: "succeeded",
    PodPhase.FAILED: "failed",
    PodPhase.UNKNOWN: "unknown",
}


def _status(job: Object, pods: list[Object], now: str) -> Object | None:
    """The status a job should have; None when it has it."""
    old = job.get("status") or {}
    counts = Counter((pod.get("status") or {}).get("phase", PodPhase.PENDING) for pod in pods)
    status: Object = {name: counts[phase] for phase, name in _COUNTS.items()}
    status["minAvailable"] = minimum(job)
    tasks: dict[str, Counter[str]] = {}
    for one in pods:
        task = one["metadata"]["labels"].get(wellknown.TASK_SPEC, "")
        phase = (one.get("status") or {}).get("phase", PodPhase.PENDING)
        tasks.setdefault(task, Counter())[phase] += 1
    status["taskStatusCount"] = {task: {"phase": dict(found)} for task, found in tasks.items()}
    was = (old.get("state") or {}).get("phase", "")
    phase = _phase(job, status, was)
    if phase == was and all((old.get(name) or 0) == value for name, value in status.items()
                            if name in _COUNTS.values()):  # fmt: skip
        return None
    if phase != was:
        status["state"] = {"phase": phase, "lastTransitionTime": now}
        status["conditions"] = [
            *(c for c in old.get("conditions") or () if c["status"] != phase),
            {"status": phase, "lastTransitionTime": now},
        ]
    return status


def _phase(job: Object, counts: Object, was: str) -> str:
    if was in JobPhase.FINISHED:
        return was
    total = sum(task.get("replicas", 0) for task in _tasks(job))
    done = counts["succeeded"] + counts["failed"]
    if total and done == total:
        return JobPhase.COMPLETED if counts["succeeded"] >= minimum(job) else JobPhase.FAILED
    if counts["running"] + done >= minimum(job) and counts["running"] + done > 0:
        return JobPhase.RUNNING
    return JobPhase.PENDING
