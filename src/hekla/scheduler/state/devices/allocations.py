"""Device allocations as arrays: one row per node, one column per device, padded.

Allocations are a function of the nodes' inventories and of the annotations of their pods. The row
of a node that changed is computed again. Invariant: no device is allocated beyond its amount, now
(`now_3nc`) or after releasing pods terminated (`later_3nc`).

Note: one GPU may be offered in several ways (by memory or number, as vGPUs, as `nvidia.com/gpu`). A
device with an allocation in one way is full in the others.

Unlike in Volcano, a releasing pod keeps its devices until it is deleted: its process may still use
the memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from hekla.api.devices import MAX_AMOUNT, DeviceAllocation
from hekla.scheduler.state.devices.inventory import SAME_DEVICES, Device
from hekla.scheduler.state.devices.requests import WHOLE
from hekla.scheduler.state.dimensions import BoolArray, IntArray
from hekla.scheduler.state.status import RELEASING

if TYPE_CHECKING:
    from hekla.scheduler.state.model import Node, Task

MEMORY: Final = 0
SHARES: Final = 1
CORES: Final = 2
Used = npt.NDArray[np.int64]
"""[memory, containers, cores] by node and device."""


class DeviceAllocations:
    """The allocations of all devices of one kind."""

    def __init__(self, kind: str, nodes: Sequence[Node], version: int) -> None:
        self.kind = kind
        self.version = version
        self.stale: set[str] = set()
        self.devices: list[tuple[Device, ...]] = [node.devices.get(kind, ()) for node in nodes]
        width = max((len(devices) for devices in self.devices), default=0)
        shape = (len(nodes), width)
        self.memory_nc: IntArray = np.zeros(shape, dtype=np.int64)
        self.shares_nc: IntArray = np.zeros(shape, dtype=np.int64)
        self.whole_nc: IntArray = np.full(shape, -1, dtype=np.int64)
        self.cut_nc: IntArray = np.full(shape, -1, dtype=np.int64)
        self.group_nc: IntArray = np.full(shape, -1, dtype=np.int64)
        self.usable_nc: BoolArray = np.zeros(shape, dtype=bool)
        self.unclear_n: BoolArray = np.zeros(len(nodes), dtype=bool)
        """Nodes with pods whose devices are unknown. They take no other pods."""
        self.own_n: BoolArray = np.zeros(len(nodes), dtype=bool)
        """Nodes with pods that have devices of this kind."""
        self.other_n: BoolArray = np.zeros(len(nodes), dtype=bool)
        """Nodes with pods that have some of the same devices in another way."""
        self._all_devices: list[Mapping[str, tuple[Device, ...]]] = [node.devices for node in nodes]
        self.now_3nc: Used = np.zeros((3, *shape), dtype=np.int64)
        self.later_3nc: Used = np.zeros((3, *shape), dtype=np.int64)
        for row, node in enumerate(nodes):
            self.write(row, node)

    @property
    def width(self) -> int:
        return int(self.memory_nc.shape[1])

    @property
    def is_cut(self) -> bool:
        return bool((self.cut_nc >= 0).any())

    def write(self, row: int, node: Node) -> None:
        """Compute the row of a node from its devices and its pods."""
        devices = self.devices[row] = node.devices.get(self.kind, ())
        self._all_devices[row] = node.devices
        self.usable_nc[row] = False
        self.unclear_n[row] = self.own_n[row] = self.other_n[row] = False
        self.now_3nc[:, row] = self.later_3nc[:, row] = 0
        for column, device in enumerate(devices):
            self.memory_nc[row, column], self.shares_nc[row, column] = device.memory, device.shares
            self.whole_nc[row, column], self.cut_nc[row, column] = device.whole, device.cut
            self.group_nc[row, column] = device.group
            self.usable_nc[row, column] = device.is_healthy
        for task in node.tasks.values():
            if not task.devices or not self.counts(task):
                continue
            if self._is_own(task):
                self.own_n[row] = True
                self.unclear_n[row] |= not all(
                    self.columns(row, each.device) for each in task.devices
                )
            else:
                self.other_n[row] = True
            self.state(self.now_3nc, row, task, 1)
            if task.status != RELEASING:
                self.state(self.later_3nc, row, task, 1)

    def counts(self, task: Task) -> bool:
        """Tell whether the devices of a task may be some of these."""
        wanted = task.klass.devices
        if wanted is None:
            return False
        return wanted.kind == self.kind or {wanted.kind, self.kind} <= SAME_DEVICES

    def _is_own(self, task: Task) -> bool:
        return task.klass.devices is not None and task.klass.devices.kind == self.kind

    def state(self, used_3nc: Used, row: int, task: Task, sign: int) -> None:
        """Add what a pod has on a node, or with -1 remove it."""
        if task.devices and self.counts(task):
            used_3nc[:, row] += sign * self.held_by(row, task)

    def held_by(self, row: int, task: Task) -> Used:
        """Return what a pod has of each device of a node, in any way."""
        if self._is_own(task):
            return self.held(row, task.devices)
        if not self.counts(task):
            return self.held(row, ())
        wholes = self._same(row, task)
        held_3c = np.zeros((3, self.width), dtype=np.int64)
        for column, device in enumerate(self.devices[row]):
            if wholes is None or device.whole in wholes:
                held_3c[:, column] = (device.memory, 1, WHOLE)
        return held_3c

    def _same(self, row: int, task: Task) -> set[int] | None:
        """Return the devices of a node that a pod has in another way; None if unknown."""
        assert task.klass.devices is not None
        theirs = self._all_devices[row].get(task.klass.devices.kind, ())
        ours = {device.whole for device in self.devices[row]}
        if {device.whole for device in theirs} != ours:
            return None
        found: set[int] = set()
        for given in task.devices:
            same = {
                device.whole for device in theirs if whole_id(device.id) == whole_id(given.device)
            }
            if not same:
                return None
            found |= same
        return found

    def held(self, row: int, devices: Sequence[DeviceAllocation]) -> Used:
        """Return what a pod has of each device of a node."""
        held_3c = np.zeros((3, self.width), dtype=np.int64)
        for given in devices:
            found = self.columns(row, given.device)
            for column, is_same in found or self._all(row):
                # A device that has changed its mode is not usable until the pod is deleted.
                memory = int(self.memory_nc[row, column])
                held_3c[:, column] += (
                    (max(given.memory, memory * given.percent // 100), 1, given.cores)
                    if is_same
                    else (memory, 1, WHOLE)
                )
        return np.minimum(held_3c, MAX_AMOUNT)

    def _all(self, row: int) -> list[tuple[int, bool]]:
        """Return all devices, for an allocation of a device that the node does not have."""
        return [(column, False) for column in range(len(self.devices[row]))]

    def columns(self, row: int, device: str) -> list[tuple[int, bool]]:
        """Return the columns of a device, and whether it is exact or another partition of it."""
        devices = self.devices[row]
        for column, known in enumerate(devices):
            if known.id == device:
                return [(column, True)]
        uuid = whole_id(device)
        return [
            (column, False) for column, known in enumerate(devices) if whole_id(known.id) == uuid
        ]


def whole_id(device: str) -> str:
    """Return the id of the whole device: `GPU-1` for its MIG instance `GPU-1[2-0]`."""
    return device.partition("[")[0]


class AllocationsByKind:
    """The device allocations of a cluster by kind, made on first use."""

    def __init__(self) -> None:
        self._known: dict[str, DeviceAllocations] = {}

    def changed(self, node: Node) -> None:
        """Record that the devices of a node or the annotations of its pods changed."""
        for allocations in self._known.values():
            allocations.stale.add(node.name)

    def of(self, kind: str, nodes: Sequence[Node], version: int) -> DeviceAllocations:
        known = self._known.get(kind)
        if known is not None and known.version == version:
            stale = [(row, node) for row, node in enumerate(nodes) if node.name in known.stale]
            if all(len(node.devices.get(kind, ())) <= known.width for _, node in stale):
                for row, node in stale:
                    known.write(row, node)
                known.stale = set()
                return known
        made = self._known[kind] = DeviceAllocations(kind, nodes, version)
        return made
