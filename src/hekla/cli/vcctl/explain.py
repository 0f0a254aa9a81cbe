"""`vcctl job explain`: why a job is pending, running or failed, with the details."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import click

from hekla.api import wellknown
from hekla.api.wellknown import PodGroupPhase, PodPhase, QueueState
from hekla.cli import terminal
from hekla.cli.vcctl.commands import VcctlCommand, program
from hekla.cli.vcctl.job_view import event_time
from hekla.cli.vcctl.options import Session, Target, connected, one_job
from hekla.cli.vcctl.output import age, field_at, name_of, namespace_of, phase_colour
from hekla.kube.resources import EVENTS, PODGROUPS, PODS, QUEUES
from hekla.sdk import explanation as explanations
from hekla.sdk import job_commands, pending_reasons
from hekla.units.objects import Object
from hekla.units.quantity import QuantityError, parse_quantity

RECENT_EVENTS = 8
_DECIMAL_SUFFIXES = ("k", "M", "G", "T", "P", "E")
_QUOTA_NAMES = (
    wellknown.PODS,
    wellknown.COUNT_PREFIX,
    wellknown.REQUESTS_PREFIX,
    wellknown.LIMITS_PREFIX,
)


@click.command(
    cls=VcctlCommand,
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
    queue = client.find(QUEUES, explanations.queue_of(job))
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
    found = explanations.explanation(job, group, queue, pods, program=program())
    head, *lines = str(found).splitlines()
    shown = terminal.style(found.phase, fg=phase_colour(found.phase))
    yield head.removesuffix(found.phase) + shown
    yield from lines
    answer = found.reason
    yield from _group_lines(group, answer)
    yield from _queue_line(job, queue)
    yield from _pod_lines(pods)
    yield from _event_lines(event for event in events if not _repeats_reason(event, answer))


def _repeats_reason(event: Object, answer: str) -> bool:
    """Return whether an event only repeats the reason: the scheduler writes it in both places."""
    message = str(event.get("message") or "")
    return bool(message) and (message in answer or answer in message)


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
        if condition.get("status") == "False":
            continue
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
        f"{name} {_plain(amount)}"
        for name, amount in sorted((amounts or {}).items())
        if not name.startswith(_QUOTA_NAMES) and str(amount) != "0"
    )


def _plain(amount: str | int | float) -> str:
    """Return an amount as the scheduler writes it: `3000` for the API's canonical `3k`."""
    text = str(amount)
    if not text.endswith(_DECIMAL_SUFFIXES):
        return text
    try:
        return str(parse_quantity(text).value())
    except QuantityError:
        return text


def _pod_lines(pods: list[Object]) -> Iterator[str]:
    if not pods:
        return
    counts: dict[str, int] = {}
    for pod in pods:
        phase = field_at(pod, "status", "phase") or PodPhase.PENDING
        counts[phase] = counts.get(phase, 0) + 1
    yield "Pods: " + ", ".join(f"{count} {phase}" for phase, count in sorted(counts.items()))
    for gates, count in sorted(_gates(pods).items()):
        if gates == wellknown.QUEUE_ALLOCATION_GATE:
            yield f"  {count} held until the queue allows them: {gates}"
            continue
        yield f"  {count} held by scheduling gates: {gates}; remove them to have these pods placed"
    messages: dict[str, int] = {}
    for pod in pods:
        for condition in field_at(pod, "status", "conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                text = condition.get("message") or condition.get("reason") or ""
                messages[text] = messages.get(text, 0) + 1
    for text, count in sorted(messages.items()):
        yield f"  {count} not placed: {text}"


def _gates(pods: list[Object]) -> Counter[str]:
    """Count pods by the names of their scheduling gates."""
    named = map(pending_reasons.gates_of, pods)
    return Counter(", ".join(gates) for gates in named if gates)


def _event_lines(events: Iterable[Object]) -> Iterator[str]:
    newest = sorted(events, key=event_time)[-RECENT_EVENTS:]
    if newest:
        yield "Events, newest last:"
    for event in newest:
        what = f"{field_at(event, 'involvedObject', 'kind')} {event.get('reason', '')}"
        yield f"  {age(event_time(event))} ago  {what}: {event.get('message', '')}"
