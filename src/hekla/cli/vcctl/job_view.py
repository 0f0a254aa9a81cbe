"""The report of `vcctl job view`: a job as indented text, then its events.

Sections and their order are Volcano's. Three vendor annotations that Volcano prints for every task
are omitted; queue, priority, policies, volumes, devices and the state of each task are added.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hekla.api import arrays, wellknown
from hekla.cli.vcctl.output import age, field_at
from hekla.kube.errors import Forbidden
from hekla.kube.resources import EVENTS
from hekla.kube.sync_client import SyncClient
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.sdk.array_status import ArrayStatus

_COUNTS = (
    ("Succeeded", "succeeded"),
    ("Pending", "pending"),
    ("Running", "running"),
    ("Failed", "failed"),
    ("Terminating", "terminating"),
    ("Unknown", "unknown"),
    ("RetryCount", "retryCount"),
    ("Min Available", "minAvailable"),
    ("Version", "version"),
)


def events_of(client: SyncClient, job: Object) -> list[Object]:
    """Return the events of a job and of its PodGroup, oldest first.

    The scheduler reports on the PodGroup. Other recorders may leave out the uid or the kind of the
    object, so the name alone is selected.
    """
    from hekla.sdk.job_commands import group_name

    found: list[Object] = []
    for kind, name in (("Job", job["metadata"]["name"]), ("PodGroup", group_name(job))):
        listed = client.list(
            EVENTS,
            namespace=job["metadata"]["namespace"],
            field_selector=f"involvedObject.name={name}",
        )
        found += [event for event in listed if _is_about(event, kind, job)]
    return sorted(found, key=event_time)


def _is_about(event: Object, kind: str, job: Object) -> bool:
    """Return whether an event is not about another object of the same name."""
    about = event.get("involvedObject") or {}
    if about.get("kind") not in (None, "", kind):
        return False
    if kind == "Job" and about.get("uid"):
        return bool(about["uid"] == job["metadata"]["uid"])
    # batch/v1 has a Job, too.
    return about.get("apiVersion") in (None, "", wellknown.BATCH_API, wellknown.SCHEDULING_API)


def event_time(event: Object) -> str:
    return str(
        field_at(event, "series", "lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
        or ""
    )


def report_of(client: SyncClient, job: Object, *, conditions: bool = True) -> str:
    """Return the report of a job, with its events and the indices of an array."""
    status = None
    if arrays.array_of(job) is not None:
        from hekla.sdk.array_status import array_status
        from hekla.sdk.handle import JobHandle
        from hekla.sdk.job_commands import owned

        with suppress(Forbidden):
            status = array_status(job, owned(job, JobHandle(client, job).pods()))
    return report(job, events_of(client, job), conditions=conditions, array=status)


def report(
    job: Object,
    events: Iterable[Object],
    *,
    conditions: bool = True,
    array: ArrayStatus | None = None,
) -> str:
    """Return the report."""
    return "\n".join(
        [
            *_head(job),
            *_spec(job),
            *_status(job, conditions=conditions),
            *(_array(job, array) if array is not None else ()),
            *event_lines(list(events)),
        ]
    )


def _line(level: int, label: str, value: Any = None) -> str:
    text = f"{'  ' * level}{label}:"
    return text if value is None else f"{text}\t{value}"


def _map(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True) if value else "<none>"


def _head(job: Object) -> Iterator[str]:
    metadata = job["metadata"]
    yield _line(0, "Name", metadata.get("name", ""))
    yield _line(0, "Namespace", metadata.get("namespace", ""))
    yield _line(0, "Labels", _map(metadata.get("labels")))
    yield _line(0, "Annotations", _map(metadata.get("annotations")))
    yield _line(0, "API Version", job.get("apiVersion", ""))
    yield _line(0, "Kind", job.get("kind", ""))
    yield _line(0, "Metadata")
    yield _line(1, "Creation Timestamp", metadata.get("creationTimestamp", ""))
    yield _line(1, "Generate Name", metadata.get("generateName", ""))
    yield _line(1, "Generation", metadata.get("generation", 0))
    yield _line(1, "Resource Version", metadata.get("resourceVersion", ""))
    yield _line(1, "UID", metadata.get("uid", ""))


def _spec(job: Object) -> Iterator[str]:
    spec = job.get("spec") or {}
    yield _line(0, "Spec")
    yield _line(1, "Min Available", spec.get("minAvailable", 0))
    if spec.get("plugins"):
        yield _line(1, "Plugins")
        for name, arguments in sorted(spec["plugins"].items()):
            yield _line(2, name.capitalize(), f"[{' '.join(arguments or ())}]")
    yield _line(1, "Scheduler Name", spec.get("schedulerName", ""))
    yield _line(1, "Queue", spec.get("queue", ""))
    if spec.get("priorityClassName"):
        yield _line(1, "Priority Class", spec["priorityClassName"])
    if spec.get("maxRetry") is not None:
        yield _line(1, "Max Retry", spec["maxRetry"])
    if spec.get("minSuccess") is not None:
        yield _line(1, "Min Success", spec["minSuccess"])
    if spec.get("ttlSecondsAfterFinished") is not None:
        yield _line(1, "TTL Seconds After Finished", spec["ttlSecondsAfterFinished"])
    yield from _policies(1, spec)
    if spec.get("volumes"):
        yield _line(1, "Volumes")
        for volume in spec["volumes"]:
            claim = volume.get("volumeClaimName") or "<new claim>"
            yield f"    {volume.get('mountPath', '')}\t{claim}"
    yield _line(1, "Tasks")
    for task in spec.get("tasks") or ():
        yield from _task(task)


def _policies(level: int, owner: Object) -> Iterator[str]:
    if not owner.get("policies"):
        return
    yield _line(level, "Policies")
    for policy in owner["policies"]:
        events = [*(policy.get("events") or ()), *filter(None, [policy.get("event")])]
        if policy.get("exitCode") is not None:
            events.append(f"exit code {policy['exitCode']}")
        after = f" after {policy['timeout']}" if policy.get("timeout") else ""
        yield f"{'  ' * (level + 1)}{', '.join(events)}\t{policy.get('action', '')}{after}"


def _task(task: Object) -> Iterator[str]:
    pod = field_at(task, "template", "spec") or {}
    yield _line(2, "Name", task.get("name", ""))
    yield _line(2, "Replicas", task.get("replicas", 0))
    if task.get("minAvailable") is not None:
        yield _line(2, "Min Available", task["minAvailable"])
    if field_at(task, "dependsOn", "name"):
        yield _line(2, "Depends On", ", ".join(task["dependsOn"]["name"]))
    yield from _policies(2, task)
    yield _line(2, "Template")
    metadata = field_at(task, "template", "metadata") or {}
    if metadata.get("labels") or metadata.get("annotations"):
        yield _line(3, "Metadata")
        yield _line(4, "Labels", _map(metadata.get("labels")))
        yield _line(4, "Annotations", _map(metadata.get("annotations")))
    yield _line(3, "Spec")
    yield _line(4, "Containers")
    for container in pod.get("containers") or ():
        yield from _container(container)
    secrets = [secret.get("name", "") for secret in pod.get("imagePullSecrets") or ()]
    yield _line(4, "Image Pull Secrets", ", ".join(secrets) or "<none>")
    yield _line(4, "Restart Policy", pod.get("restartPolicy", ""))


def _container(container: Object) -> Iterator[str]:
    if container.get("command") or container.get("args"):
        yield _line(5, "Command")
        for word in [*(container.get("command") or ()), *(container.get("args") or ())]:
            yield f"{'  ' * 6}{word}"
    yield _line(5, "Image", container.get("image", ""))
    yield _line(5, "Name", container.get("name", ""))
    if container.get("ports"):
        yield _line(5, "Ports")
        for port in container["ports"]:
            yield _line(6, "Container Port", port.get("containerPort", ""))
            yield _line(6, "Name", port.get("name", ""))
    resources = container.get("resources") or {}
    if resources:
        yield _line(5, "Resources")
        for kind in ("limits", "requests"):
            if resources.get(kind):
                yield _line(6, kind.capitalize())
                for name, amount in resources[kind].items():
                    label = {"cpu": "Cpu", "memory": "Memory"}.get(name, name)
                    yield _line(7, label, amount)
    if container.get("workingDir"):
        yield _line(5, "Working Dir", container["workingDir"])


def _status(job: Object, *, conditions: bool) -> Iterator[str]:
    status = job.get("status") or {}
    yield _line(0, "Status")
    for label, key in _COUNTS:
        if status.get(key):
            yield _line(1, label, status[key])
    state = status.get("state") or {}
    if state.get("phase"):
        yield _line(1, "State")
        yield _line(2, "Phase", state["phase"])
        for label, key in (("Reason", "reason"), ("Message", "message")):
            if state.get(key):
                yield _line(2, label, state[key])
    if status.get("taskStatusCount"):
        yield _line(1, "Tasks")
        for name, counts in sorted(status["taskStatusCount"].items()):
            phases = ", ".join(f"{n} {phase}" for phase, n in sorted(counts["phase"].items()))
            yield _line(2, name, phases)
    if status.get("controlledResources"):
        yield _line(1, "Controlled Resources")
        for key, value in sorted(status["controlledResources"].items()):
            yield _line(2, key, value)
    if conditions and status.get("conditions"):
        yield _line(1, "Conditions")
        for condition in status["conditions"]:
            yield _line(2, "Status", condition.get("status", ""))
            yield _line(2, "TransitionTime", condition.get("lastTransitionTime", ""))


def _array(job: Object, status: ArrayStatus) -> Iterator[str]:
    from hekla.sdk.array_status import MAX_RANGES, failure_lines, retries_by_count

    marks = arrays.annotations_of(job)
    yield _line(0, "Array", str(status))
    if limit := marks.get(wellknown.ARRAY_PARALLELISM):
        yield _line(1, "Parallelism", limit)
    for state, indices in status.by_state.items():
        if indices:
            yield _line(1, state.capitalize(), arrays.compress(indices, limit=MAX_RANGES))
    for line in failure_lines(status.failures):
        yield f"{'  ' * 2}{line}"
    if retries := marks.get(wellknown.ARRAY_RETRIES):
        yield _line(1, "Retries of a failed index", retries)
    for times, ranges in retries_by_count(job).items():
        yield _line(1, f"Retried {times} times" if times > 1 else "Retried once", ranges)


def event_lines(events: list[Object]) -> Iterator[str]:
    """Yield the table of events. `Form` is Volcano's spelling of From, which scripts expect."""
    if not events:
        yield "Events: \t<none>"
        return
    yield "Events:"
    yield f"{'Type':<15}{'Reason':<40}{'Age':<30}{'Form':<40}Message"
    yield f"{'-------':<15}{'-------':<40}{'-------':<30}{'-------':<40}-------"
    for event in events:
        source = field_at(event, "source", "component") or event.get("reportingComponent") or ""
        yield (
            f"{event.get('type', ''):<15}{event.get('reason', ''):<40}{_age(event):<30}"
            f"{source:<40}{event.get('message', '')}"
        )


def _age(event: Object) -> str:
    count = field_at(event, "series", "count") or event.get("count") or 1
    last = age(event_time(event))
    if count <= 1:
        return last
    first = event.get("firstTimestamp") or event["metadata"].get("creationTimestamp")
    return f"{last} (x{count} over {age(first)})"
