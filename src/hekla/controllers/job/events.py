"""The events of a job, derived from the objects that exist.

The controller stores no events: an event *is* a visible difference, and handling it removes the
difference. A failed pod of the current job version is PodFailed until it is deleted or the job
version changes. A deleted pod leaves no object, so PodEvicted is the difference between the pods
that the job's status counts and those that exist; the write of the new counts also carries the
consequence. So a restarted controller misses no event and repeats none.

Note: an event lasts as long as its cause. A policy that does not remove the cause matches again,
with the same result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hekla.api import wellknown
from hekla.api.wellknown import GroupCondition, JobEvent, PodCondition, PodGroupPhase, PodPhase
from hekla.controllers.job.pods import pod_name
from hekla.controllers.job.view import (
    DEFAULT_RETRIES,
    JobView,
    index_of,
    is_finished,
    pod_phase,
    task_of,
)
from hekla.controllers.objects import annotations_of, created_at, is_deleting, seconds, status_of
from hekla.units.objects import Object

# On the job: pods evicted under a policy with a timeout. JSON of pod name to time.
EVICTED_PODS: Final = "volcano.sh/evicted-pods"


@dataclass(frozen=True, slots=True)
class ObservedEvent:
    """One event of a job, and the task and pod that caused it."""

    name: str
    task: str = ""
    pod: str = ""
    index: int = -1
    exit_codes: frozenset[int] = frozenset()
    since: float = 0.0
    message: str = ""
    """The fact, for status messages and Events."""


def observed_events(view: JobView) -> list[ObservedEvent]:
    """Return all current events of a job, the oldest first."""
    found = [
        *_unknown(view),
        *_evicted(view),
        *_evicted_before(view),
        *_pods(view),
        *_tasks(view),
    ]
    return sorted(found, key=lambda each: (each.since, each.pod))


def _unknown(view: JobView) -> Iterator[ObservedEvent]:
    group = view.group
    if group is None or status_of(group).get("phase") != PodGroupPhase.UNKNOWN:
        return
    since = max(
        (
            seconds(condition.get("lastTransitionTime")) or 0.0
            for condition in status_of(group).get("conditions") or ()
            if condition.get("type") == GroupCondition.UNSCHEDULABLE
        ),
        default=view.now,
    )
    yield ObservedEvent(
        JobEvent.UNKNOWN,
        since=since,
        message="only part of the gang runs; the rest is unschedulable",
    )


def _pods(view: JobView) -> Iterator[ObservedEvent]:
    for pod in view.pods:
        if is_deleting(pod) or not view.is_current(pod):
            continue
        name, task, index = pod["metadata"]["name"], task_of(pod), index_of(pod)
        phase = pod_phase(pod)
        if phase == PodPhase.FAILED:
            codes = exit_codes(pod)
            message = f"pod {name} failed"
            if codes:
                message += f" with exit code {', '.join(map(str, sorted(codes)))}"
            yield ObservedEvent(
                JobEvent.POD_FAILED, task, name, index, codes, failed_at(pod), message
            )
        elif phase == PodPhase.PENDING:
            yield ObservedEvent(
                JobEvent.POD_PENDING,
                task,
                name,
                index,
                since=created_at(pod),
                message=f"pod {name} is pending",
            )


def _tasks(view: JobView) -> Iterator[ObservedEvent]:
    pods: dict[str, list[Object]] = {}
    for pod in view.pods:
        if not is_deleting(pod):
            pods.setdefault(task_of(pod), []).append(pod)
    for task in view.tasks:
        name, replicas = task["name"], int(task.get("replicas") or 0)
        task_pods = pods.get(name, [])
        succeeded = [pod for pod in task_pods if pod_phase(pod) == PodPhase.SUCCEEDED]
        current = [pod for pod in succeeded if view.is_current(pod)]
        if current and len(succeeded) >= replicas > 0:
            yield ObservedEvent(
                JobEvent.TASK_COMPLETED,
                name,
                pod=current[-1]["metadata"]["name"],
                index=index_of(current[-1]),
                since=max(map(finished_at, current)),
                message=f"all {replicas} pods of task {name} succeeded",
            )
        yield from _task_failed(view, task, task_pods)


def _task_failed(view: JobView, task: Object, pods: list[Object]) -> Iterator[ObservedEvent]:
    """Yield an event if the containers of a task were restarted too often."""
    allowed = int(task.get("maxRetry") or DEFAULT_RETRIES)
    if allowed < 0:
        return
    alive = [pod for pod in pods if not is_finished(pod) and view.is_current(pod)]
    if not alive:
        return
    restarts = {pod["metadata"]["name"]: _restarts(pod) for pod in alive}
    if sum(restarts.values()) >= allowed:
        worst = max(alive, key=lambda pod: restarts[pod["metadata"]["name"]])
        yield ObservedEvent(
            JobEvent.TASK_FAILED,
            task["name"],
            worst["metadata"]["name"],
            index_of(worst),
            since=created_at(worst),
            message=f"containers of task {task['name']} restarted {sum(restarts.values())} times",
        )


def _evicted(view: JobView) -> Iterator[ObservedEvent]:
    """Yield events for pods that the status counts and that something else deleted."""
    recorded = view.status.get("taskStatusCount") or {}
    for task in view.tasks:
        name, replicas = task["name"], int(task.get("replicas") or 0)
        counted = sum(((recorded.get(name) or {}).get("phase") or {}).values())
        lost = min(counted, replicas) - sum(view.counts.by_task.get(name, {}).values())
        if lost <= 0:
            continue
        for index in _missing_indices(view, task, replicas)[:lost]:
            pod = pod_name(view.job, task, index)
            yield ObservedEvent(
                JobEvent.POD_EVICTED,
                name,
                pod,
                index,
                since=view.now,
                message=_why_lost(view, pod),
            )


def _why_lost(view: JobView, name: str) -> str:
    """Describe why a pod is lost, by the condition that the scheduler writes before an eviction."""
    pod = view.by_name.get(name)
    if pod is None:
        return f"pod {name} was deleted or evicted"
    for condition in status_of(pod).get("conditions") or ():
        is_disrupted = condition.get("type") == PodCondition.DISRUPTION_TARGET
        if is_disrupted and condition.get("status") == "True":
            why = str(condition.get("message") or "")
            return f"pod {name} was {why if why.startswith('evicted ') else 'evicted'}"
    return f"pod {name} was deleted"


def _missing_indices(view: JobView, task: Object, replicas: int) -> list[int]:
    """Return the indices whose pod is terminating, then those without a pod."""
    terminating, missing = [], []
    for index in range(replicas):
        pod = view.by_name.get(pod_name(view.job, task, index))
        if pod is None:
            missing.append(index)
        elif is_deleting(pod) and view.is_current(pod):
            terminating.append(index)
    return terminating + missing


def stored_evictions(job: Object) -> dict[str, float]:
    """Return the pods with an eviction timeout, and the time of each eviction."""
    try:
        found = json.loads(annotations_of(job).get(EVICTED_PODS) or "{}")
        return {str(name): float(at) for name, at in found.items()}
    except (ValueError, AttributeError):
        return {}


def _evicted_before(view: JobView) -> Iterator[ObservedEvent]:
    evictions = stored_evictions(view.job)
    if not evictions:
        return
    for task in view.tasks:
        for index in range(int(task.get("replicas") or 0)):
            name = pod_name(view.job, task, index)
            if name not in evictions or has_returned(view, name):
                continue
            yield ObservedEvent(
                JobEvent.POD_EVICTED,
                task["name"],
                name,
                index,
                since=evictions[name],
                message=f"pod {name} was evicted and has not returned",
            )


def has_returned(view: JobView, name: str) -> bool:
    """Return whether a pod of that name exists and has started."""
    pod = view.by_name.get(name)
    return pod is not None and not is_deleting(pod) and pod_phase(pod) != PodPhase.PENDING


def _statuses(pod: Object) -> Iterator[Object]:
    status = status_of(pod)
    for group in ("initContainerStatuses", "containerStatuses"):
        yield from status.get(group) or ()


def _restarts(pod: Object) -> int:
    return sum(int(status.get("restartCount") or 0) for status in _statuses(pod))


def exit_codes(pod: Object) -> frozenset[int]:
    """Return the non-zero exit codes of all containers; Volcano reads only the first container."""
    codes = (
        ((status.get("state") or {}).get("terminated") or {}).get("exitCode")
        for status in _statuses(pod)
    )
    return frozenset(code for code in codes if code)


def finished_at(pod: Object) -> float:
    """Return when the last container finished; the pod's creation time if unknown."""
    times = [
        seconds(((status.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for status in _statuses(pod)
    ]
    return max((time for time in times if time is not None), default=created_at(pod))


failed_at = finished_at


def partition_of(pod: Object) -> str | None:
    """Return the partition in a pod's labels."""
    labels = pod["metadata"].get("labels") or {}
    found = labels.get(wellknown.PARTITION_ID)
    return None if found is None else str(found)
