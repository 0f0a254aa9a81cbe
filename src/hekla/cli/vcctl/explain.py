"""`vcctl job explain`: why a job is pending, running or failed.

Note: the reason is in a condition of the PodGroup, written by the scheduler. The newest condition
counts: older ones are never unset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from hekla.api import wellknown
from hekla.api.wellknown import GroupCondition, JobPhase, PodGroupPhase, PodPhase, QueueState
from hekla.cli import terminal
from hekla.cli.vcctl.commands import VcctlCommand
from hekla.cli.vcctl.job_view import event_time
from hekla.cli.vcctl.options import Session, Target, connected, one_job
from hekla.cli.vcctl.output import age, field_at, name_of, namespace_of, phase_colour
from hekla.kube.resources import EVENTS, PODGROUPS, PODS, QUEUES
from hekla.sdk import job_commands, job_phases
from hekla.units.objects import Object

RECENT_EVENTS = 8
_QUOTA_NAMES = (
    wellknown.PODS,
    wellknown.COUNT_PREFIX,
    wellknown.REQUESTS_PREFIX,
    wellknown.LIMITS_PREFIX,
)


@click.command(
    cls=VcctlCommand,
    additive=True,
    examples=["vcctl job explain my-job", "vcctl job explain -N my-job -n ml"],
)
@one_job
@connected
def explain(session: Session, target: Target) -> None:
    """Explain why a job is pending, running or failed."""
    from hekla.cli.vcctl.jobs import find_job

    client = session.client
    job = find_job(session, target, "explain")
    namespace = namespace_of(job)
    group = client.find(PODGROUPS, job_commands.group_name(job), namespace=namespace)
    queue = client.find(QUEUES, field_at(job, "spec", "queue") or wellknown.DEFAULT_QUEUE)
    pods = client.list(
        PODS, namespace=namespace, label_selector=job_commands.pods_selector(name_of(job))
    ).items
    uids = {obj["metadata"]["uid"] for obj in (job, group, *pods) if obj is not None}
    events = [
        event
        for event in client.list(EVENTS, namespace=namespace)
        if field_at(event, "involvedObject", "uid") in uids
    ]
    terminal.echo("\n".join(explanation(job, group, queue, pods, events)))


def explanation(
    job: Object,
    group: Object | None,
    queue: Object | None,
    pods: list[Object],
    events: Iterable[Object],
) -> Iterator[str]:
    """Yield the explanation: the reason first, then its details."""
    phase = job_phases.phase_of(job)
    shown = terminal.style(phase, fg=phase_colour(phase))
    yield f"job {namespace_of(job)}/{name_of(job)} is {shown}"
    answer = _reason(job, group, queue, pods)
    for clause in answer.split("; "):
        yield f"  {clause}"
    for hint in _next_steps(job, group, queue, pods):
        yield f"  next: {hint}"
    yield from _group_lines(group, answer)
    yield from _queue_line(job, queue)
    yield from _pod_lines(pods)
    yield from _event_lines(event for event in events if not _repeats_reason(event, answer))


def _repeats_reason(event: Object, answer: str) -> bool:
    """Return whether an event only repeats the reason: the scheduler writes it in both places."""
    message = str(event.get("message") or "")
    return bool(message) and (message in answer or answer in message)


def verdict(group: Object | None) -> Object | None:
    """Return the newest condition; older ones stay true forever."""
    conditions = field_at(group or {}, "status", "conditions") or []
    return max(conditions, key=lambda one: str(one.get("lastTransitionTime") or ""), default=None)


def _reason(job: Object, group: Object | None, queue: Object | None, pods: list[Object]) -> str:
    phase, name = (
        job_phases.phase_of(job),
        field_at(job, "spec", "queue") or wellknown.DEFAULT_QUEUE,
    )
    if phase == JobPhase.ABORTED:
        return "it is suspended and can be resumed"
    if phase == JobPhase.COMPLETED:
        return "it has completed"
    if phase in (JobPhase.FAILED, JobPhase.TERMINATED):
        return _why_failed(job, pods)
    if phase == JobPhase.RUNNING:
        waiting = sum(field_at(pod, "status", "phase") == PodPhase.PENDING for pod in pods)
        return (
            f"the gang is running; {waiting} more pods are pending"
            if waiting
            else "the gang is running"
        )
    if queue is None:
        return f"queue {name!r} does not exist"
    state = field_at(queue, "status", "state") or QueueState.OPEN
    if state != QueueState.OPEN:
        return f"queue {name!r} is {state}: it admits no jobs"
    if group is None:
        return "it has no PodGroup yet: no controller has handled it"
    newest = verdict(group)
    if newest is not None and newest.get("type") == GroupCondition.UNSCHEDULABLE:
        return str(newest.get("message") or newest.get("reason") or "it does not fit")
    if field_at(group, "status", "phase") in (None, "", PodGroupPhase.PENDING):
        return f"queue {name!r} has not admitted it yet"
    return _why_not_started(pods) or "it is admitted, and its pods are being scheduled"


def _why_not_started(pods: list[Object]) -> str:
    """Return what keeps a bound pod from starting, such as a missing image."""
    for pod in pods:
        for status in field_at(pod, "status", "containerStatuses") or ():
            waiting = field_at(status, "state", "waiting") or {}
            if waiting.get("reason") not in (None, "", "ContainerCreating", "PodInitializing"):
                why = ": ".join(filter(None, (waiting["reason"], waiting.get("message"))))
                return f"it is admitted, and pod {name_of(pod)} cannot start: {why}"
    return ""


def _why_failed(job: Object, pods: list[Object]) -> str:
    for pod in pods:
        for status in field_at(pod, "status", "containerStatuses") or ():
            ended = field_at(status, "state", "terminated") or field_at(
                status, "lastState", "terminated"
            )
            if ended and ended.get("exitCode"):
                why = ended.get("message") or ended.get("reason") or ""
                description = f"pod {name_of(pod)} exited with code {ended['exitCode']}"
                return f"{description}: {why}" if why else description
    failed = field_at(job, "status", "failed") or 0
    return f"{failed} of its pods failed" if failed else "it was terminated before it completed"


def _next_steps(
    job: Object, group: Object | None, queue: Object | None, pods: list[Object]
) -> Iterator[str]:
    phase, name = (
        job_phases.phase_of(job),
        field_at(job, "spec", "queue") or wellknown.DEFAULT_QUEUE,
    )
    me = f"-N {name_of(job)} -n {namespace_of(job)}"
    if phase == JobPhase.ABORTED:
        yield f"vcctl job resume {me}"
    elif phase in (JobPhase.FAILED, JobPhase.TERMINATED):
        yield f"vcctl job logs {me}"
    elif phase == JobPhase.PENDING and queue is None:
        yield f"vcctl queue create -n {name}"
    elif phase == JobPhase.PENDING and field_at(queue or {}, "status", "state") in (
        QueueState.CLOSED,
        QueueState.CLOSING,
    ):
        yield f"vcctl queue operate -n {name} -a open"
    elif phase == JobPhase.PENDING and group is not None and not _why_not_started(pods):
        yield "vcctl queue top"


def _group_lines(group: Object | None, answer: str) -> Iterator[str]:
    if group is None:
        return
    spec, status = group.get("spec") or {}, group.get("status") or {}
    yield ""
    phase = status.get("phase") or PodGroupPhase.PENDING
    yield f"PodGroup {name_of(group)}: {phase}, {spec.get('minMember', 0)} members minimum"
    if requested := _amounts(spec.get("minResources")):
        yield f"  minResources {requested}"
    for condition in status.get("conditions") or ():
        if condition.get("message") == answer:
            yield f"  {condition.get('type')} since {age(condition.get('lastTransitionTime'))}"
            continue
        why = ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))
        yield f"  {condition.get('type')} {age(condition.get('lastTransitionTime'))} ago: {why}"


def _queue_line(job: Object, queue: Object | None) -> Iterator[str]:
    if queue is None:
        return
    state = field_at(queue, "status", "state") or QueueState.OPEN
    used = _amounts(field_at(queue, "status", "allocated")) or "nothing"
    yield f"Queue {name_of(queue)}: {state}, uses {used}"


def _amounts(amounts: Object | None) -> str:
    """Format resources without zeros and without the names of quotas."""
    return ", ".join(
        f"{name} {amount}"
        for name, amount in sorted((amounts or {}).items())
        if not name.startswith(_QUOTA_NAMES) and str(amount) != "0"
    )


def _pod_lines(pods: list[Object]) -> Iterator[str]:
    if not pods:
        return
    counts: dict[str, int] = {}
    for pod in pods:
        phase = field_at(pod, "status", "phase") or PodPhase.PENDING
        counts[phase] = counts.get(phase, 0) + 1
    yield "Pods: " + ", ".join(f"{count} {phase}" for phase, count in sorted(counts.items()))
    messages: dict[str, int] = {}
    for pod in pods:
        for condition in field_at(pod, "status", "conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                text = condition.get("message") or condition.get("reason") or ""
                messages[text] = messages.get(text, 0) + 1
    for text, count in sorted(messages.items()):
        yield f"  {count} not placed: {text}"


def _event_lines(events: Iterable[Object]) -> Iterator[str]:
    newest = sorted(events, key=event_time)[-RECENT_EVENTS:]
    if newest:
        yield "Events, newest last:"
    for event in newest:
        what = f"{field_at(event, 'involvedObject', 'kind')} {event.get('reason', '')}"
        yield f"  {age(event_time(event))} ago  {what}: {event.get('message', '')}"
