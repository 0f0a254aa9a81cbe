"""Volumes: where the claims of a pod are or could be provided, and how many a node can attach.

A bound claim ties its pod to the nodes that reach its volume. One that waits for its first consumer
needs a free volume, or a provisioner, that reaches the node. One that should have been bound at
once keeps the pod waiting. Which claims a class has is known from its pods; what became of the
claims is looked up each time.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from hekla.api import core
from hekla.api.wellknown import LABEL_REGION, LABEL_ZONE, SELECTED_NODE, ClaimPhase
from hekla.scheduler.state.dimensions import BoolArray, FloatArray
from hekla.scheduler.state.labels import NodeLabels
from hekla.scheduler.state.model import Task
from hekla.units.quantity import QuantityError, parse_quantity

if TYPE_CHECKING:
    from hekla.scheduler.state.cluster import Cluster

WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
NO_VOLUME: Final = "node(s) didn't find available persistent volumes to bind"
WRONG_NODE: Final = "node(s) didn't match PersistentVolume's node affinity"
NO_ZONE: Final = "node(s) had no available volume zone"
ATTACHED: Final = "node(s) exceed max volume count"

ClaimKey = tuple[str, str]


def unusable(cluster: Cluster, task: Task) -> str | None:
    """Why no node will do for a pod with such claims."""
    for name in task.klass.claims:
        claim = cluster.claims.get((task.namespace, name))
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if claim.is_deleting:
            return f'persistentvolumeclaim "{name}" is being deleted'
        if claim.status.phase == ClaimPhase.LOST:
            return f'persistentvolumeclaim "{name}" has lost its volume'
        known = _class_of(cluster, claim) is not None
        if not claim.spec.volume_name and known and not waits(cluster, claim):
            return "pod has unbound immediate PersistentVolumeClaims"
    return None


def rejections(
    cluster: Cluster, task: Task, *, binding: bool, zones: bool
) -> Iterator[tuple[BoolArray, str]]:
    """Nodes from which the claims cannot be reached."""
    for name in task.klass.claims:
        claim = cluster.claims.get((task.namespace, name))
        if claim is None:
            continue
        volume = cluster.volumes.get(claim.spec.volume_name)
        if volume is not None:
            if binding:
                yield ~_reaches(cluster.node_table.labels, volume), WRONG_NODE
            if zones:
                yield from _zones(cluster.node_table.labels, volume)
        elif binding and not claim.spec.volume_name:
            feasible_n = _could_bind(cluster, claim)
            if feasible_n is not None:
                yield ~feasible_n, NO_VOLUME


def _zones(labels: NodeLabels, volume: core.PersistentVolume) -> Iterator[tuple[BoolArray, str]]:
    for key in (LABEL_ZONE, LABEL_REGION):
        if key in volume.labels:
            # A volume may name several zones, joined by two underscores.
            yield ~labels.column(key).among(volume.labels[key].split("__")), NO_ZONE


def _reaches(labels: NodeLabels, volume: core.PersistentVolume) -> BoolArray:
    needed = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    return (
        np.ones(len(labels.names), dtype=bool) if needed is None else labels.matches_terms(needed)
    )


def _could_bind(cluster: Cluster, claim: core.PersistentVolumeClaim) -> BoolArray | None:
    """Where a claim that waits for its pod could be provided; None where nothing is known of it."""
    made_of = _class_of(cluster, claim)
    if made_of is None:
        return None
    labels = cluster.node_table.labels
    chosen = claim.annotations.get(SELECTED_NODE)
    if chosen:  # a provisioner is at work there
        return np.asarray([name == chosen for name in labels.names], dtype=bool)
    feasible_n = np.zeros(len(labels.names), dtype=bool)
    if made_of.provisioner and made_of.provisioner != NO_PROVISIONER:
        feasible_n |= _allowed(labels, made_of)
    for volume in cluster.volumes.values():
        if _satisfies(volume, claim):
            feasible_n |= _reaches(labels, volume)
    return feasible_n


def _allowed(labels: NodeLabels, made_of: core.StorageClass) -> BoolArray:
    """Where a class makes volumes."""
    if not made_of.allowed_topologies:
        return np.ones(len(labels.names), dtype=bool)
    out = np.zeros(len(labels.names), dtype=bool)
    for term in made_of.allowed_topologies:
        one = np.ones(len(labels.names), dtype=bool)
        for wanted in term.match_label_expressions:
            one &= labels.column(wanted.key).among(wanted.values)
        out |= one
    return out


def _satisfies(volume: core.PersistentVolume, claim: core.PersistentVolumeClaim) -> bool:
    """Whether a volume is free, or kept, for a claim, and large enough."""
    owner = volume.spec.claim_ref
    if owner is not None:
        return (owner.namespace, owner.name) == (claim.namespace, claim.name)
    selector = claim.spec.selector
    return (
        volume.status.phase in ("", "Available")
        and volume.spec.storage_class_name == (claim.spec.storage_class_name or "")
        and (volume.spec.volume_mode or "Filesystem") == (claim.spec.volume_mode or "Filesystem")
        and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
        and (selector is None or selector.compiled().matches(volume.labels))
        and _size(volume.spec.capacity) >= _size(claim.spec.resources.requests)
    )


def _size(amounts: Mapping[str, str | int | float]) -> int:
    try:
        return parse_quantity(amounts.get("storage", 0)).value()
    except QuantityError:
        return 0


def _class_of(cluster: Cluster, claim: core.PersistentVolumeClaim) -> core.StorageClass | None:
    return cluster.storage_classes.get(claim.spec.storage_class_name or "")


def waits(cluster: Cluster, claim: core.PersistentVolumeClaim) -> bool:
    """Whether a claim is provided only once it is known where its pod goes."""
    made_of = _class_of(cluster, claim)
    return made_of is not None and made_of.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def is_provisioned(cluster: Cluster, claim: core.PersistentVolumeClaim) -> bool:
    """Whether somebody makes volumes of its class."""
    made_of = _class_of(cluster, claim)
    return made_of is not None and made_of.provisioner not in ("", NO_PROVISIONER)


def smallest_for(
    cluster: Cluster, claim: core.PersistentVolumeClaim, node: str, taken: Container[str]
) -> core.PersistentVolume | None:
    """The volume for a claim whose pod goes to a node: the smallest that is large enough."""
    column = cluster.node_table.labels.names.index(node)
    found = [
        volume
        for name, volume in cluster.volumes.items()
        if name not in taken
        and _satisfies(volume, claim)
        and _reaches(cluster.node_table.labels, volume)[column]
    ]
    return min(found, key=lambda volume: (_size(volume.spec.capacity), volume.name), default=None)


class Attachments:
    """How many volumes nodes have attached, against what their drivers can."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._limits = {
            (name, driver.name): driver.allocatable.count
            for name, obj in cluster.csi_nodes.items()
            for driver in obj.spec.drivers
            if driver.allocatable is not None and driver.allocatable.count is not None
        }
        self._came: dict[int, dict[ClaimKey, int]] = {}
        self._came_ephemeral: dict[tuple[int, str], int] = {}

    def note(self, task: Task, columns: list[int], sign: int) -> None:
        """Tasks like this one came to columns in this cycle, or left them."""
        if not self._limits or not (task.klass.claims or task.klass.ephemeral_classes):
            return
        for column in columns:
            counts = self._came.setdefault(column, {})
            for name in task.klass.claims:
                key = (task.namespace, name)
                counts[key] = counts.get(key, 0) + sign
            for made_of in task.klass.ephemeral_classes:
                driver = self._provisioner(made_of)
                known = self._came_ephemeral.get((column, driver), 0)
                self._came_ephemeral[column, driver] = known + sign

    def copies(self, task: Task) -> FloatArray | None:
        """How many such tasks each node can attach the volumes of; None where nothing limits it."""
        wanted: dict[str, set[ClaimKey]] = {}
        for name in task.klass.claims:
            driver = self._driver((task.namespace, name))
            wanted.setdefault(driver, set()).add((task.namespace, name))
        own: dict[str, int] = {}
        for made_of in task.klass.ephemeral_classes:
            own[self._provisioner(made_of)] = own.get(self._provisioner(made_of), 0) + 1
        drivers = {driver for driver in (*wanted, *own) if driver}
        if not any(driver in drivers for _, driver in self._limits):
            return None
        most_n = np.full(len(self._cluster.node_table.node_list), np.inf)
        for (name, driver), limit in self._limits.items():
            node = self._cluster.nodes.get(name)
            if node is None or not node.is_known or driver not in drivers:
                continue
            there, ephemeral = self._attached(node.index, driver)
            left = limit - ephemeral - len(there | wanted.get(driver, set()))
            most = 0.0 if left < 0 else left // own[driver] if driver in own else np.inf
            most_n[node.index] = min(most_n[node.index], most)
        return most_n

    def _attached(self, column: int, driver: str) -> tuple[set[ClaimKey], int]:
        """The claims on a node that a driver attaches, and how many volumes of its pods' own."""
        node = self._cluster.node_table.node_list[column]
        keys = {(t.namespace, name) for t in node.tasks.values() for name in t.klass.claims}
        keys |= {key for key, count in self._came.get(column, {}).items() if count > 0}
        ephemeral = self._came_ephemeral.get((column, driver), 0)
        for task in node.tasks.values():
            for made_of in task.klass.ephemeral_classes:
                ephemeral += self._provisioner(made_of) == driver
        return {key for key in keys if self._driver(key) == driver}, ephemeral

    def _driver(self, key: ClaimKey) -> str:
        claim = self._cluster.claims.get(key)
        if claim is None:
            return ""
        volume = self._cluster.volumes.get(claim.spec.volume_name)
        if volume is not None:
            return str((volume.spec.csi or {}).get("driver", ""))
        return self._provisioner(claim.spec.storage_class_name or "")

    def _provisioner(self, made_of: str) -> str:
        found = self._cluster.storage_classes.get(made_of)
        return "" if found is None else found.provisioner
