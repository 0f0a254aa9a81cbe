"""Task classes: tasks with equal scheduling constraints, for which decisions are computed once.

A class holds the requests of its tasks and everything that filters and scores derive from their
specs. What depends only on labels and taints of nodes is computed once and cached (`static`) across
cycles, until the cluster's labels change.

The labels of a pod are part of its class only where they matter for its placement: with pod
affinity or topology spread. Labels that number the pods of a set never are, or each pod would be a
class of its own. A selector on such a label therefore sees the labels of one pod for the whole
class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from hekla.api import pod_resources, wellknown
from hekla.api.defaults.pods import qos_class
from hekla.api.meta import convert
from hekla.api.pods import Affinity, Toleration, TopologySpreadConstraint
from hekla.scheduler.state import wire
from hekla.scheduler.state.devices.requests import Request, request_of
from hekla.scheduler.state.dimensions import (
    CPU,
    EPSILON,
    MEMORY,
    Dimensions,
    FloatArray,
    padded,
)
from hekla.units.quantity import QuantityError, parse_quantity

NUMBERING_LABELS: Final = frozenset(
    {
        wellknown.TASK_INDEX,
        "apps.kubernetes.io/pod-index",
        "statefulset.kubernetes.io/pod-name",
        "batch.kubernetes.io/job-completion-index",
    }
)

# kube-scheduler's defaults for containers without requests, in scores that spread pods.
DEFAULT_CPU_MILLI: Final = 100.0
DEFAULT_MEMORY_BYTES: Final = 200.0 * 2**20

QOS: Final = ("BestEffort", "Burstable", "Guaranteed")

HostPort = tuple[str, str, int]
"""Address, protocol, port."""


class TaskClass:
    """The constraints and requests that equal tasks share."""

    __slots__ = (
        "__weakref__",
        "_by_row",
        "_static",
        "affinity",
        "amounts",
        "claims",
        "devices",
        "ephemeral_classes",
        "images",
        "is_best_effort",
        "labels",
        "limits",
        "namespace",
        "node_selector",
        "nonzero_cpu",
        "nonzero_memory",
        "numa_policy",
        "ports",
        "priority",
        "problems",
        "qos",
        "request_r",
        "rows",
        "signature",
        "spread",
        "strategy",
        "tolerations",
        "whole_cpus",
    )

    def __init__(
        self,
        shape: wire.PodShape,
        signature: tuple[Any, ...],
        dimensions: Dimensions,
        namespace: str,
        labels: Mapping[str, str],
    ) -> None:
        self.signature = signature
        self.namespace = namespace
        self.labels = dict(labels)
        self.request_r, self.problems = _request(shape, dimensions)
        self.rows: tuple[int, ...] = tuple(
            r for r in range(len(dimensions)) if self.request_r[r] > 0
        )
        """The rows of the requested resources. Other rows are never compared."""
        self.amounts: tuple[float, ...] = tuple(float(self.request_r[r]) for r in self.rows)
        self._by_row = dict(zip(self.rows, self.amounts, strict=True))
        self.is_best_effort = all(amount < EPSILON for amount in self.amounts)
        spec = msgspec.to_builtins(shape)
        self.limits: tuple[float, float] = _limits(spec)
        """The limits of CPU in thousandths and memory in bytes; 0 for no limit."""
        self.qos = QOS.index(qos_class(spec))
        """The QoS class, as an index into `QOS`."""
        self.nonzero_cpu, self.nonzero_memory = _nonzero(shape, self.request_r)
        self.node_selector: dict[str, str] = shape.node_selector or {}
        self.affinity: Affinity = shape.affinity or Affinity()
        self.tolerations: tuple[Toleration, ...] = shape.tolerations or ()
        self.spread: tuple[TopologySpreadConstraint, ...] = shape.topology_spread_constraints or ()
        self.ports: tuple[HostPort, ...] = _host_ports(shape)
        containers = (*(shape.init_containers or ()), *(shape.containers or ()))
        self.images: tuple[str, ...] = tuple(c.image for c in containers)
        self.claims: tuple[str, ...] = tuple(
            volume.persistent_volume_claim.claim_name
            for volume in shape.volumes or ()
            if volume.persistent_volume_claim is not None
        )
        self.ephemeral_classes: tuple[str, ...] = tuple(
            _ephemeral_class(volume.ephemeral)
            for volume in shape.volumes or ()
            if volume.ephemeral is not None
        )
        """The storage classes of generic ephemeral volumes."""
        self.priority = shape.priority
        self.strategy: tuple[str, str] | None = None
        """The resource strategy of the pods: the type, and weights as JSON."""
        self.devices: Request | None = None
        """The device request."""
        self.numa_policy = ""
        self.whole_cpus: tuple[int, ...] = ()
        """Exclusive CPUs of containers in Guaranteed pods, where kubelet pins them."""
        self._static: dict[str, tuple[int, Any]] = {}

    def amount(self, row: int) -> float:
        """Return the requested amount of a resource."""
        return self._by_row.get(row, 0.0)

    @property
    def has_pod_terms(self) -> bool:
        """Whether the class has pod affinity or topology spread terms."""
        return bool(self.affinity.pod_affinity or self.affinity.pod_anti_affinity or self.spread)

    def static(self, name: str, version: int, compute: Callable[[], Any]) -> Any:
        """Return a value that is cached until labels or taints of nodes change."""
        known = self._static.get(name)
        if known is None or known[0] != version:
            known = self._static[name] = (version, compute())
        return known[1]

    def __repr__(self) -> str:
        return f"TaskClass({dict(zip(self.rows, self.amounts, strict=True))})"


class Classes:
    """Interns task classes. A class lives as long as a task has it."""

    def __init__(self, dimensions: Dimensions) -> None:
        self._dimensions = dimensions
        self._known: WeakValueDictionary[tuple[Any, ...], TaskClass] = WeakValueDictionary()

    def of(self, pod: wire.Pod) -> TaskClass:
        shape = wire.shape_of(pod.spec)
        key: tuple[Any, ...] = (wire.signature(shape),)
        namespace, labels = "", {}
        affinity = shape.affinity
        if shape.topology_spread_constraints or (
            affinity and (affinity.pod_affinity or affinity.pod_anti_affinity)
        ):
            namespace = pod.metadata.namespace
            labels = {
                k: v for k, v in (pod.metadata.labels or {}).items() if k not in NUMBERING_LABELS
            }
            key = (*key, namespace, tuple(sorted(labels.items())))
        elif shape.volumes:
            namespace = pod.metadata.namespace
            key = (*key, namespace)
        notes = pod.metadata.annotations or {}
        strategy = None
        if wellknown.RESOURCE_STRATEGY_SCORING_TYPE in notes:
            kind = notes[wellknown.RESOURCE_STRATEGY_SCORING_TYPE]
            strategy = (kind, notes.get(wellknown.RESOURCE_STRATEGY_WEIGHT, ""))
            key = (*key, "strategy", strategy)
        devices = request_of(shape, notes)
        if devices is not None and devices.choosing:
            key = (*key, "devices", devices.choosing)
        whole_cpus = _whole_cpus(shape) if pod.status.qos_class == "Guaranteed" else ()
        policy = notes.get(wellknown.NUMA_TOPOLOGY_POLICY, "") if whole_cpus else ""
        if whole_cpus:
            key = (*key, "numa", policy)
        found = self._known.get(key)
        if found is None:
            found = TaskClass(shape, key, self._dimensions, namespace, labels)
            found.whole_cpus, found.numa_policy = whole_cpus, policy
            found.strategy, found.devices = strategy, devices
            self._known[key] = found
        return found

    def __len__(self) -> int:
        return len(self._known)

    def fit_rows(self) -> None:
        """Lengthen the request vectors after a new resource was interned."""
        for known in list(self._known.values()):
            known.request_r = padded(known.request_r, self._dimensions.capacity)


def _request(shape: wire.PodShape, dimensions: Dimensions) -> tuple[FloatArray, tuple[str, ...]]:
    """Return the effective request of a pod, and its problems."""
    spec = msgspec.to_builtins(shape)
    problems: list[str] = []
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        problems += _drop_nonsense(container)
    try:
        amounts = {name: str(amount) for name, amount in pod_resources.pod_requests(spec).items()}
    except QuantityError as error:
        return dimensions.zeros(), (str(error),)
    if shape.resources is not None:  # pod-level requests replace the sum of the containers'
        amounts.update({k: str(v) for k, v in (shape.resources.requests or {}).items()})
    request_r, more = dimensions.vector(amounts)
    return request_r, tuple(problems + more)


def _limits(spec: Mapping[str, Any]) -> tuple[float, float]:
    """Return the limits of CPU and memory; 0 for an invalid value."""
    try:
        found = pod_resources.pod_limits(spec)
    except QuantityError:
        return 0.0, 0.0
    cpu, memory = found.get("cpu"), found.get("memory")
    return (
        0.0 if cpu is None else float(cpu.milli_value()),
        0.0 if memory is None else float(memory.value()),
    )


def _whole_cpus(shape: wire.PodShape) -> tuple[int, ...]:
    """Return the exclusive CPUs of each container; 0 for containers in the shared pool."""
    out = []
    for container in shape.containers or ():
        asked = (container.resources.requests if container.resources else None) or {}
        try:
            milli = parse_quantity(asked.get("cpu", 0)).milli_value()
        except QuantityError:
            continue
        if milli > 0 and milli % 1000 == 0:
            out.append(milli // 1000)
    return tuple(out)


def _ephemeral_class(source: Mapping[str, Any]) -> str:
    template = source.get("volumeClaimTemplate")
    spec = template.get("spec") if isinstance(template, Mapping) else None
    return str(spec.get("storageClassName") or "") if isinstance(spec, Mapping) else ""


def _drop_nonsense(container: dict[str, Any]) -> list[str]:
    """Remove invalid and negative requests, so that a bad value cannot hide in a sum."""
    requests = (container.get("resources") or {}).get("requests") or {}
    problems = []
    for name in list(requests):
        probe = Dimensions()
        _, wrong = probe.vector({name: requests[name]})
        try:
            parse_quantity(requests[name])  # resources without a row are checked too
        except QuantityError as error:
            wrong = wrong or [f"{name}: {error}"]
        if wrong and "more than any machine" not in wrong[0]:
            problems += wrong
            del requests[name]
    return problems


def _nonzero(shape: wire.PodShape, request_r: FloatArray) -> tuple[float, float]:
    """Return the request as kube-scheduler's LeastAllocated counts it."""
    cpu, memory = float(request_r[CPU]), float(request_r[MEMORY])
    for container in shape.containers or ():
        asked = (container.resources.requests if container.resources else None) or {}
        if "cpu" not in asked:
            cpu += DEFAULT_CPU_MILLI
        if "memory" not in asked:
            memory += DEFAULT_MEMORY_BYTES
    return cpu, memory


def _host_ports(shape: wire.PodShape) -> tuple[HostPort, ...]:
    ports = {
        (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)
        for container in shape.containers or ()
        for port in container.ports or ()
        if port.host_port > 0
    }
    return tuple(sorted(ports))


def ports_conflict(wanted: tuple[HostPort, ...], taken: Mapping[HostPort, int]) -> bool:
    """Tell whether host ports conflict; the address 0.0.0.0 stands for all."""
    for address, protocol, number in wanted:
        for other, its_protocol, its_number in taken:
            if (protocol, number) == (its_protocol, its_number) and (
                address == other or "0.0.0.0" in (address, other)
            ):
                return True
    return False


def pod_of(manifest: Mapping[str, Any]) -> wire.Pod:
    """Decode a pod from its manifest, for tests and tools."""
    return convert(manifest, wire.Pod)
