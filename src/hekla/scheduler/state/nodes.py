"""Nodes and the tasks on them: columns of the matrix, labels, images, ports.

Only this module accounts a task on its node, so a column is always the sum of its tasks. Pods may
name a node before it exists; their node has no column until then.
"""

from __future__ import annotations

import numpy as np

from hekla.api import core, wellknown
from hekla.scheduler.state.classes import Classes, TaskClass
from hekla.scheduler.state.devices.allocations import AllocationsByKind, DeviceAllocations
from hekla.scheduler.state.devices.inventory import devices_of
from hekla.scheduler.state.dimensions import (
    CPU,
    MEMORY,
    PODS,
    Dimensions,
    FloatArray,
    IntArray,
    amount_of,
    padded,
)
from hekla.scheduler.state.fields import oversubscribed
from hekla.scheduler.state.labels import NodeLabels
from hekla.scheduler.state.load import AS_GIVEN_S, STALE_S, ByPeriod, Loads, Reading
from hekla.scheduler.state.matrix import Matrix
from hekla.scheduler.state.model import Node, Task
from hekla.scheduler.state.numa import Layouts
from hekla.scheduler.state.status import PIPELINED, RELEASING, RUNNING
from hekla.units.quantity import QuantityError


class NodeTable:
    """All nodes, known or only named by pods."""

    def __init__(self) -> None:
        self.dimensions = Dimensions()
        self.classes = Classes(self.dimensions)
        self.matrix = Matrix(self.dimensions)
        self.nodes: dict[str, Node] = {}
        self.node_list: list[Node] = []
        self.node_names: list[str] = []
        """Nodes and names in the order of the columns."""
        self.placed_terms: dict[TaskClass, dict[str, int]] = {}
        """The number of placed tasks by class with pod affinity and by node."""
        self.labels_version = 0
        """Changes with labels, taints and columns of nodes. Cached static filters depend on it."""
        self.images_version = 0
        self.has_images = False
        self.total_r: FloatArray = self.dimensions.zeros()
        self._images: tuple[int, dict[str, tuple[IntArray, FloatArray]]] = (-1, {})
        self._labels: NodeLabels | None = None
        self.nodes_changed = False
        self._allocations = AllocationsByKind()
        self.layouts = Layouts()
        self.readings: dict[int, dict[str, Reading]] = {}
        """Node loads, by the period of their means."""
        self.recent: dict[str, Task] | None = None
        """Placed tasks that node loads may not include yet; None without loads."""
        self._loads: dict[int, tuple[int, Loads]] = {}

    def arrange(self) -> None:
        """Sort the columns by node name."""
        if not self.nodes_changed:
            return
        self.node_list = sorted(
            (node for node in self.nodes.values() if node.is_known), key=lambda n: n.name
        )
        self.node_names = [node.name for node in self.node_list]
        self.matrix.arrange([node.index for node in self.node_list])
        for index, node in enumerate(self.node_list):
            node.index = index
        self.nodes_changed = False
        self._labels_changed()
        self.total_r = self.matrix.allocatable_rn[:, : self.matrix.count].sum(axis=1)

    def fit_rows(self) -> None:
        """Lengthen vectors after a new resource was interned."""
        self.matrix.fit_rows()
        self.classes.fit_rows()
        self.total_r = padded(self.total_r, self.dimensions.capacity)

    @property
    def labels(self) -> NodeLabels:
        if self._labels is None:
            self._labels = NodeLabels(
                self.node_names,
                [node.labels for node in self.node_list],
                [node.taints for node in self.node_list],
            )
        return self._labels

    def device_allocations(self, kind: str) -> DeviceAllocations:
        """Return the device allocations of a kind, on all nodes."""
        return self._allocations.of(kind, self.node_list, self.labels_version)

    def image_index(self) -> dict[str, tuple[IntArray, FloatArray]]:
        """Return the nodes that have an image, and its size there."""
        if self._images[0] != self.images_version:
            found: dict[str, tuple[list[int], list[float]]] = {}
            for node in self.node_list:
                for image in node.images:
                    for name in image.names:
                        nodes, sizes = found.setdefault(name, ([], []))
                        nodes.append(node.index)
                        sizes.append(float(image.size_bytes))
            self._images = (
                self.images_version,
                {name: (np.asarray(n), np.asarray(s)) for name, (n, s) in found.items()},
            )
        return self._images[1]

    def measure(self, periods: ByPeriod) -> None:
        """Set node loads; nodes without a new reading keep the previous one."""
        self.readings = {
            period_s: {
                name: reading
                for name, reading in {**self.readings.get(period_s, {}), **fresh}.items()
                if name in self.nodes
            }
            for period_s, fresh in periods.items()
        }
        self._loads = {}
        if self.recent is None:
            self.recent = {uid: t for node in self.nodes.values() for uid, t in node.tasks.items()}
        at = max((r.at for fresh in periods.values() for r in fresh.values()), default=0.0)
        self.recent = {
            uid: task
            for uid, task in self.recent.items()
            if task.status != RUNNING or task.started > at - STALE_S
        }

    def loads(self, period_s: int) -> Loads:
        """Return the loads by column."""
        known = self._loads.get(period_s)
        if known is None or known[0] != self.labels_version:
            readings = self.readings.get(period_s) or self.readings.get(AS_GIVEN_S) or {}
            made = Loads.over(self.node_names, readings)
            known = self._loads[period_s] = (self.labels_version, made)
        return known[1]

    def set_node(self, obj: core.Node) -> None:
        node = self.nodes.get(obj.name)
        if node is None:
            node = self.nodes[obj.name] = Node(obj.name)
        if not node.is_known:
            node.index = self.matrix.append()
            self.nodes_changed = True
        if (node.labels, node.taints) != (obj.labels, obj.spec.taints):
            node.labels, node.taints = obj.labels, obj.spec.taints
            self._labels_changed()
        if node.images != obj.status.images:
            node.images = obj.status.images
            self.images_version += 1
            self.has_images = True
        node.annotations = obj.annotations
        devices = devices_of(node.annotations, obj.status.capacity, obj.status.allocatable)
        if devices != node.devices:
            node.devices = devices
            self._allocations.changed(node)
        node.is_unschedulable = obj.spec.unschedulable
        # Volcano relies on the taints that Kubernetes sets from conditions. Without a node
        # controller there are none, so the Ready condition counts.
        ready = [c.status for c in obj.status.conditions if c.type == "Ready"]
        node.is_ready = not ready or ready[0] == "True"
        self._write_node(node, obj)

    def _write_node(self, node: Node, obj: core.Node) -> None:
        allocatable = dict(obj.status.allocatable)
        vector_r, _ = self.dimensions.vector(allocatable)
        self.fit_rows()
        vector_r = padded(vector_r, self.dimensions.capacity)
        vector_r[CPU] += oversubscribed(node.annotations.get(wellknown.OVERSUBSCRIPTION_CPU))
        vector_r[MEMORY] += oversubscribed(node.annotations.get(wellknown.OVERSUBSCRIPTION_MEMORY))
        matrix, i = self.matrix, node.index
        if not np.array_equal(matrix.allocatable_rn[:, i], vector_r):
            self.total_r = padded(self.total_r, self.dimensions.capacity)
            self.total_r += vector_r - matrix.allocatable_rn[:, i]
            matrix.allocatable_rn[:, i] = vector_r
        matrix.is_unschedulable_n[i] = node.is_unschedulable
        matrix.is_ready_n[i] = node.is_ready
        try:
            matrix.max_pods_n[i] = amount_of(PODS, allocatable.get(PODS, 0))
        except QuantityError:
            matrix.max_pods_n[i] = 0
        self.recount(node)

    def recount(self, node: Node) -> None:
        """Compute a node's column from its tasks."""
        matrix, i = self.matrix, node.index
        for allocations in (matrix.used_rn, matrix.releasing_rn, matrix.pipelined_rn):
            allocations[:, i] = 0.0
        matrix.nonzero_2n[:, i] = 0.0
        matrix.pods_n[i] = 0.0
        matrix.idle_rn[:, i] = matrix.allocatable_rn[:, i]
        for task in node.tasks.values():
            self._account(task, i, 1)

    def add_task(self, task: Task) -> None:
        node = self.nodes.get(task.node_name)
        if node is None:
            node = self.nodes[task.node_name] = Node(task.node_name)
        node.tasks[task.uid] = task
        if self.recent is not None:
            self.recent[task.uid] = task
        if task.klass.devices is not None:
            self._allocations.changed(node)
        if task.klass.whole_cpus:
            self.layouts.stale.add(node.name)
        for port in task.klass.ports:
            node.ports[port] = node.ports.get(port, 0) + 1
        if task.group is not None:
            per_node = task.group.per_node
            per_node[node.name] = per_node.get(node.name, 0) + 1
        if task.klass.has_pod_terms:
            per_class = self.placed_terms.setdefault(task.klass, {})
            per_class[node.name] = per_class.get(node.name, 0) + 1
        if node.is_known:
            self._account(task, node.index, 1)

    def remove_task(self, task: Task) -> None:
        node = self.nodes.get(task.node_name)
        if node is None or task.uid not in node.tasks:
            return
        del node.tasks[task.uid]
        if self.recent is not None:
            self.recent.pop(task.uid, None)
        if task.klass.devices is not None:
            self._allocations.changed(node)
        if task.klass.whole_cpus:
            self.layouts.stale.add(node.name)
        for port in task.klass.ports:
            decrement(node.ports, port)
        if task.group is not None:
            decrement(task.group.per_node, node.name)
        if task.klass.has_pod_terms:
            decrement(self.placed_terms[task.klass], node.name)
            if not self.placed_terms[task.klass]:
                del self.placed_terms[task.klass]
        if node.is_known:
            self._account(task, node.index, -1)
        elif not node.tasks:
            del self.nodes[node.name]

    def _account(self, task: Task, i: int, sign: int) -> None:
        matrix, klass = self.matrix, task.klass
        matrix.pods_n[i] += sign
        matrix.nonzero_2n[0, i] += sign * klass.nonzero_cpu
        matrix.nonzero_2n[1, i] += sign * klass.nonzero_memory
        for row, amount in zip(klass.rows, klass.amounts, strict=True):
            if task.status == PIPELINED:
                matrix.pipelined_rn[row, i] += sign * amount
                continue
            matrix.idle_rn[row, i] -= sign * amount
            matrix.used_rn[row, i] += sign * amount
            if task.status == RELEASING:
                matrix.releasing_rn[row, i] += sign * amount

    def _labels_changed(self) -> None:
        self._labels = None
        self.labels_version += 1
        self.images_version += 1


def decrement(counts: dict, key: object) -> None:  # type: ignore[type-arg]
    left = counts.get(key, 0) - 1
    if left > 0:
        counts[key] = left
    else:
        counts.pop(key, None)
