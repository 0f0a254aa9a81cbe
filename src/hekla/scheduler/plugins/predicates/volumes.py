"""Volumes: on which nodes the claims of a pod are available, and how many a node can attach.

A bound claim restricts its pod to the nodes that can use its volume. A claim that waits for its
first consumer needs a free volume or a provisioner for the node. An unbound claim with immediate
binding keeps the pod pending. The claims of a class are known from its pods; their state is looked
up each time.
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
    """Return why no node is feasible for a pod with such claims."""
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
    """Return masks of the nodes that cannot use the claims, with reasons."""
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
    """Return the nodes for which an unbound claim could be provisioned; None if unknown."""
    made_of = _class_of(cluster, claim)
    if made_of is None:
        return None
    labels = cluster.node_table.labels
    chosen = claim.annotations.get(SELECTED_NODE)
    if chosen:  # a provisioner creates the volume for this node
        return np.asarray([name == chosen for name in labels.names], dtype=bool)
    feasible_n = np.zeros(len(labels.names), dtype=bool)
    if made_of.provisioner and made_of.provisioner != NO_PROVISIONER:
        feasible_n |= _allowed(labels, made_of)
    for volume in cluster.volumes.values():
        if _satisfies(volume, claim):
            feasible_n |= _reaches(labels, volume)
    return feasible_n


def _allowed(labels: NodeLabels, made_of: core.StorageClass) -> BoolArray:
    """Return the nodes for which a class provisions volumes."""
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
    """Tell whether a volume is free, or reserved for the claim, and large enough."""
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
    """Tell whether a claim is provisioned only once its pod has a node."""
    made_of = _class_of(cluster, claim)
    return made_of is not None and made_of.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def is_provisioned(cluster: Cluster, claim: core.PersistentVolumeClaim) -> bool:
    """Tell whether a claim's class has a provisioner."""
    made_of = _class_of(cluster, claim)
    return made_of is not None and made_of.provisioner not in ("", NO_PROVISIONER)


def smallest_for(
    cluster: Cluster, claim: core.PersistentVolumeClaim, node: str, taken: Container[str]
) -> core.PersistentVolume | None:
    """Return the smallest volume that satisfies a claim on a node."""
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
    """The attached volumes of nodes, against the limits of their drivers."""

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
        """Count tasks that were placed on columns in this cycle, or removed."""
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
        """Return how many such tasks each node can attach volumes for; None for no limit."""
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
        """Return a driver's claims on a node, and the number of ephemeral volumes."""
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
