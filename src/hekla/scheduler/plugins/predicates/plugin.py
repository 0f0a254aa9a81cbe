"""predicates: kube-scheduler's filters.

What depends on labels and taints alone is computed once per class and cached across cycles.
Resource amounts are not checked here, except the number of pods and host ports, which are given as
the number of equal tasks that each node takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from hekla.api.wellknown import TAINT_NOT_READY, TAINT_UNSCHEDULABLE
from hekla.scheduler.errors import PluginError
from hekla.scheduler.framework.arguments import Key
from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.placement.feasibility import PODS_EXCEEDED
from hekla.scheduler.plugins.predicates import affinity, drains, volumes
from hekla.scheduler.plugins.predicates.neighbours import Neighbours
from hekla.scheduler.plugins.reserve import Rates, copies_beside
from hekla.scheduler.state.classes import ports_conflict
from hekla.scheduler.state.dimensions import BoolArray, FloatArray, IntArray
from hekla.scheduler.state.labels import HARD_EFFECTS, tolerates
from hekla.scheduler.state.model import Task
from hekla.scheduler.state.status import RELEASING

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session

PORTS_TAKEN = "node(s) didn't have free ports for the requested pod ports"
RESERVED = "predicate.resources"


class Predicates(Plugin, name="predicates"):
    """Node selector, affinity, taints, ports, pod affinity, spread, volumes, readiness, pods."""

    by_class: ClassVar[bool] = True
    free_arguments: ClassVar[tuple[str, ...]] = (f"{RESERVED}.",)
    essential: ClassVar[bool] = True

    node_affinity: Annotated[bool, Key("predicate.NodeAffinityEnable")] = True
    node_ports: Annotated[bool, Key("predicate.NodePortsEnable")] = True
    taint_toleration: Annotated[bool, Key("predicate.TaintTolerationEnable")] = True
    pod_affinity: Annotated[bool, Key("predicate.PodAffinityEnable")] = True
    pod_topology_spread: Annotated[bool, Key("predicate.PodTopologySpreadEnable")] = True
    volume_binding: Annotated[bool, Key("predicate.VolumeBindingEnable")] = True
    volume_limits: Annotated[bool, Key("predicate.NodeVolumeLimitsEnable")] = True
    volume_zone: Annotated[bool, Key("predicate.VolumeZoneEnable")] = True
    cache: Annotated[bool, Key("predicate.CacheEnable")] = False
    dynamic_resources: Annotated[bool, Key("predicate.DynamicResourceAllocationEnable")] = False
    binding_weight: Annotated[int, Key("volumebinding.weight")] = 1
    binding_timeout: Annotated[int, Key("volumebinding.bindTimeoutSeconds")] = 600
    binding_shape: Annotated[list[Any], Key("volumebinding.shape")] = []  # noqa: RUF012
    claims_timeout: Annotated[int, Key("dynamicresources.filterTimeoutSeconds")] = 10
    """Accepted for compatibility with Volcano. Classes are always computed once, volumes are not
    scored, and device claims are not counted."""
    proportional: Annotated[bool, Key("predicate.ProportionalEnable")] = False
    reserved: Annotated[str, Key(RESERVED)] = ""
    """Devices, separated by commas, with reserved cpu and memory: for each idle device,
    `predicate.resources.DEVICE.cpu` cores and `.memory` gigabytes.

    Volcano has moved this to `resource-strategy-fit`, where it is too; older files have it here.
    """

    def configure(self, raw: Mapping[str, Any], switches: Mapping[str, bool]) -> None:
        super().configure(raw, switches)
        for name in (name.strip() for name in self.reserved.split(",")):
            if name and self.proportional:
                parts = (f"{RESERVED}.{name}.{part}" for part in ("cpu", "memory"))
                self._rates[name] = Rates(*(_amount(raw, key) for key in parts))

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._rates: dict[str, Rates] = {}

    def open(self, session: Session) -> None:
        self._session = session
        self._attachments = volumes.Attachments(session.cluster)
        self._neighbours: tuple[Task, int, Neighbours] | None = None
        self._drains: list[tuple[BoolArray, str]] | None = None

    def allocated(self, task: Task, nodes: IntArray) -> None:
        self._attachments.note(task, nodes.tolist(), 1)

    def deallocated(self, task: Task, nodes: IntArray) -> None:
        self._attachments.note(task, nodes.tolist(), -1)

    def pre_predicate(self, task: Task) -> str | None:
        if not self.volume_binding:
            return None
        return volumes.unusable(self._session.cluster, task)

    def predicate(self, task: Task, nodes: Nodes) -> Iterator[tuple[BoolArray, str]]:
        klass, session = task.klass, self._session
        columns, version = session.columns, session.cluster.node_table.labels_version
        if columns.is_unschedulable_n.any() and not self._tolerates_key(task, TAINT_UNSCHEDULABLE):
            yield from self._drained()
        if not columns.is_ready_n.all() and not self._tolerates_key(task, TAINT_NOT_READY):
            yield ~columns.is_ready_n, "node(s) were not ready"
        yield from klass.static("filters", version, lambda: list(self._static(task)))
        if klass.claims and (self.volume_binding or self.volume_zone):
            yield from volumes.rejections(
                session.cluster, task, binding=self.volume_binding, zones=self.volume_zone
            )
        if self.pod_affinity and session.cluster.term_classes:
            yield from affinity.rejections(session, task, nodes)
        if self.pod_topology_spread and klass.spread:
            yield from affinity.spread_rejections(session, task, nodes)
        if self.node_ports and klass.ports and not nodes.is_without_pods:
            yield self._port_conflicts(task, future=nodes.is_future), PORTS_TAKEN

    def node_capacity(self, task: Task, nodes: Nodes) -> list[tuple[FloatArray, str]]:
        columns = self._session.columns
        pods_n = nodes.take(columns.max_pods_n) - nodes.take(columns.pods_n)
        if nodes.is_future:
            pods_n = pods_n + nodes.take(self._session.releasing_pods())
        limits = [(pods_n, PODS_EXCEEDED)]
        if self.node_ports and task.klass.ports:
            free_n = np.ones(len(columns.pods_n))
            for column, ports in self._session.placed.ports.items():
                if ports_conflict(task.klass.ports, ports):
                    free_n[column] = 0.0
            limits.append((nodes.take(free_n), PORTS_TAKEN))
        attachable_n = self._attachments.copies(task) if self.volume_limits else None
        if attachable_n is not None:
            limits.append((nodes.take(attachable_n), volumes.ATTACHED))
        if self._rates:
            limits += copies_beside(self._rates, self._session.dimensions, task, nodes)
        return limits

    def depends_on_pods(self, task: Task) -> bool:
        klass = task.klass
        return bool(
            (self.node_ports and klass.ports)
            or (self.pod_topology_spread and klass.spread)
            or (self.pod_affinity and self.affects_other_nodes(task))
        )

    def fits_after_eviction(
        self, task: Task, node: int, options: Sequence[Sequence[Task]]
    ) -> BoolArray | None:
        columns = self._session.columns
        if columns.pods_n[node] < columns.max_pods_n[node] and not (
            self._session.placer.depends_on_pods(task)
        ):
            return None
        known = self._neighbours
        if known is None or known[:2] != (task, self._session.version):
            neighbours = Neighbours(
                self._session,
                task,
                pod_affinity=self.pod_affinity,
                spread=self.pod_topology_spread,
                ports=self.node_ports,
            )
            known = self._neighbours = (task, self._session.version, neighbours)
        return np.asarray([known[2].fits_without(node, victims) for victims in options], dtype=bool)

    def affects_other_nodes(self, task: Task) -> bool:
        return bool(self._session.cluster.term_classes) and affinity.is_coupled(self._session, task)

    def _drained(self) -> list[tuple[BoolArray, str]]:
        """Return the unschedulable nodes by reason, computed once per session."""
        if self._drains is None:
            session = self._session
            self._drains = drains.rejections(session.nodes.all, session.columns.is_unschedulable_n)
        return self._drains

    def _tolerates_key(self, task: Task, key: str) -> bool:
        return any(tolerates(t, key, "", "NoSchedule") for t in task.klass.tolerations)

    def _static(self, task: Task) -> Iterator[tuple[BoolArray, str]]:
        klass, labels = task.klass, self._session.cluster.node_table.labels
        if self.node_affinity:
            feasible_n = labels.matches_selector(klass.node_selector)
            node_affinity = klass.affinity.node_affinity
            if node_affinity is not None and node_affinity.required is not None:
                feasible_n &= labels.matches_terms(node_affinity.required)
            if not feasible_n.all():
                yield ~feasible_n, "node(s) didn't match Pod's node affinity/selector"
        if self.taint_toleration:
            feasible_n = labels.tolerated(klass.tolerations, HARD_EFFECTS)
            if not feasible_n.all():
                yield ~feasible_n, "node(s) had untolerated taint(s)"

    def _port_conflicts(self, task: Task, *, future: bool) -> BoolArray:
        out = np.zeros(len(self._session.nodes), dtype=bool)
        for node in self._session.cluster.node_table.node_list:
            if node.ports and ports_conflict(task.klass.ports, node.ports):
                out[node.index] = not future or any(
                    ports_conflict(task.klass.ports, dict.fromkeys(pod.klass.ports, 1))
                    for pod in node.tasks.values()
                    if pod.klass.ports and pod.status != RELEASING
                )
        return out


def _amount(raw: Mapping[str, Any], key: str) -> float:
    value = raw.get(key, 0)
    try:
        if isinstance(value, bool) or float(value) < 0:
            raise ValueError
        return float(value)
    except (ValueError, TypeError):
        raise PluginError(f"{key} must be a number, and {value!r} is not") from None
