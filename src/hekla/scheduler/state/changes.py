"""Every change of the scheduler's cluster state, as data.

Watch events, and assumptions about writes that the watch has not confirmed, become changes. `apply`
is the only place that writes them to the cluster. So changes can be held back while a cycle reads
the cluster, and recorded and applied again: equal changes in equal order give equal state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from hekla.api import core, nodeinfo, scheduling, topology
from hekla.scheduler.state import wire
from hekla.scheduler.state.cluster import Cluster
from hekla.scheduler.state.load import Reading
from hekla.scheduler.state.usage_history import Past

log = logging.getLogger("hekla.scheduler")

ConditionRows: TypeAlias = tuple[tuple[str, str, str, str], ...]
"""Type, status, reason and message of each condition."""


class Put(msgspec.Struct, frozen=True, tag="put", omit_defaults=True):
    """An object from the watch; its type is that of its kind."""

    kind: str
    object: Any
    is_step: bool = False
    """For a pod: only node, phase and conditions differ from the previous version."""


class Gone(msgspec.Struct, frozen=True, tag="gone"):
    """A deleted object."""

    kind: str
    namespace: str
    name: str
    uid: str = ""


class Assumed(msgspec.Struct, frozen=True, tag="assumed", omit_defaults=True):
    """A bind was sent: the pod counts as placed, with the annotations written to it."""

    uid: str
    node: str
    notes: Mapping[str, str] = {}


class Unbound(msgspec.Struct, frozen=True, tag="unbound"):
    """A bind failed or was not sent: the pod is pending again."""

    uid: str
    node: str


class Leaves(msgspec.Struct, frozen=True, tag="leaves"):
    """An eviction was sent."""

    uid: str


class Stays(msgspec.Struct, frozen=True, tag="stays"):
    """An eviction was refused: the pod runs on, and for a while is not considered as a victim."""

    uid: str


class Evictable(msgspec.Struct, frozen=True, tag="evictable"):
    """A pod whose eviction was refused may be considered as a victim again."""

    uid: str


class ConditionFields(Protocol):
    """The fields of a PodGroup condition that decisions depend on."""

    @property
    def type(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def message(self) -> str: ...


def condition_rows(conditions: Iterable[ConditionFields]) -> ConditionRows:
    """Return conditions of a PodGroup without their times, on which no decision depends."""
    return tuple((c.type, c.status, c.reason, c.message) for c in conditions)


class GroupWritten(msgspec.Struct, frozen=True, tag="group-written", omit_defaults=True):
    """The status of a PodGroup was sent, or is queued for sending."""

    job: str
    phase: str
    counts: tuple[int, int, int]
    domain: str | None = None
    conditions: ConditionRows = ()


class PodWritten(msgspec.Struct, frozen=True, tag="pod-written"):
    """The condition PodScheduled of a pod was sent; all empty if that failed."""

    uid: str
    condition: tuple[str, str, str]
    nominated_node: str = ""


class QueueWritten(msgspec.Struct, frozen=True, tag="queue-written"):
    """The allocated amounts of a queue were sent; None if the server does not have them."""

    queue: str
    allocated: Mapping[str, str | int | float] | None


class Due(msgspec.Struct, frozen=True, tag="due"):
    """Jobs and queues that the next cycle visits though they did not change."""

    jobs: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()


class Resources(msgspec.Struct, frozen=True, tag="resources"):
    """The resources in the order of their rows, which decides the order in messages."""

    names: tuple[str, ...]


class Elapsed(msgspec.Struct, frozen=True, tag="elapsed", omit_defaults=True):
    """Time passed, for the usage history."""

    at: float
    half_life_s: float
    tidy: bool = False
    """Whether accounts without usage are removed."""


class Recalled(msgspec.Struct, frozen=True, tag="recalled"):
    """Usage accounts as they were stored at a time."""

    at: float
    accounts: tuple[Past, ...]


class Measured(msgspec.Struct, frozen=True, tag="measured"):
    """Node loads, by the period of their means and by node."""

    periods: Mapping[int, Mapping[str, Reading]]


class Rescheduled(msgspec.Struct, frozen=True, tag="rescheduled"):
    """Overloaded nodes were rebalanced at this time."""

    at: float


class Settled(msgspec.Struct, frozen=True, tag="settled"):
    """A cycle visited everything that was due."""


Change: TypeAlias = (
    Put
    | Gone
    | Assumed
    | Unbound
    | Leaves
    | Stays
    | Evictable
    | GroupWritten
    | PodWritten
    | QueueWritten
    | Due
    | Resources
    | Elapsed
    | Recalled
    | Measured
    | Rescheduled
    | Settled
)


@dataclass(frozen=True, slots=True)
class Kind:
    """How objects of a kind are added to the cluster and removed from it."""

    type: type[Any]
    put: Callable[[Cluster, Any], None]
    drop: Callable[[Cluster, Gone], None]


def _put_queue(cluster: Cluster, obj: scheduling.Queue) -> None:
    cluster.job_table.set_queue(obj)


def _put_priority_class(cluster: Cluster, obj: core.PriorityClass) -> None:
    cluster.job_table.set_priority_class(obj)


def _put_group(cluster: Cluster, obj: scheduling.PodGroup) -> None:
    cluster.job_table.set_group(obj)


def _put_namespace(cluster: Cluster, obj: core.Namespace) -> None:
    cluster.namespaces[obj.name] = obj.labels


def _put_claim(cluster: Cluster, obj: core.PersistentVolumeClaim) -> None:
    cluster.claims[obj.namespace, obj.name] = obj


def _put_volume(cluster: Cluster, obj: core.PersistentVolume) -> None:
    cluster.volumes[obj.name] = obj


def _put_storage_class(cluster: Cluster, obj: core.StorageClass) -> None:
    cluster.storage_classes[obj.name] = obj


def _put_csi_node(cluster: Cluster, obj: core.CSINode) -> None:
    cluster.csi_nodes[obj.name] = obj


def _put_budget(cluster: Cluster, obj: core.PodDisruptionBudget) -> None:
    cluster.budgets[obj.namespace, obj.name] = obj


def _put_numa_topology(cluster: Cluster, obj: nodeinfo.Numatopology) -> None:
    cluster.numa_topologies[obj.name] = obj


KINDS: Final[dict[str, Kind]] = {
    "Queue": Kind(scheduling.Queue, _put_queue, lambda c, g: c.job_table.delete_queue(g.name)),
    "PriorityClass": Kind(
        core.PriorityClass,
        _put_priority_class,
        lambda c, g: c.job_table.delete_priority_class(g.name),
    ),
    "ResourceQuota": Kind(
        core.ResourceQuota, Cluster.set_quota, lambda c, g: c.delete_quota(g.namespace, g.name)
    ),
    "Namespace": Kind(core.Namespace, _put_namespace, lambda c, g: _discard(c.namespaces, g.name)),
    "PersistentVolumeClaim": Kind(
        core.PersistentVolumeClaim,
        _put_claim,
        lambda c, g: _discard(c.claims, (g.namespace, g.name)),
    ),
    "PersistentVolume": Kind(
        core.PersistentVolume, _put_volume, lambda c, g: _discard(c.volumes, g.name)
    ),
    "StorageClass": Kind(
        core.StorageClass, _put_storage_class, lambda c, g: _discard(c.storage_classes, g.name)
    ),
    "CSINode": Kind(core.CSINode, _put_csi_node, lambda c, g: _discard(c.csi_nodes, g.name)),
    "PodDisruptionBudget": Kind(
        core.PodDisruptionBudget,
        _put_budget,
        lambda c, g: _discard(c.budgets, (g.namespace, g.name)),
    ),
    "Numatopology": Kind(
        nodeinfo.Numatopology,
        _put_numa_topology,
        lambda c, g: _discard(c.numa_topologies, g.name),
    ),
    "HyperNode": Kind(
        topology.HyperNode, Cluster.set_hypernode, lambda c, g: c.delete_hypernode(g.name)
    ),
    "Node": Kind(core.Node, Cluster.set_node, lambda c, g: c.delete_node(g.name)),
    "PodGroup": Kind(
        scheduling.PodGroup,
        _put_group,
        lambda c, g: c.job_table.delete_group(g.namespace, g.name),
    ),
    "Pod": Kind(wire.Pod, Cluster.set_pod, lambda c, g: c.delete_pod(g.uid)),
}


def _discard(mapping: dict[Any, Any], key: object) -> None:
    mapping.pop(key, None)


def attempt(cluster: Cluster, change: Change) -> bool:
    """Apply one change; on an error, log it and continue with the next."""
    try:
        apply(cluster, change)
    except Exception:  # an error of hekla itself, found with an unusual object
        log.exception("%s cannot be applied and is skipped", _described(change))
        return False
    return True


def _described(change: Change) -> str:
    match change:
        case Put():
            meta = change.object.metadata
            return f"{change.kind} {meta.namespace}/{meta.name}"
        case Gone():
            return f"the end of {change.kind} {change.namespace}/{change.name}"
    return f"{change!r:.200}"


def apply(cluster: Cluster, change: Change) -> None:
    """Apply one change. A change of an object that no longer exists has no effect."""
    match change:
        case Put(is_step=True):
            cluster.advance_pod(change.object)
        case Put():
            KINDS[change.kind].put(cluster, change.object)
        case Gone():
            KINDS[change.kind].drop(cluster, change)
        case Assumed() | Unbound() | Leaves() | Stays() | PodWritten():
            _apply_to_task(cluster, change)
        case Evictable():
            cluster.unevictable.discard(change.uid)
        case GroupWritten():
            conditions = tuple(
                scheduling.PodGroupCondition(type=type, status=status, reason=reason, message=text)
                for type, status, reason, text in change.conditions
            )
            cluster.job_table.assume_group(
                change.job, change.phase, change.counts, change.domain, conditions
            )
        case QueueWritten():
            queue = cluster.queues.get(change.queue)
            if queue is not None:
                queue.allocated_written = change.allocated
        case Due():
            _mark_due(cluster, change.jobs, change.queues)
        case Resources():
            for name in change.names:
                cluster.dimensions.intern(name)
        case Elapsed():
            cluster.elapse(change.at, change.half_life_s, tidy=change.tidy)
        case Recalled():
            cluster.recall(change.accounts, change.at)
        case Measured():
            cluster.node_table.measure(change.periods)
        case Rescheduled():
            cluster.rescheduled_at = change.at
        case Settled():
            cluster.mark_clean()


def _apply_to_task(
    cluster: Cluster, change: Assumed | Unbound | Leaves | Stays | PodWritten
) -> None:
    task = cluster.tasks.get(change.uid)
    if task is None:
        return
    match change:
        case Assumed():
            cluster.assume(task, change.node, change.notes)
        case Unbound():
            if task.node_name == change.node:
                cluster.forget(task)
        case Leaves():
            cluster.release(task)
        case Stays():
            cluster.retain(task)
            cluster.unevictable.add(task.uid)
        case PodWritten():
            task.condition, task.nominated_node = change.condition, change.nominated_node
            if not any(change.condition) and task.job is not None:
                cluster.job_table.changed[task.job.key] = task.job


def _mark_due(cluster: Cluster, jobs: Iterable[str], queues: Iterable[str]) -> None:
    for key in jobs:
        job = cluster.jobs.get(key)
        if job is not None:
            cluster.job_table.changed[key] = job
    for name in queues:
        cluster.job_table.changed_queues[name] = None
