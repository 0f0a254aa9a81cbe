"""deviceshare: several pods share a GPU or NPU, each with a part of its memory and cores.

The devices of a pod are chosen with its node, accounted from then on, and written to the pod in the
request that binds it, in the format of the nodes' device plugins. So a pod never has a node without
its devices, and a new scheduler knows all allocations.

Note: equal pods get different devices. What the next pods of a class would get on a node is
computed in advance (`selection.build_score_table`). Placing pods advances a position in that table,
and a row is computed again only after another change of the node.

Differences from Volcano (decision 0009): releasing pods keep their devices; spread scores unused
devices; exclusive rules hold for ever; no lock is written to nodes; a GPU is allocated in one way
at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import numpy as np

from hekla.api.wellknown import (
    NOUSE_GPU_TYPE,
    USE_GPU_TYPE,
    VGPU_MODE,
    VGPU_NOUSE_UUID,
    VGPU_PODGROUP_POLICY,
    VGPU_USE_UUID,
)
from hekla.scheduler.errors import PluginError
from hekla.scheduler.framework.arguments import Key
from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.plugins.deviceshare.score_table import DeviceState
from hekla.scheduler.plugins.deviceshare.selection import BINPACK, SPREAD
from hekla.scheduler.state.devices.allocations import whole_id
from hekla.scheduler.state.devices.inventory import (
    GPU,
    HAMI_CORE,
    SAME_DEVICES,
    VGPU,
    WHOLE_GPU,
    Device,
)
from hekla.scheduler.state.devices.requests import Request, annotations_for, is_being_given
from hekla.scheduler.state.dimensions import BoolArray, FloatArray, IntArray
from hekla.scheduler.state.model import Task
from hekla.scheduler.state.status import ALLOCATED, BINDING, BOUND, PIPELINED, RELEASING

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session

LOCK_S: Final = 300.0
UNCLEAR_WHY: Final = "node(s) had pods with devices that their annotations do not name"
OTHER_WHY: Final = "node(s) had GPUs that are allocated in another way"
PARTED_WHY: Final = "node(s) had GPUs that are shared"
GEOMETRIES: Final = ("volcano-vgpu-device-config", "kube-system")


class DeviceShare(Plugin, name="deviceshare"):
    """Devices of pods: filters, scores, and annotations."""

    by_class: ClassVar[bool] = True
    essential: ClassVar[bool] = True
    ignored_arguments: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("deviceshare.KnownGeometriesCMName", "deviceshare.KnownGeometriesCMNamespace"),
        "the ConfigMap is not read; the geometries of MIG are hekla's own table",
    )

    gpu_sharing: Annotated[bool, Key("deviceshare.GPUSharingEnable")] = False
    gpu_number: Annotated[bool, Key("deviceshare.GPUNumberEnable")] = False
    vgpu: Annotated[bool, Key("deviceshare.VGPUEnable")] = False
    npu: Annotated[bool, Key("deviceshare.AscendHAMiVNPUEnable")] = False
    mind_cluster: Annotated[bool, Key("deviceshare.AscendMindClusterVNPUEnable")] = False
    node_lock: Annotated[bool, Key("deviceshare.NodeLockEnable")] = False
    """Whether a node takes one pod at a time, until its device plugin has handled it."""
    policy: Annotated[str, Key("deviceshare.SchedulePolicy")] = ""
    weight: Annotated[int, Key("deviceshare.ScheduleWeight")] = 0
    geometries_name: Annotated[str, Key("deviceshare.KnownGeometriesCMName")] = GEOMETRIES[0]
    geometries_in: Annotated[str, Key("deviceshare.KnownGeometriesCMNamespace")] = GEOMETRIES[1]
    exclusive: Annotated[list[Any], Key("deviceshare.GPUExclusiveRules")] = []  # noqa: RUF012

    def configure(self, raw: Mapping[str, Any], switches: Mapping[str, bool]) -> None:
        super().configure(raw, switches)
        on = [
            key
            for key, is_on in (
                ("deviceshare.GPUSharingEnable", self.gpu_sharing),
                ("deviceshare.GPUNumberEnable", self.gpu_number),
                ("deviceshare.VGPUEnable", self.vgpu),
            )
            if is_on
        ]
        if len(on) > 1:
            raise PluginError(f"{' and '.join(on)} contradict each other; switch on one of them")
        if self.mind_cluster:
            raise PluginError(
                "deviceshare.AscendMindClusterVNPUEnable is not supported; "
                "use HAMi's device plugin and deviceshare.AscendHAMiVNPUEnable"
            )
        if self.policy not in ("", BINPACK, SPREAD):
            raise PluginError(
                f"deviceshare.SchedulePolicy must be binpack or spread, and {self.policy!r} is not"
            )
        if (self.geometries_name, self.geometries_in) != GEOMETRIES:
            raise PluginError(
                "deviceshare.KnownGeometriesCMName: geometries of MIG are hekla's own table and "
                "are not read from a ConfigMap; leave the argument out"
            )
        for rule in self.exclusive:
            if not isinstance(rule, dict) or not rule:
                raise PluginError("deviceshare.GPUExclusiveRules must be a list of label maps")
            for key, value in rule.items():
                if not isinstance(key, str) or not isinstance(value, str):
                    raise PluginError(
                        f"deviceshare.GPUExclusiveRules has {key!r}: {value!r}, and labels are "
                        "text; write it in quotes"
                    )

    def open(self, session: Session) -> None:
        self._session = session
        self._states: dict[str, DeviceState] = {}
        self._allowed: dict[tuple[str, tuple[tuple[str, str], ...]], BoolArray] = {}
        self._busy_n: BoolArray | None = None
        self._whole_n: IntArray = np.zeros(len(session.nodes.all), dtype=np.int64)
        """Pods placed on each node in this cycle whose GPUs the node selects."""
        self._written: dict[Request, dict[tuple[int, ...], Mapping[str, str]]] = {}
        """Annotations by node and devices."""

    # --- devices ------------------------------------------------------------------------------

    def _request(self, task: Task) -> Request | None:
        """Return the device request of a task, if sharing is enabled."""
        request = task.klass.devices
        if request is None or request.kind == WHOLE_GPU:
            return None
        if request.kind == GPU:
            is_on = self.gpu_number if request.is_by_number else self.gpu_sharing
        else:
            is_on = self.vgpu if request.kind == VGPU else self.npu
        return request if is_on else None

    def _account(self, request: Request) -> DeviceState:
        return self._state_of(request.kind)

    def _state_of(self, kind: str) -> DeviceState:
        state = self._states.get(kind)
        if state is None:
            allocations = self._session.cluster.node_table.device_allocations(kind)
            most = 1 if self.node_lock else None
            state = self._states[kind] = DeviceState(allocations, self.policy, most=most)
        return state

    def _gpus_kind(self) -> str:
        """Return the kind in which GPUs are allocated; empty if nodes select them."""
        return VGPU if self.vgpu else GPU if self.gpu_sharing or self.gpu_number else ""

    def _states_with(self, task: Task) -> list[DeviceState]:
        """Return the states in which the devices of a task count."""
        wanted = task.klass.devices
        if wanted is None or not task.devices:
            return []
        kinds = [self._gpus_kind()] if wanted.kind in SAME_DEVICES else [wanted.kind]
        return [
            self._state_of(kind) for kind in kinds if kind in SAME_DEVICES or (kind and self.npu)
        ]

    def _parted(self) -> BoolArray:
        """Return the nodes whose GPUs are shared, now or in this cycle."""
        cluster = self._session.cluster
        parted_n: BoolArray = (
            cluster.node_table.device_allocations(GPU).own_n
            | cluster.node_table.device_allocations(VGPU).own_n
        )
        for kind in SAME_DEVICES & self._states.keys():
            parted_n = parted_n | self._states[kind].has_placed()
        return parted_n

    def _key(self, task: Task) -> Any:
        return (task.klass, task.group, task.job) if self.job_specific(task) else task.klass

    def _left(self, task: Task, request: Request, *, future: bool = False) -> IntArray:
        """Return how many more such tasks the devices of each node take."""
        state = self._account(request)
        if future and (known_n := state.known_later(self._key(task))) is not None:
            return known_n
        allowed_nc = self._suitable(request, state)
        is_apart = self.job_specific(task)
        if is_apart:
            allowed_nc = allowed_nc & ~self._kept_from(task, state)
        find = state.later if future else state.left
        return find(self._key(task), request, allowed_nc, is_apart=is_apart)

    def _suitable(self, request: Request, state: DeviceState) -> BoolArray:
        """Return the healthy devices that match the pod's annotations."""
        if not request.choosing:
            return state.allocations.usable_nc
        key = (request.kind, request.choosing)
        known = self._allowed.get(key)
        if known is None:
            known = state.allocations.usable_nc.copy()
            for row, devices in enumerate(state.allocations.devices):
                for column, device in enumerate(devices):
                    known[row, column] &= _matches(device, request)
            self._allowed[key] = known
        return known

    def job_specific(self, task: Task) -> bool:
        request = task.klass.devices
        if request is None or not (request.choosing or self.exclusive):
            return False
        if self._request(task) is None:
            return False
        is_spread = request.note(VGPU_PODGROUP_POLICY) == SPREAD and task.job is not None
        return is_spread or bool(self._rules(task, request))

    def _rules(self, task: Task, request: Request) -> list[dict[str, str]]:
        """Return the rules by which the task shares no device with similar tasks."""
        if request.kind != VGPU:
            return []
        return [rule for rule in self.exclusive if rule.items() <= task.labels.items()]

    def _kept_from(self, task: Task, state: DeviceState) -> BoolArray:
        """Return the devices that similar tasks use."""
        request = task.klass.devices
        assert request is not None
        rules = self._rules(task, request)
        is_spread = request.note(VGPU_PODGROUP_POLICY) == SPREAD

        def is_member(other: Task) -> bool:
            return is_spread and other.job is task.job

        def is_alike(other: Task) -> bool:
            return is_member(other) or any(rule.items() <= other.labels.items() for rule in rules)

        out = state.placed(is_alike)
        others = self._session.cluster.tasks if rules else task.job.tasks if task.job else {}
        nodes = self._session.cluster.nodes
        for other in others.values():
            node = nodes.get(other.node_name) if other.devices else None
            if node is None or not node.is_known or not is_alike(other):
                continue
            wholes = {whole_id(given.device) for given in other.devices}
            for column, device in enumerate(state.allocations.devices[node.index]):
                # Rules apply to devices shared in software; members separate in any mode.
                counts = device.mode == HAMI_CORE or is_member(other)
                out[node.index, column] |= counts and whole_id(device.id) in wholes
        return out

    # --- filters and scores -------------------------------------------------------------------

    def pre_predicate(self, task: Task) -> str | None:
        request = self._request(task)
        return None if request is None else request.problem or None

    def predicate(self, task: Task, nodes: Nodes) -> Iterator[tuple[BoolArray, str]]:
        request = self._request(task)
        if request is None:
            return
        state = self._account(request)
        works_n = np.asarray(state.allocations.usable_nc.any(axis=1))
        yield ~works_n, f"node(s) had no healthy {request.kind} devices"
        if request.choosing:
            suits_n = np.asarray(self._suitable(request, state).any(axis=1))
            yield ~suits_n, "node(s) had no device that matches the pod's annotations"

    def node_capacity(self, task: Task, nodes: Nodes) -> list[tuple[FloatArray, str]]:
        if _is_whole(task) and self._gpus_kind():
            return [(nodes.take(np.where(self._parted(), 0.0, np.inf)), PARTED_WHY)]
        request = self._request(task)
        if request is None or request.problem:
            return []
        left_n = self._left(task, request, future=nodes.is_future).astype(np.float64)
        limits = [
            (nodes.take(left_n), f"node(s) had no {request.kind} devices with enough capacity")
        ]
        allocations = self._account(request).allocations
        other_n = allocations.other_n & (left_n == 0)
        if request.kind in SAME_DEVICES:
            other_n = other_n | (self._whole_n > 0)
        unclear_n = allocations.unclear_n & (left_n == 0)
        for stops_n, why in ((other_n, OTHER_WHY), (unclear_n, UNCLEAR_WHY)):
            if stops_n.any():
                limits.insert(0, (nodes.take(np.where(stops_n, 0.0, np.inf)), why))
        if self.node_lock:
            free_n = np.where(self._busy(), 0.0, np.inf)
            limits.append(
                (nodes.take(free_n), "node(s) are still allocating devices to another pod")
            )
        return limits

    def fits_after_eviction(
        self, task: Task, node: int, options: Sequence[Sequence[Task]]
    ) -> BoolArray | None:
        if _is_whole(task) and self._gpus_kind() and self._parted()[node]:
            return np.zeros(len(options), dtype=bool)
        request = self._request(task)
        if request is None or request.problem:
            return None
        if self._left(task, request, future=True)[node] > 0:
            return np.ones(len(options), dtype=bool)
        if not any(options):
            return np.zeros(len(options), dtype=bool)
        return self._account(request).fits_after_eviction(self._key(task), request, node, options)

    def _busy(self) -> BoolArray:
        """Return the nodes whose device plugin has not handled a pod yet."""
        if self._busy_n is None:
            now = self._session.now
            self._busy_n = np.asarray(
                [
                    any(
                        task.status in (BINDING, BOUND) and is_being_given(task.notes, now, LOCK_S)
                        for task in node.tasks.values()
                    )
                    for node in self._session.nodes.all
                ],
                dtype=bool,
            )
            if self._busy_n.any():
                self._session.wake(now + LOCK_S)
        busy_n = self._busy_n.copy()
        for state in self._states.values():
            busy_n |= state.has_placed()
        return busy_n

    def node_order(self, task: Task, nodes: Nodes) -> FloatArray:
        request = self._request(task)
        if request is None or self.weight <= 0 or request.problem:
            return np.zeros(len(nodes))
        self._left(task, request)
        score_n = self._account(request).score(self._key(task), nodes.index, nodes.added)
        return np.floor(score_n + 0.5) * self.weight

    # --- placement ----------------------------------------------------------------------------

    def allocated(self, task: Task, nodes: IntArray) -> None:
        if task.status not in (ALLOCATED, PIPELINED):
            self._replace(task, nodes, 1)
            return
        if _is_whole(task):
            np.add.at(self._whole_n, nodes, 1)
        request = self._request(task)
        if request is None:
            return
        is_later = task.status == PIPELINED
        self._left(task, request, future=is_later)
        self._account(request).place(self._key(task), request, task, nodes, is_later=is_later)

    def deallocated(self, task: Task, nodes: IntArray) -> None:
        if task.status == RELEASING:
            self._replace(task, nodes, -1)
            return
        if _is_whole(task):
            np.subtract.at(self._whole_n, nodes, 1)
        request = self._request(task)
        if request is not None:
            self._account(request).undo(nodes)

    def _replace(self, task: Task, nodes: IntArray, sign: int) -> None:
        """Mark the devices of a running task as releasing, or with 1 as used again."""
        for state in self._states_with(task):
            state.allocations.state(state.later_3nc, int(nodes[0]), task, sign)
            state.changed(nodes)

    def bind_annotations(
        self, tasks: Sequence[Task], nodes: IntArray
    ) -> list[Mapping[str, str] | None]:
        request = self._request(tasks[0])
        if request is None:
            return []
        state, now = self._account(request), self._session.now
        known = self._written.setdefault(request, {})
        out: list[Mapping[str, str] | None] = []
        for task, node, columns in zip(tasks, nodes.tolist(), state.chosen(nodes), strict=True):
            where = (node, *columns)
            if where not in known:  # pods on one device have equal annotations
                given = state.given(request, node, columns)
                known[where] = annotations_for(request, given, task.node_name, now)
            out.append(known[where])
        return out


def _is_whole(task: Task) -> bool:
    return task.klass.devices is not None and task.klass.devices.kind == WHOLE_GPU


def _matches(device: Device, request: Request) -> bool:
    """Tell whether the pod's annotations allow a device."""
    uuid, kind = whole_id(device.id), device.type.lower()
    mode = request.note(VGPU_MODE)
    if mode and mode != device.mode:
        return False
    only, never = _words(request.note(VGPU_USE_UUID)), _words(request.note(VGPU_NOUSE_UUID))
    if (only and uuid not in only) or uuid in never:
        return False
    only = [word.lower() for word in _words(request.note(USE_GPU_TYPE))]
    never = [word.lower() for word in _words(request.note(NOUSE_GPU_TYPE))]
    if only and not any(word in kind for word in only):
        return False
    return not any(word in kind for word in never)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
