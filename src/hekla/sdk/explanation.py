"""Why a job is pending, running or failed: one reason, and the next steps. Pure functions.

Note: the scheduler's verdict is in a condition of the PodGroup. The newest condition counts: older
ones are never unset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain
from typing import Any

from hekla.api.wellknown import (
    DEFAULT_QUEUE,
    GroupCondition,
    JobPhase,
    PodGroupPhase,
    PodPhase,
    QueueState,
)
from hekla.sdk import job_phases, pending_reasons
from hekla.sdk.array_status import array_status, failure_lines
from hekla.sdk.exit_codes import signal_of
from hekla.units.objects import Object


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job is pending, running or failed; `str()` has one line for each clause.

    Example:
        Explanation(job="ml/train", phase="Pending", reason="1 of 4 pods fit", next_steps=())
    """

    job: str
    phase: str
    reason: str
    next_steps: tuple[str, ...]

    def __str__(self) -> str:
        clauses = (f"  {clause}" for clause in self.reason.split("; "))
        steps = (f"  next: {step}" for step in self.next_steps)
        return "\n".join([f"job {self.job} is {self.phase}", *clauses, *steps])

    def _repr_html_(self) -> str:
        # Names and messages come from other users.
        return f"<pre>{escape(str(self))}</pre>"


def explanation(
    job: Object,
    group: Object | None,
    queue: Object | None,
    pods: Sequence[Object],
    *,
    program: str = "hekla",
) -> Explanation:
    """Return the explanation of a job from its PodGroup, queue and pods.

    `program` is the command that the next steps name.
    """
    metadata = job["metadata"]
    return Explanation(
        f"{metadata['namespace']}/{metadata['name']}",
        job_phases.phase_of(job),
        _reason(job, group, queue, pods),
        tuple(_next_steps(job, group, queue, pods, program)),
    )


def queue_of(job: Object) -> str:
    """Return the name of a job's queue."""
    return str((job.get("spec") or {}).get("queue") or DEFAULT_QUEUE)


def _verdict(group: Object) -> Object:
    conditions = [
        one for one in _status(group).get("conditions") or () if one.get("status") != "False"
    ]
    newest: Object = max(
        conditions, key=lambda one: str(one.get("lastTransitionTime") or ""), default={}
    )
    return newest


def _status(obj: Object | None) -> dict[str, Any]:
    return (obj or {}).get("status") or {}


def _reason(job: Object, group: Object | None, queue: Object | None, pods: Sequence[Object]) -> str:
    match job_phases.phase_of(job):
        case JobPhase.ABORTED:
            return "it is suspended and can be resumed"
        case JobPhase.COMPLETED:
            return "it has completed"
        case JobPhase.FAILED | JobPhase.TERMINATED:
            return "; ".join(_why_failed(job, pods))
        case JobPhase.RUNNING:
            return _why_not_all_run(pods)
    return _why_pending(queue_of(job), group, queue, pods)


def _why_pending(
    name: str, group: Object | None, queue: Object | None, pods: Sequence[Object]
) -> str:
    if queue is None:
        return f"queue {name!r} does not exist"
    state = _status(queue).get("state") or QueueState.OPEN
    if state not in (QueueState.OPEN, QueueState.CLOSING):
        return f"queue {name!r} is {state}: it admits no jobs"
    if group is None:
        return "it has no PodGroup yet: no controller has handled it"
    newest = _verdict(group)
    if newest.get("type") == GroupCondition.UNSCHEDULABLE:
        return str(newest.get("message") or newest.get("reason") or "it does not fit")
    if _status(group).get("phase") in (None, "", PodGroupPhase.PENDING):
        return f"queue {name!r} has not admitted it yet"
    if found := _pod_reason(pods):
        return f"it is admitted, and {found}"
    return "it is admitted, and its pods are being scheduled"


def _pod_reason(pods: Sequence[Object]) -> str:
    """Return what keeps a pod from starting or running, such as a missing image."""
    return next((reason.text for pod in pods for reason in pending_reasons.of_pod(pod)), "")


def _why_not_all_run(pods: Sequence[Object]) -> str:
    pending = sum(_status(pod).get("phase") == PodPhase.PENDING for pod in pods)
    clauses = ["the gang is running"]
    if pending:
        clauses.append(f"{pending} more pods are pending")
    if found := _pod_reason(pods):
        clauses.append(found)
    return "; ".join(clauses)


def _why_failed(job: Object, pods: Sequence[Object]) -> list[str]:
    """Return what the controller says, such as that all retries are used, then the pods."""
    message = (_status(job).get("state") or {}).get("message") or ""
    said = [str(message)] if message else []
    if (array := array_status(job, pods)) is not None and array.failures:
        return [*said, str(array), *(f"indices {line}" for line in failure_lines(array.failures))]
    ended = _failed_container(pods)
    # An exit code that the message has is not repeated; OOMKilled and the like are.
    if ended and not (ended.endswith(": Error") and "exit code" in message):
        return [*said, ended]
    if said:
        return said
    failed = _status(job).get("failed") or 0
    return [f"{failed} of its pods failed" if failed else "it was terminated before it completed"]


def _failed_container(pods: Sequence[Object]) -> str:
    for pod in pods:
        status = _status(pod)
        lists = status.get("initContainerStatuses") or (), status.get("containerStatuses") or ()
        for one in chain(*lists):
            states = one.get("state") or {}, one.get("lastState") or {}
            ended = states[0].get("terminated") or states[1].get("terminated") or {}
            if ended.get("exitCode"):
                # The reason of the pod says why it was ended, such as Evicted.
                own = ": ".join(filter(None, (status.get("reason"), status.get("message"))))
                why = own or ended.get("message") or ended.get("reason") or ""
                if why == "Error":
                    why = signal_of(ended["exitCode"]) or why
                text = f"pod {pod['metadata']['name']} exited with code {ended['exitCode']}"
                return f"{text}: {why}" if why else text
    return ""


def _next_steps(
    job: Object,
    group: Object | None,
    queue: Object | None,
    pods: Sequence[Object],
    program: str,
) -> Iterator[str]:
    phase, name = job_phases.phase_of(job), queue_of(job)
    me = f"-N {job['metadata']['name']} -n {job['metadata']['namespace']}"
    if phase == JobPhase.ABORTED:
        yield f"{program} job resume {me}"
    elif phase in (JobPhase.FAILED, JobPhase.TERMINATED):
        yield f"{program} job logs {me}"
        yield f"{program} job retry {me}"
    elif phase == JobPhase.PENDING and queue is None:
        yield f"{program} queue create -n {name}"
    elif phase == JobPhase.PENDING and _status(queue).get("state") == QueueState.CLOSED:
        yield f"{program} queue operate -n {name} -a open"
    elif hint := _pod_hint(pods):
        yield hint
    elif phase == JobPhase.PENDING and _is_about_queue(_why_pending(name, group, queue, pods)):
        yield f"{program} queue top"


def _is_about_queue(reason: str) -> bool:
    """Return whether a queue is the cause: its use is of no interest if the nodes are too small."""
    return "queue " in reason


def _pod_hint(pods: Sequence[Object]) -> str:
    return next((reason.hint for pod in pods for reason in pending_reasons.of_pod(pod)), "")
