"""The scheduler's cache: follows the API server and turns events into changes of the cluster state.

Each kind is decoded into the fields that scheduling reads. Objects may arrive in any order and more
than once. The state is a function of the latest objects, and of binds that are sent and not
confirmed.

Note: a cycle runs in a thread, and nothing may change what it reads. So the cluster changes only
through `change`, which holds changes back between `freeze` and `thaw`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec

from hekla.api import core, scheduling, topology, wellknown
from hekla.api.wellknown import PodPhase
from hekla.kube.client import Client
from hekla.kube.errors import Forbidden, KubeError, NotFound
from hekla.kube.informers import Informer
from hekla.kube.recorder import Reference
from hekla.kube.resources import (
    CONFIGMAPS,
    CSI_NODES,
    HYPER_NODES,
    NAMESPACES,
    NODES,
    NUMA_TOPOLOGIES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODGROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_QUOTAS,
    STORAGE_CLASSES,
    Resource,
)
from hekla.scheduler.state import changes, wire
from hekla.scheduler.state.changes import KINDS, Change, Elapsed, Gone, Put
from hekla.scheduler.state.cluster import Cluster
from hekla.units.clock import Clock

log = logging.getLogger("hekla.scheduler")

SYNC_POLL_S = 0.02
TIME_STEP_S = 0.1
"""Changes within this time count as one moment in the usage history."""
FOLLOWED: Final[tuple[Resource[Any], ...]] = (
    PODGROUPS,
    PODS,
    NODES,
    QUEUES,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_DISRUPTION_BUDGETS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    CSI_NODES,
    HYPER_NODES,
    NUMA_TOPOLOGIES,
)
NEEDED: Final = frozenset([PODGROUPS.kind, PODS.kind, NODES.kind, QUEUES.kind])
"""Kinds that every decision needs. Without the others, decisions use less information."""

NodeSelector = tuple[tuple[str, str], ...]
"""Labels of which a node must have one to be used; empty for all nodes."""


class Cache:
    """The cluster state, kept current by informers.

    `wake` is called after every change that a decision may depend on. `notice` is called after
    changes that only affect status: a pod that was bound or started frees no resources.
    """

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        wake: Callable[[], None],
        notice: Callable[[], None],
        *,
        clock: Clock,
        node_selector: NodeSelector = (),
        config_namespace: str | None = wellknown.SYSTEM_NAMESPACE,
    ) -> None:
        self.cluster = cluster
        self.journal: list[Change] | None = None
        """Every change in order, while a decision log is written."""
        self._wake = wake
        self._notice = notice
        self._node_selector = node_selector
        self._held: list[Change] | None = None
        self._clock = clock
        self.half_life_s: float | None = None
        """The half-life of the usage history; None if no plugin needs it."""
        self.config_text: str | None = None
        """The scheduler's configuration from its ConfigMap; None if there is none."""
        self.config_reference: Reference | None = None
        self.informers: dict[str, Informer[Any]] = {
            resource.kind: Informer(client, resource, KINDS[resource.kind].type, clock=clock)
            for resource in FOLLOWED
        }
        for kind, informer in self.informers.items():
            informer.add_handler(self._handler(kind))
        self.groups: Informer[scheduling.PodGroup] = self.informers[PODGROUPS.kind]
        self.pods: Informer[wire.Pod] = self.informers[PODS.kind]
        self.queues: Informer[scheduling.Queue] = self.informers[QUEUES.kind]
        if config_namespace is not None:
            configuration = Informer(
                client,
                CONFIGMAPS,
                core.ConfigMap,
                namespace=config_namespace,
                field_selector=f"metadata.name={wellknown.SCHEDULER_CONFIG_MAP}",
                clock=clock,
            )
            configuration.add_handler(self._on_config)
            self.informers[CONFIGMAPS.kind] = configuration

    async def start(self, stack: AsyncExitStack) -> None:
        """Start the informers, and return when all have synced.

        A decision on a partial state could bind to a full node. Only kinds that decisions do not
        need may be missing, where the server does not have them or we may not read them.
        """
        for informer in self.informers.values():
            await stack.enter_async_context(informer)
        for kind, informer in self.informers.items():
            while not informer.has_synced:
                if kind not in NEEDED and isinstance(informer.problem, NotFound | Forbidden):
                    log.warning("%s; scheduling without %s", informer.problem, informer.resource)
                    break
                await asyncio.sleep(SYNC_POLL_S)

    def problems(self) -> dict[str, KubeError | None]:
        """Return the needed kinds that are not synced, with the error if there is one."""
        return {
            kind: informer.problem
            for kind, informer in self.informers.items()
            if kind in NEEDED and (not informer.has_synced or informer.problem is not None)
        }

    # --- changing -----------------------------------------------------------------------------

    def change(self, change: Change) -> None:
        """Apply a change, now or after the current cycle."""
        if self._held is not None:
            self._held.append(change)
            return
        if self.half_life_s is not None and not isinstance(change, Elapsed):
            self.advance_history(self._clock.now())
        self._make(change)

    def advance_history(self, now: float) -> None:
        """Advance the usage history to this time; only between cycles."""
        history = self.cluster.job_table.history
        if self.half_life_s is None:
            return
        if history is None or now - history.at >= TIME_STEP_S:
            self._make(Elapsed(now, self.half_life_s))

    def _make(self, change: Change) -> None:
        if self.journal is not None:
            self.journal.append(change)
        changes.attempt(self.cluster, change)

    def freeze(self) -> None:
        """Hold changes back while a cycle reads the cluster; changes held already stay held."""
        self._held = [] if self._held is None else self._held

    def thaw(self) -> list[Change]:
        """Return the changes that were held back, to be applied after those of the cycle."""
        held, self._held = self._held, None
        return held or []

    def reread_group(self, namespace: str, name: str) -> None:
        """Drop the assumed status of a PodGroup: its write failed."""
        group = self.groups.get(namespace, name)
        if group is not None:
            self.change(Put(PODGROUPS.kind, group))
            self._wake()

    def objects(self) -> Iterator[Put]:
        """Return all objects, in an order that builds the cluster quickly."""
        for kind in KINDS:
            for found in self.informers[kind].list():
                if kind != NODES.kind or self._sees(found):
                    yield Put(kind, found)

    # --- hearing ------------------------------------------------------------------------------

    def _handler(self, kind: str) -> Callable[[str, Any, Any], None]:
        filters: dict[str, Callable[[Any, Any], bool]] = {
            NODES.kind: _is_same_node,
            PODS.kind: self._is_same_pod,
            QUEUES.kind: _is_same_queue,
            HYPER_NODES.kind: _is_same_hypernode,
        }
        is_same = filters.get(kind)

        def on_event(event: str, old: Any, new: Any) -> None:
            if new is not None and old is not None and is_same is not None and is_same(old, new):
                return
            if new is not None and (kind != NODES.kind or self._sees(new)):
                is_step = kind == PODS.kind and old is not None and _is_step(old, new)
                is_echo = kind == PODGROUPS.kind and old is not None and self._is_echo(old, new)
                self.change(Put(kind, new, is_step))
                if is_echo:
                    return
                if is_step and _holds_its_place(new):
                    self._notice()
                    return
            else:
                meta = (old if new is None else new).metadata
                self.change(Gone(kind, meta.namespace, meta.name, meta.uid))
            self._wake()

        return on_event

    def _sees(self, node: core.Node) -> bool:
        pairs = self._node_selector
        return not pairs or any(node.labels.get(key) == value for key, value in pairs)

    def _is_same_pod(self, old: wire.Pod, new: wire.Pod) -> bool:
        """Tell whether only conditions and container states changed, which no decision reads."""
        return (
            (old.metadata, old.spec) == (new.metadata, new.spec)
            and old.status.phase == new.status.phase
            and old.status.nominated_node_name == new.status.nominated_node_name
            and new.metadata.uid in self.cluster.tasks
        )

    def _is_echo(self, old: scheduling.PodGroup, new: scheduling.PodGroup) -> bool:
        """Tell whether a PodGroup has only the status that we wrote, which is assumed already.

        Note: never True during a cycle, because the session changes phases tentatively.
        """
        job, status = self.cluster.jobs.get(f"{new.namespace}/{new.name}"), new.status
        return (
            self._held is None
            and job is not None
            and job.uid == new.uid
            and job.phase == status.phase
            and job.counts_written == (status.running, status.succeeded, status.failed)
            and job.domain == new.annotations.get(wellknown.JOB_ALLOCATED_HYPERNODE, "")
            and _notes_of_others(old) == _notes_of_others(new)
            and (old.labels, old.spec) == (new.labels, new.spec)
        )

    def _on_config(
        self, event: str, old: core.ConfigMap | None, new: core.ConfigMap | None
    ) -> None:
        self.config_text = None if new is None else new.data.get(wellknown.SCHEDULER_CONFIG_KEY)
        self.config_reference = None if new is None else config_reference(new)
        self._wake()


def config_reference(config: core.ConfigMap) -> Reference:
    """Return the reference to a ConfigMap for Events."""
    meta = config.metadata
    return Reference(
        kind=CONFIGMAPS.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        apiVersion=CONFIGMAPS.api_version,
    )


def _notes_of_others(group: scheduling.PodGroup) -> Mapping[str, str]:
    ours, notes = wellknown.JOB_ALLOCATED_HYPERNODE, group.annotations
    return {key: notes[key] for key in notes if key != ours} if ours in notes else notes


def _is_step(old: wire.Pod, new: wire.Pod) -> bool:
    """Tell whether only node and status of a pod changed."""
    return old.metadata == new.metadata and (
        old.spec == new.spec
        or msgspec.structs.replace(old.spec, node_name=new.spec.node_name) == new.spec
    )


def _holds_its_place(pod: wire.Pod) -> bool:
    return bool(pod.spec.node_name) and pod.status.phase in (PodPhase.PENDING, PodPhase.RUNNING)


def _is_same_node(old: core.Node, new: core.Node) -> bool:
    """Tell whether an update of a node is only a heartbeat."""
    return (
        old.metadata.labels == new.metadata.labels
        and old.metadata.annotations == new.metadata.annotations
        and old.spec == new.spec
        and old.status.allocatable == new.status.allocatable
        and old.status.images == new.status.images
        and _readiness(old) == _readiness(new)
    )


def _is_same_queue(old: scheduling.Queue, new: scheduling.Queue) -> bool:
    """Tell whether only the counters of the queue controller changed."""
    return (old.spec, old.annotations, old.status.state) == (
        new.spec,
        new.annotations,
        new.status.state,
    )


def _is_same_hypernode(old: topology.HyperNode, new: topology.HyperNode) -> bool:
    """Tell whether only the node count of a HyperNode changed."""
    return old.spec == new.spec


def _readiness(node: core.Node) -> list[str]:
    return [c.status for c in node.status.conditions if c.type == "Ready"]


def parse_node_selector(words: Iterable[str]) -> NodeSelector:
    """Parse Volcano's form: `key:value` pairs, of which a node must have one."""
    pairs = []
    for word in words:
        key, colon, value = word.partition(":")
        if not (colon and key):
            raise ValueError(f"{word!r} is not KEY:VALUE")
        pairs.append((key.strip(), value.strip()))
    return tuple(pairs)
