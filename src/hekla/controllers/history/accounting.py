"""What a job requested, used and came to: from its objects to a record. Pure functions.

A pod becomes a `PodAccount`, which outlives the pod. A job and the accounts of all its pods, of
every attempt, become a `JobRecord`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from hekla.api import arrays, wellknown
from hekla.api.history import (
    CANCELLED,
    MAX_MESSAGE,
    JobRecord,
    MeasuredUsage,
    TaskRequest,
    reported_usage,
)
from hekla.api.pod_resources import pod_requests
from hekla.api.wellknown import JobPhase, PodPhase
from hekla.controllers.objects import (
    annotations_of,
    created_at,
    job_phase,
    key_of,
    seconds,
    status_of,
    uid_of,
)
from hekla.records.store import PodAccount
from hekla.units.errors import QuantityError
from hekla.units.objects import Object

MAX_TASKS = 100
MAX_EXIT_CODES = 50
_ENDED_PODS = (PodPhase.SUCCEEDED, PodPhase.FAILED)


def pod_account(pod: Object, gone_at: float | None = None) -> PodAccount:
    """Return the account of a pod; `gone_at` is when its object was deleted."""
    status, metadata = status_of(pod), pod["metadata"]
    runs = list(_terminated(status))
    phase = str(status.get("phase") or "")
    ended = None
    if phase in _ENDED_PODS:
        ended = max(filter(None, (seconds(run.get("finishedAt")) for run in runs)), default=None)
        ended = ended or seconds(metadata.get("deletionTimestamp")) or gone_at or _held_from(pod)
    elif gone_at is not None:
        ended = gone_at
    codes = [int(run.get("exitCode") or 0) for run in runs]
    usage = reported_usage(pod)
    return PodAccount(
        uid=uid_of(pod),
        phase=phase,
        held_from=_held_from(pod),
        started=min(_starts(status), default=None),
        ended=ended,
        exit_code=next((code for code in codes if code), 0) if codes else None,
        reason=str(status.get("reason") or "")[:MAX_MESSAGE],
        requests=_requests(pod.get("spec") or {}),
        cpu_seconds=None if usage is None else usage.cpu_seconds,
        memory_peak_bytes=None if usage is None else usage.memory_peak_bytes,
    )


def _states(status: Object) -> Iterator[Object]:
    """Yield the states of all containers, main ones first."""
    for each in chain(
        status.get("containerStatuses") or (), status.get("initContainerStatuses") or ()
    ):
        yield each.get("state") or {}


def _terminated(status: Object) -> Iterator[Object]:
    for state in _states(status):
        if state.get("terminated"):
            yield state["terminated"]


def _starts(status: Object) -> Iterator[float]:
    for state in _states(status):
        for kind in ("running", "terminated"):
            if started := seconds((state.get(kind) or {}).get("startedAt")):
                yield started


def _held_from(pod: Object) -> float | None:
    status = status_of(pod)
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "True":
            return seconds(condition.get("lastTransitionTime"))
    return seconds(status.get("startTime"))


def _requests(spec: Mapping[str, Any]) -> dict[str, float]:
    try:
        return {name: float(amount) for name, amount in sorted(pod_requests(spec).items())}
    except QuantityError:
        return {}  # a pod template is not validated like a pod


@dataclass(frozen=True, slots=True)
class JobView:
    """A job that has ended or was deleted, and the accounts of all its pods."""

    job: Object
    group: Object | None
    pods: Sequence[PodAccount]
    now: float
    deleted_at: float | None = None

    @property
    def is_settled(self) -> bool:
        """Whether nothing of the record can change any more."""
        return all(pod.ended is not None or pod.held_from is None for pod in self.pods)


def job_record(view: JobView) -> JobRecord:
    """Return the record of a job."""
    job, spec = view.job, view.job.get("spec") or {}
    namespace, name = key_of(job)
    submitted, finished = created_at(job), _finished(view)
    started = min((pod.started for pod in view.pods if pod.started), default=None)
    tasks = list(_tasks(spec))
    phase, reason, message = _outcome(view)
    succeeded, failed = _counted(view)
    return JobRecord(
        uid=uid_of(job),
        namespace=namespace,
        name=name,
        phase=phase,
        reason=reason[:MAX_MESSAGE],
        message=message[:MAX_MESSAGE],
        user=annotations_of(job).get(wellknown.SUBMITTED_BY, "")[:MAX_MESSAGE],
        queue=_queue(view),
        priority_class=str(spec.get("priorityClassName") or ""),
        submitted=_moment(submitted),
        started=None if started is None else _moment(started),
        finished=_moment(finished),
        wait_seconds=max(0.0, (finished if started is None else started) - submitted),
        run_seconds=0.0 if started is None else max(0.0, finished - started),
        tasks=tasks[:MAX_TASKS],
        requests=_total((task.requests, task.pods) for task in tasks),
        pods_succeeded=succeeded,
        pods_failed=failed,
        retries=int(status_of(job).get("retryCount") or 0) + _retried_indices(job),
        exit_codes=_exit_codes(view.pods),
        resource_seconds=_total((pod.requests, _held_s(pod, finished)) for pod in view.pods),
        measured=_measured(view.pods),
    )


def _retried_indices(job: Object) -> int:
    """Return how often indices of an array were retried in all; 0 for other jobs."""
    try:
        found = json.loads(annotations_of(job).get(wellknown.ARRAY_RETRIED) or "{}")
        return sum(int(times) * len(arrays.expand(str(text))) for times, text in found.items())
    except (arrays.ArrayError, ValueError, AttributeError):
        return 0  # someone has changed the annotation


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _finished(view: JobView) -> float:
    state = status_of(view.job).get("state") or {}
    if job_phase(view.job) in JobPhase.FINISHED:
        return seconds(state.get("lastTransitionTime")) or view.deleted_at or view.now
    deleting = seconds(view.job["metadata"].get("deletionTimestamp"))
    return deleting or view.deleted_at or view.now


def _outcome(view: JobView) -> tuple[str, str, str]:
    """Return phase, reason and message."""
    phase, state = job_phase(view.job), status_of(view.job).get("state") or {}
    if phase in JobPhase.FINISHED:
        return phase, str(state.get("reason") or ""), str(state.get("message") or "")
    return CANCELLED, "Deleted", f"deleted while {phase or JobPhase.PENDING}"


def _queue(view: JobView) -> str:
    spec = (view.group or {}).get("spec") or {}
    named = (view.job.get("spec") or {}).get("queue") or spec.get("queue")
    return str(named or wellknown.DEFAULT_QUEUE)


def _tasks(spec: Object) -> Iterator[TaskRequest]:
    for task in spec.get("tasks") or ():
        pod = (task.get("template") or {}).get("spec") or {}
        yield TaskRequest(
            str(task.get("name") or ""), int(task.get("replicas") or 0), _requests(pod)
        )


def _total(parts: Iterable[tuple[Mapping[str, float], float]]) -> dict[str, float]:
    """Return the sums of amounts times a factor."""
    total: dict[str, float] = {}
    for amounts, factor in parts:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0.0) + amount * factor
    return {name: round(amount, 6) for name, amount in total.items() if amount}


def _held_s(pod: PodAccount, finished: float) -> float:
    if pod.held_from is None:
        return 0.0
    return max(0.0, (finished if pod.ended is None else pod.ended) - pod.held_from)


def _counted(view: JobView) -> tuple[int, int]:
    """Return how many pods succeeded and failed; the status counts only those of one attempt."""
    phases = Counter(pod.phase for pod in view.pods)
    status = status_of(view.job)
    return (
        max(phases[PodPhase.SUCCEEDED], int(status.get("succeeded") or 0)),
        max(phases[PodPhase.FAILED], int(status.get("failed") or 0)),
    )


def _exit_codes(pods: Iterable[PodAccount]) -> dict[str, int]:
    codes = Counter(pod.exit_code for pod in pods if pod.exit_code is not None)
    return {str(code): count for code, count in sorted(codes.items())[:MAX_EXIT_CODES]}


def _measured(pods: Iterable[PodAccount]) -> MeasuredUsage | None:
    """Return the usage of the measured pods, with their requests over the same time."""
    found = [pod for pod in pods if pod.cpu_seconds is not None and pod.started and pod.ended]
    if not found:
        return None
    cpu_s = cpu_requested = memory = memory_requested = 0.0
    for pod in found:
        ran_s = max(0.0, (pod.ended or 0.0) - (pod.started or 0.0))
        # Only what was requested can be used well or badly.
        if "cpu" in pod.requests:
            cpu_requested += pod.requests["cpu"] * ran_s
        if "memory" in pod.requests:
            memory += (pod.memory_peak_bytes or 0) * ran_s
            memory_requested += pod.requests["memory"] * ran_s
        cpu_s += pod.cpu_seconds or 0.0
    return MeasuredUsage(
        pods=len(found),
        cpu_seconds=round(cpu_s, 3),
        cpu_requested_seconds=round(cpu_requested, 3),
        memory_peak_bytes=max(pod.memory_peak_bytes or 0 for pod in found),
        memory_byte_seconds=memory,
        memory_requested_byte_seconds=memory_requested,
    )
