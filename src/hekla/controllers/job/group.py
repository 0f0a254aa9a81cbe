"""The PodGroup of a job, which the scheduler admits and places as a whole.

Note: the group is created once and kept through restarts, with its UID. Volcano deletes and
re-creates it, by which a job loses its position in the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hekla.api import wellknown
from hekla.api.pod_resources import Amounts, add, quota_usage
from hekla.controllers.job.pods import group_name, queue_of
from hekla.controllers.objects import owner_reference
from hekla.units.objects import Object

_NATIVE = ("cpu", "memory", "ephemeral-storage", "storage")


def pod_group(job: Object, tasks: list[Object], priorities: Mapping[str, int]) -> Object:
    """Return the group to create."""
    metadata: Object = {
        "name": group_name(job),
        "namespace": job["metadata"]["namespace"],
        "ownerReferences": [owner_reference(wellknown.BATCH_API, "Job", job)],
    }
    for which in ("labels", "annotations"):
        if job["metadata"].get(which):
            metadata[which] = dict(job["metadata"][which])
    metadata.get("annotations", {}).pop(wellknown.LAST_APPLIED, None)
    spec: Object = {"queue": queue_of(job), **managed_spec(job, tasks, priorities)}
    if topology := _topology(job["spec"].get("networkTopology")):
        spec["networkTopology"] = topology
    return {
        "apiVersion": wellknown.SCHEDULING_API,
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": spec,
    }


def managed_spec(job: Object, tasks: list[Object], priorities: Mapping[str, int]) -> Object:
    """Return the part of the group's spec that follows the job."""
    spec: Object = {
        "minMember": int(job["spec"].get("minAvailable") or 0),
        "minTaskMember": {task["name"]: _least(task) for task in tasks},
        "minResources": min_resources(job, tasks, priorities),
    }
    if job["spec"].get("priorityClassName"):
        spec["priorityClassName"] = job["spec"]["priorityClassName"]
    if policies := [_sub_group(task) for task in tasks if task.get("partitionPolicy")]:
        spec["subGroupPolicy"] = policies
    return spec


def spec_patch(group: Object, wanted: Object) -> Object | None:
    """Return a merge patch that updates the group's spec; None if it is up to date."""
    spec = group.get("spec") or {}
    changed: Object = {}
    for name, value in wanted.items():
        now = spec.get(name)
        if now == value:
            continue
        if isinstance(value, dict) and isinstance(now, dict):
            changed[name] = {
                **{key: each for key, each in value.items() if now.get(key) != each},
                **{key: None for key in now if key not in value},
            }
        else:
            changed[name] = value
    return {"spec": changed} if changed else None


def min_resources(
    job: Object, tasks: list[Object], priorities: Mapping[str, int]
) -> dict[str, str]:
    """Return the sum of the requests of the first `minAvailable` pods, highest priority first."""
    total: Amounts = {}
    for task, count in _members(job, tasks, priorities):
        if count > 0:
            add(total, {name: amount * count for name, amount in _usage(task).items()})
    return {name: str(amount) for name, amount in sorted(total.items())}


def _members(
    job: Object, tasks: list[Object], priorities: Mapping[str, int]
) -> Iterator[tuple[Object, int]]:
    """Yield the number of pods of each task that count towards the job's minimum."""

    def priority(task: Object) -> int:
        spec = task["template"].get("spec") or {}
        name = spec.get("priorityClassName") or job["spec"].get("priorityClassName") or ""
        return -priorities.get(name, 0)

    ordered = sorted(tasks, key=priority)  # stable: tasks of equal priority keep their order
    left = int(job["spec"].get("minAvailable") or 0)
    together = sum(_minimum(task) for task in tasks)
    taken: dict[str, int] = {}
    if left >= together:
        for task in ordered:
            if task.get("minAvailable") is not None:
                taken[task["name"]] = min(int(task["minAvailable"]), left)
                left -= taken[task["name"]]
                yield task, taken[task["name"]]
    for task in ordered:
        more = min(int(task.get("replicas") or 0) - taken.get(task["name"], 0), left)
        left -= max(more, 0)
        yield task, more


def _minimum(task: Object) -> int:
    least = task.get("minAvailable")
    return int(task.get("replicas") or 0) if least is None else int(least)


def _usage(task: Object) -> Amounts:
    """Return a pod's usage under quota names, and devices also under their resource name."""
    used = quota_usage(task["template"].get("spec") or {})
    for name in list(used):
        bare = name.removeprefix(wellknown.REQUESTS_PREFIX)
        if bare != name and bare not in _NATIVE:
            used.setdefault(bare, used[name])
    return used


def _least(task: Object) -> int:
    if task.get("minAvailable") is not None:
        return int(task["minAvailable"])
    policy = task.get("partitionPolicy") or {}
    partitions = (policy.get("minPartitions") or 0) * (policy.get("partitionSize") or 0)
    return int(partitions or task.get("replicas") or 0)


def _sub_group(task: Object) -> Object:
    policy = task["partitionPolicy"]
    found: Object = {
        "name": task["name"],
        "subGroupSize": policy.get("partitionSize"),
        "minSubGroups": policy.get("minPartitions") or 0,
        "labelSelector": {"matchLabels": {wellknown.TASK_SPEC: task["name"]}},
        "matchLabelKeys": [wellknown.PARTITION_ID],
    }
    if topology := _topology(policy.get("networkTopology")):
        found["networkTopology"] = topology
    return found


def _topology(given: Any) -> Object | None:
    if not given:
        return None
    topology: Object = {"mode": given.get("mode") or "hard"}
    if given.get("highestTierAllowed") is not None:
        topology["highestTierAllowed"] = given["highestTierAllowed"]
    elif given.get("highestTierName"):
        topology["highestTierName"] = given["highestTierName"]
    return topology
