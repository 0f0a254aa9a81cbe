"""Watch events folded into the cluster's state, one object at a time. The only writer of it.

Each kind is decoded into only what scheduling reads. Objects may come in any order and twice; what
a cycle sees is a function of the objects last heard of, and of the binds that were sent and are not
yet confirmed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from hekla.api import core, scheduling, wellknown
from hekla.kube.client import Client
from hekla.kube.errors import Forbidden, NotFound
from hekla.kube.informers import Informer
from hekla.kube.resources import (
    CONFIGMAPS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODGROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_QUOTAS,
    Resource,
)
from hekla.scheduler import wire
from hekla.scheduler.cluster import Cluster
from hekla.units.clock import Clock

log = logging.getLogger("hekla.scheduler")

SYNC_POLL_S = 0.02


class Cache:
    """A cluster that follows an API server. `changed` is called after every change that matters."""

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        changed: Callable[[], None],
        *,
        clock: Clock,
    ) -> None:
        self.cluster = cluster
        self._changed = changed
        self._clock = clock
        self.config_text: str | None = None
        """The scheduler's configuration as its ConfigMap has it, or None if there is none."""
        self.groups = Informer(client, PODGROUPS, scheduling.PodGroup)
        self.pods = Informer(client, PODS, wire.Pod)
        self.groups.add_handler(self._on_group)
        self.pods.add_handler(self._on_pod)
        self._informers: list[Informer[Any]] = [self.groups, self.pods]
        self._follow(client, NODES, core.Node, self._on_node)
        self._follow(client, QUEUES, scheduling.Queue, self._on_queue)
        self._follow(client, PRIORITY_CLASSES, core.PriorityClass, self._on_priority_class)
        self._follow(client, RESOURCE_QUOTAS, core.ResourceQuota, self._on_quota)
        self._follow(client, NAMESPACES, core.Namespace, self._on_namespace)
        self._follow(client, PERSISTENT_VOLUME_CLAIMS, core.PersistentVolumeClaim, self._on_claim)
        self._follow(client, POD_DISRUPTION_BUDGETS, core.PodDisruptionBudget, self._on_budget)
        self._follow(client, PERSISTENT_VOLUMES, core.PersistentVolume, self._on_volume)
        configuration = Informer(
            client,
            CONFIGMAPS,
            core.ConfigMap,
            namespace=wellknown.SYSTEM_NAMESPACE,
            field_selector=f"metadata.name={wellknown.SCHEDULER_CONFIG_MAP}",
        )
        configuration.add_handler(self._on_config)
        self._informers.append(configuration)

    def _follow(
        self, client: Client, resource: Resource[Any], kind: type[Any], handler: Any
    ) -> None:
        informer: Informer[Any] = Informer(client, resource, kind)
        informer.add_handler(handler)
        self._informers.append(informer)

    async def start(self, stack: AsyncExitStack) -> None:
        """Follow everything, and return when all of it has been seen once.

        A decision on half a cluster could bind to a node that is full. Only kinds that the server
        does not have, or that we may not read, are done without.
        """
        for informer in self._informers:
            await stack.enter_async_context(informer)
        for informer in self._informers:
            while not informer.has_synced:
                if isinstance(informer.problem, NotFound | Forbidden):
                    log.warning(
                        "%s cannot be read: %s; scheduling without",
                        informer.resource,
                        informer.problem,
                    )
                    break
                await asyncio.sleep(SYNC_POLL_S)

    def reread_group(self, namespace: str, name: str) -> None:
        """Forget what we assumed of a PodGroup: a write failed."""
        group = self.groups.get(namespace, name)
        if group is not None:
            self.cluster.set_group(group)
            self._changed()

    # --- handlers -----------------------------------------------------------------------------

    def _on_node(self, event: str, old: core.Node | None, new: core.Node | None) -> None:
        if new is not None:
            if old is not None and _same_for_scheduling(old, new):
                return  # a heartbeat
            self.cluster.set_node(new)
        elif old is not None:
            self.cluster.delete_node(old.name)
        self._changed()

    def _on_pod(self, event: str, old: wire.Pod | None, new: wire.Pod | None) -> None:
        if new is not None:
            if old is not None and (old.metadata, old.spec) == (new.metadata, new.spec):
                is_news = old.status.phase != new.status.phase
                if not is_news and old.status.nominated_node_name == new.status.nominated_node_name:
                    task = self.cluster.tasks.get(new.metadata.uid)
                    if task is not None:
                        return  # conditions and container states: nothing that decides
            self.cluster.set_pod(new)
        elif old is not None:
            self.cluster.delete_pod(old.metadata.uid)
        self._changed()

    def _on_group(
        self, event: str, old: scheduling.PodGroup | None, new: scheduling.PodGroup | None
    ) -> None:
        if new is not None:
            self.cluster.set_group(new)
        elif old is not None:
            self.cluster.delete_group(old.namespace, old.name)
        self._changed()

    def _on_queue(
        self, event: str, old: scheduling.Queue | None, new: scheduling.Queue | None
    ) -> None:
        if new is not None:
            is_same = old is not None and (old.spec, old.annotations, old.status.state) == (
                new.spec,
                new.annotations,
                new.status.state,
            )
            if is_same:
                return  # counters that the queue controller keeps
            self.cluster.set_queue(new)
        elif old is not None:
            self.cluster.delete_queue(old.name)
        self._changed()

    def _on_priority_class(
        self, event: str, old: core.PriorityClass | None, new: core.PriorityClass | None
    ) -> None:
        if new is not None:
            self.cluster.set_priority_class(new)
        elif old is not None:
            self.cluster.delete_priority_class(old.name)
        self._changed()

    def _on_quota(
        self, event: str, old: core.ResourceQuota | None, new: core.ResourceQuota | None
    ) -> None:
        if new is not None:
            self.cluster.set_quota(new)
        elif old is not None:
            self.cluster.delete_quota(old.namespace, old.name)
        self._changed()

    def _on_namespace(
        self, event: str, old: core.Namespace | None, new: core.Namespace | None
    ) -> None:
        if new is not None:
            self.cluster.namespaces[new.name] = new.labels
        elif old is not None:
            self.cluster.namespaces.pop(old.name, None)

    def _on_claim(
        self,
        event: str,
        old: core.PersistentVolumeClaim | None,
        new: core.PersistentVolumeClaim | None,
    ) -> None:
        if new is not None:
            self.cluster.claims[new.namespace, new.name] = new
        elif old is not None:
            self.cluster.claims.pop((old.namespace, old.name), None)
        self._changed()

    def _on_volume(
        self, event: str, old: core.PersistentVolume | None, new: core.PersistentVolume | None
    ) -> None:
        if new is not None:
            self.cluster.volumes[new.name] = new
        elif old is not None:
            self.cluster.volumes.pop(old.name, None)
        self._changed()

    def _on_budget(
        self,
        event: str,
        old: core.PodDisruptionBudget | None,
        new: core.PodDisruptionBudget | None,
    ) -> None:
        if new is not None:
            self.cluster.budgets[new.namespace, new.name] = new
        elif old is not None:
            self.cluster.budgets.pop((old.namespace, old.name), None)
        self._changed()

    def _on_config(
        self, event: str, old: core.ConfigMap | None, new: core.ConfigMap | None
    ) -> None:
        self.config_text = None if new is None else new.data.get(wellknown.SCHEDULER_CONFIG_KEY)
        self._changed()


def _same_for_scheduling(old: core.Node, new: core.Node) -> bool:
    return (
        old.metadata.labels == new.metadata.labels
        and old.metadata.annotations == new.metadata.annotations
        and old.spec == new.spec
        and old.status.allocatable == new.status.allocatable
        and old.status.images == new.status.images
        and _readiness(old) == _readiness(new)
    )


def _readiness(node: core.Node) -> list[str]:
    return [c.status for c in node.status.conditions if c.type == "Ready"]
