"""What a limit in a verdict is: a capability, the cluster, or a share; and what changes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal

from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.verdict import Blocked
from hekla.scheduler.state.dimensions import show_amount
from hekla.scheduler.state.model import Job, Queue, Task
from hekla.scheduler.state.queue_tree import descendants, lineage

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of a queue for one resource."""

    kind: Literal["capability", "cluster", "share"]
    queue: str
    """The queue that has the limit: the job's, or one above it."""

    @property
    def basis(self) -> str:
        """What the allowed amount is, for people."""
        if self.kind == "capability":
            return f"the capability of queue {self.queue!r}"
        if self.kind == "cluster":
            return "all in the cluster"
        return f"the share of queue {self.queue!r}"


def limit_of(session: Session, queue: Queue, resource: str, allowed: float) -> Limit:
    """Return what limits a queue to an amount."""
    row = session.dimensions.intern(resource)
    for above in lineage(queue, session.cluster.queues):
        if 0 < float(above.capability_r[row]) <= allowed:
            return Limit("capability", above.name)
    if float(session.total_r[row]) <= allowed:
        return Limit("cluster", queue.name)
    return Limit("share", queue.name)


def change_for(session: Session, limit: Limit, short: Blocked) -> str:
    """Return the smallest change after which the request is within the limit."""
    asked, allowed = (show_amount(short.resource, a) for a in (short.asked, short.allowed))
    over = show_amount(short.resource, short.used + short.asked - short.allowed)
    if limit.kind == "cluster":
        if short.asked > short.allowed:
            return f"request at most {allowed} {short.resource}, all there is, or add nodes"
        return f"wait for jobs to end, or add nodes with {over} more {short.resource}"
    setting = "capability" if limit.kind == "capability" else _share_setting(session)
    if short.asked > short.allowed:
        return (
            f"raise the {setting} of queue {limit.queue!r}, or request at most {allowed} "
            f"{short.resource} instead of {asked}"
        )
    by = f" by {over} {short.resource}" if limit.kind == "capability" else ""
    return f"wait for jobs of queue {limit.queue!r} to end, or raise its {setting}{by}"


def beyond_deserved(session: Session, job: Job) -> str:
    """Return by how much a job would take its queue beyond what it deserves; empty if it fits."""
    queue, need_r = job.queue, job.min_resources_r
    if queue is None or need_r is None:
        return ""
    if _shares_by_deserved(session):
        limits = [queue.deserved_r]
    else:
        limits = list(session.tiers.each(hooks.queue_limit, queue))
    for limit_r in limits:
        for row in job.min_rows:
            used = float(queue.claimed_r[row] - job.claimed_r[row] + need_r[row])
            if used > float(limit_r[row]):
                name = session.dimensions.names[row]
                deserved, would = (show_amount(name, a) for a in (float(limit_r[row]), used))
                return f"queue {queue.name!r} deserves {deserved} {name} and would use {would}"
    return ""


def _share_setting(session: Session) -> str:
    """Return the field of a queue that its share follows from."""
    return "deserved resources" if _shares_by_deserved(session) else "weight"


def _shares_by_deserved(session: Session) -> bool:
    names = {plugin.name for plugin, _ in session.tiers.calls(hooks.queue_limit)}
    return "capacity" in names


def above_capability(session: Session, queue: Queue, task: Task) -> list[Blocked]:
    """Return what the capability of a queue above does not allow a task, for the nearest one."""
    queues = session.cluster.queues
    for above in islice(lineage(queue, queues), 1, None):
        below = [queues[name] for name in descendants(above.name, queues)]
        blocked = [
            Blocked(session.dimensions.names[row], amount, float(above.capability_r[row]), used)
            for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True)
            if float(above.capability_r[row]) > 0
            and (used := sum(float(each.claimed_r[row]) for each in below)) + amount
            > float(above.capability_r[row])
        ]
        if blocked:
            return blocked
    return []


def absent(session: Session, resources: Iterable[str]) -> list[str]:
    """Return the resources that no node has."""
    rows = [(name, session.dimensions.row(name)) for name in resources]
    return sorted(name for name, row in rows if row is None or not session.total_r[row])


def absence(session: Session, names: list[str]) -> tuple[str, str]:
    """Return the message that no node has some resources, and the change that helps."""
    if len(session.nodes) == 0:
        return "the cluster has no nodes", "add a node"
    listed = " and ".join(names)
    return f"no node has {listed}", f"add a node with {listed}, or correct the request"
