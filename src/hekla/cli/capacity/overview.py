"""Jobs and queues beside the nodes: which jobs run, and why others wait. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hekla.api import wellknown
from hekla.api.wellknown import (
    DEFAULT_QUEUE,
    SUBMITTED_BY,
    JobPhase,
    PodGroupPhase,
    PodPhase,
    QueueState,
)
from hekla.cli.capacity import gpus, node_table
from hekla.cli.capacity.cluster import Scope
from hekla.cli.capacity.gpus import GpuRow, gpu_rows
from hekla.cli.capacity.usage import MAX_REASON, Nanos, NodeUse, PodUse, add, canonical, nanos_of
from hekla.sdk import job_phases, pending_reasons
from hekla.units.objects import Object

NO_GROUP: Final = "it has no PodGroup yet: no controller has handled it"
ENDED: Final = frozenset({*JobPhase.FINISHED, JobPhase.ABORTED})
# The scheduler's message starts with what the columns show.
_COUNTS: Final = re.compile(r"^\d+/\d+ tasks in gang unschedulable: ")


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A PodGroup as far as `hekla top` shows it."""

    namespace: str
    name: str
    owner: str
    """The UID of its controller; empty if it has none."""
    shown_name: str
    queue: str
    phase: str
    min_member: int
    user: str
    created: str
    requested: Nanos
    reason: str


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A Volcano Job as far as `hekla top` shows it."""

    namespace: str
    name: str
    uid: str
    queue: str
    phase: str
    pods: int
    user: str
    created: str


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue as far as `hekla top` shows it."""

    name: str
    state: str
    allocated: Nanos
    deserved: Nanos
    capability: Nanos


@dataclass(slots=True)
class JobRow:
    """A job that runs or waits."""

    namespace: str
    name: str
    queue: str
    user: str
    created: str
    wanted: int
    """The number of its pods, or of those that it needs to start."""
    requested: Nanos
    running: int = 0
    allocated: Nanos = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)
    reason: str = ""


@dataclass(slots=True)
class Overview:
    """What one screen of `hekla top` shows."""

    nodes: list[NodeUse]
    queues: list[QueueInfo]
    running: list[JobRow]
    waiting: list[JobRow]
    scope: Scope
    gpus: list[GpuRow] = field(default_factory=list)
    has_deserved: bool = True
    """Whether the scheduler uses `spec.deserved` of queues."""


def group_info(group: Object) -> GroupInfo:
    """Return what counts of a PodGroup."""
    metadata, spec = group["metadata"], group.get("spec") or {}
    owners = metadata.get("ownerReferences") or ()
    owner: Mapping[str, Any] = next((one for one in owners if one.get("controller")), {})
    text = next((reason.text for reason in pending_reasons.of_group(group)), "")
    return GroupInfo(
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata["name"]),
        owner=str(owner.get("uid") or ""),
        shown_name=str(owner.get("name") or metadata["name"]),
        queue=str(spec.get("queue") or DEFAULT_QUEUE),
        phase=str((group.get("status") or {}).get("phase") or PodGroupPhase.PENDING),
        min_member=int(spec.get("minMember") or 0),
        user=_user(group),
        created=str(metadata.get("creationTimestamp") or ""),
        requested=nanos_of(spec.get("minResources") or {}),
        reason=_COUNTS.sub("", text)[:MAX_REASON],
    )


def job_info(job: Object) -> JobInfo:
    """Return what counts of a Job."""
    metadata, spec = job["metadata"], job.get("spec") or {}
    return JobInfo(
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata["name"]),
        uid=str(metadata.get("uid") or ""),
        queue=str(spec.get("queue") or DEFAULT_QUEUE),
        phase=job_phases.phase_of(job),
        pods=sum(int(task.get("replicas") or 0) for task in spec.get("tasks") or ()),
        user=_user(job),
        created=str(metadata.get("creationTimestamp") or ""),
    )


def queue_info(queue: Object) -> QueueInfo:
    """Return what counts of a queue."""
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    return QueueInfo(
        name=str(queue["metadata"]["name"]),
        state=str(status.get("state") or QueueState.OPEN),
        allocated=nanos_of(status.get("allocated") or {}),
        deserved=nanos_of(spec.get("deserved") or {}),
        capability=nanos_of(spec.get("capability") or {}),
    )


def _user(obj: Object) -> str:
    """Return the user; a service account as `namespace:name`, or `name` for one of `hekla user`."""
    name = str((obj["metadata"].get("annotations") or {}).get(SUBMITTED_BY) or "")
    account = name.removeprefix("system:serviceaccount:")
    first, _, second = account.partition(":")
    return first if account != name and first == second else account


def overview(
    nodes: list[NodeUse],
    pods: Iterable[PodUse],
    queues: Iterable[QueueInfo],
    groups: Iterable[GroupInfo],
    jobs: Iterable[JobInfo],
    scope: Scope,
    *,
    has_deserved: bool = True,
) -> Overview:
    """Return the nodes, the queues, and the jobs: the largest first, of waiting ones the oldest."""
    pods = list(pods)
    holders: dict[tuple[str, str], tuple[str, str]] = {}
    by_uid = {job.uid: job for job in jobs}
    by_group: dict[tuple[str, str], list[PodUse]] = {}
    for pod in pods:
        if pod.group:
            by_group.setdefault((pod.namespace, pod.group), []).append(pod)
    running: list[JobRow] = []
    waiting: list[JobRow] = []
    owners: set[str] = set()
    for group in groups:
        owners.add(group.owner)
        holders[group.namespace, group.name] = (group.shown_name, group.user)
        row = _row(group, by_uid.get(group.owner), by_group.get((group.namespace, group.name), ()))
        if row is not None:
            (running if row.nodes else waiting).append(row)
    for uid, job in by_uid.items():
        if uid not in owners and job.phase == JobPhase.PENDING:
            waiting.append(_without_group(job))
    shown_queues = sorted(queues, key=lambda queue: queue.name)
    return Overview(
        nodes,
        [queue for queue in shown_queues if queue.name != wellknown.ROOT_QUEUE],
        sorted(running, key=_size),
        sorted(waiting, key=lambda row: (row.created, row.namespace, row.name)),
        scope,
        gpu_rows(nodes, pods, holders),
        has_deserved,
    )


def _row(group: GroupInfo, job: JobInfo | None, pods: Iterable[PodUse]) -> JobRow | None:
    """Return the row of a PodGroup; None if it neither runs nor waits."""
    unfinished = [pod for pod in pods if pod.phase not in (PodPhase.SUCCEEDED, PodPhase.FAILED)]
    row = JobRow(
        group.namespace,
        group.shown_name,
        group.queue,
        group.user,
        group.created,
        wanted=job.pods if job is not None else max(len(unfinished), group.min_member),
        requested=group.requested,
    )
    for pod in unfinished:
        if pod.is_on_node:
            row.nodes.add(pod.node)
            add(row.allocated, pod.requests)
        row.running += pod.phase == PodPhase.RUNNING
    if not row.nodes and _is_over(group, job, unfinished):
        return None
    own = next((pod.reason for pod in unfinished if pod.reason), "")
    row.reason = own if row.nodes else group.reason or own
    if not row.reason and not row.nodes:
        admitted = group.phase != PodGroupPhase.PENDING
        row.reason = "its pods are being scheduled" if admitted else "its queue has not admitted it"
    return row


def _is_over(group: GroupInfo, job: JobInfo | None, unfinished: list[PodUse]) -> bool:
    if job is not None:
        return job.phase in ENDED
    return group.phase == PodGroupPhase.COMPLETED or (
        not unfinished and group.phase in (PodGroupPhase.RUNNING, PodGroupPhase.UNKNOWN)
    )


def _without_group(job: JobInfo) -> JobRow:
    row = JobRow(job.namespace, job.name, job.queue, job.user, job.created, job.pods, {})
    row.reason = NO_GROUP
    return row


def _size(row: JobRow) -> tuple[int, int, str, str, str]:
    gpus, cpu = row.allocated.get("gpu", 0), row.allocated.get(wellknown.CPU, 0)
    return -gpus, -cpu, row.created, row.namespace, row.name


def as_json(found: Overview) -> dict[str, Any]:
    """Return an overview for programs."""
    return {
        "nodes": [node_table.as_json(use) for use in found.nodes],
        "gpus": [gpus.as_json(row) for row in found.gpus],
        "queues": [
            {
                "name": queue.name,
                "state": queue.state,
                "allocated": canonical(queue.allocated),
                "deserved": canonical(queue.deserved) if found.has_deserved else {},
                "capability": canonical(queue.capability),
                "waiting": sum(row.queue == queue.name for row in found.waiting),
            }
            for queue in found.queues
        ],
        "running": [_job_json(row) for row in found.running],
        "waiting": [_job_json(row) for row in found.waiting],
        "hidden": found.scope.hidden,
        "onlyNamespace": found.scope.partial,
    }


def _job_json(row: JobRow) -> dict[str, Any]:
    return {
        "namespace": row.namespace,
        "name": row.name,
        "queue": row.queue,
        "user": row.user,
        "pods": row.wanted,
        "runningPods": row.running,
        "allocated": canonical(row.allocated),
        "nodes": sorted(row.nodes),
        "createdAt": row.created,
        "reason": row.reason,
    }
