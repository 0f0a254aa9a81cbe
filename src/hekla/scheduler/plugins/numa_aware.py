"""numa-aware: pods with CPUs of their own go where these are close together.

A node agent tells the layout of its node in a Numatopology. Guaranteed pods that ask for whole CPUs
are tried container by container as the node's kubelet will try them: every set of NUMA nodes with
enough free CPUs is a hint; one that is no larger than it would have to be on an empty machine is
preferred; the smallest preferred one is taken. What a policy does not admit is no candidate.

What a newcomer gets wrong: which CPUs a pod gets is the kubelet's to say, and it says so late. What
was decided here is written on the pod and counted until the Numatopology reports the pod. Unlike in
Volcano, each pod is counted off when it is reported, not when all are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import numpy as np

from hekla.api.nodeinfo import Numatopology
from hekla.api.numa import Taken, read_decision, write_decision
from hekla.api.wellknown import TOPOLOGY_DECISION
from hekla.scheduler.dimensions import BoolArray, IntArray
from hekla.scheduler.model import ALLOCATED, PIPELINED, Node, Task
from hekla.scheduler.nodes import Nodes
from hekla.scheduler.plugin import Key, Normalized, Plugin
from hekla.units.cpusets import parse_cpuset
from hekla.units.quantity import QuantityError, parse_quantity

if TYPE_CHECKING:
    from hekla.scheduler.session import Session

NONE, BEST_EFFORT, RESTRICTED, SINGLE = "none", "best-effort", "restricted", "single-numa-node"
STATIC: Final = "static"
MAX_NUMA: Final = 8
"""NUMA nodes of one machine, as many as kubelet's topology manager takes."""


@dataclass(slots=True)
class Layout:
    """One machine's CPUs, counted by NUMA node."""

    is_static: bool
    policy: str
    capacity: Taken
    free: Taken

    @classmethod
    def of(cls, obj: Numatopology, node: Node) -> Layout:
        spec = obj.spec
        numa_of = {int(cpu): info.numa for cpu, info in spec.cpu_detail.items() if cpu.isdecimal()}
        told = spec.numares.get("cpu")
        allocatable = _cpus(told.allocatable if told else "")
        for pod in spec.pod_allocations:
            for container in pod.container_allocations:
                allocatable -= _cpus(container.allocations.get("cpu", ""))
        numas = sorted(set(numa_of.values()))[:MAX_NUMA]
        capacity = {numa: sum(1 for n in numa_of.values() if n == numa) for numa in numas}
        free = {numa: sum(1 for cpu in allocatable if numa_of.get(cpu) == numa) for numa in numas}
        _reserve(free, spec.res_reserved.get("cpu", "0"))
        reported = {pod.uid for pod in spec.pod_allocations}
        for task in node.tasks.values():
            if task.uid not in reported:
                _add(free, read_decision(task.notes.get(TOPOLOGY_DECISION)), -1)
        policies = spec.policies
        return cls(
            policies.get("CPUManagerPolicy") == STATIC,
            policies.get("TopologyManagerPolicy", NONE) or NONE,
            capacity,
            free,
        )

    def admit(self, containers: Sequence[int], policy: str) -> Taken | None:
        """What a pod would take, container by container; None where it is not let in."""
        free, total = dict(self.free), {numa: 0 for numa in self.free}
        for wanted in containers:
            best = self._best_hint(free, wanted)
            if best is None:
                return None
            chosen, is_preferred = best
            if policy == SINGLE and len(chosen) > 1:
                return None
            if policy in (RESTRICTED, SINGLE) and not is_preferred:
                return None
            left = wanted
            for numa in sorted(chosen, key=lambda n: (-free[n], n)):
                part = min(left, free[numa])
                free[numa] -= part
                total[numa] += part
                left -= part
        return {numa: cpus for numa, cpus in total.items() if cpus}

    def _best_hint(self, free: Taken, wanted: int) -> tuple[tuple[int, ...], bool] | None:
        """The smallest set of NUMA nodes with enough free, and whether it is as small as can be."""
        by_free = sorted(free, key=lambda numa: (-free[numa], numa))
        least = _fewest(sorted(self.capacity.values(), reverse=True), wanted)
        enough = _fewest([free[numa] for numa in by_free], wanted)
        if enough is None or least is None:
            return None
        return tuple(by_free[:enough]), enough == least


class NumaAware(Plugin, name="numa-aware"):
    """Filters by topology policy, scores by the NUMA nodes that would be used."""

    by_class: ClassVar[bool] = True
    essential: ClassVar[bool] = True

    weight: Annotated[int, Key("weight")] = 1

    def open(self, session: Session) -> None:
        self._session = session
        self._layouts: dict[int, Layout] = {}
        self._moves: dict[int, tuple[IntArray, list[Taken]]] = {}
        for name, obj in sorted(session.cluster.numa_topologies.items()):
            node = session.cluster.nodes.get(name)
            if node is not None and node.is_known:
                self._layouts[node.index] = Layout.of(obj, node)

    def _is_looked_at(self, layout: Layout | None, policy: str) -> bool:
        if policy not in ("", NONE):
            return True
        return layout is not None and layout.is_static and layout.policy != NONE and not policy

    def one_by_one(self, task: Task) -> bool:
        return bool(task.klass.whole_cpus) and bool(self._layouts)

    def predicate(self, task: Task, nodes: Nodes) -> Iterator[tuple[BoolArray, str]]:
        policy, containers = task.klass.numa_policy, task.klass.whole_cpus
        if not containers:
            return
        refused: dict[str, list[int]] = {}
        for column in range(len(nodes.all)):
            layout = self._layouts.get(column)
            if self._is_looked_at(layout, policy):
                reason = _why_not(layout, policy, containers)
                if reason:
                    refused.setdefault(reason, []).append(column)
        for reason, columns in refused.items():
            mask = np.zeros(len(nodes.all), dtype=bool)
            mask[columns] = True
            yield mask, reason

    def batch_node_order(self, task: Task, nodes: Nodes, candidates: IntArray) -> Normalized | None:
        containers = task.klass.whole_cpus
        if not containers or not self._layouts:
            return None
        used_n = np.zeros(len(nodes.all))
        for column in candidates.tolist():
            layout = self._layouts.get(column)
            if layout is not None and self._is_looked_at(layout, task.klass.numa_policy):
                used_n[column] = len(layout.admit(containers, BEST_EFFORT) or ())
        return Normalized(used_n, float(self.weight), reverse=True)

    # --- what was decided ---------------------------------------------------------------------

    def allocated(self, task: Task, nodes: IntArray) -> None:
        if not task.klass.whole_cpus or task.status not in (ALLOCATED, PIPELINED):
            return  # an eviction was taken back: who leaves keeps its CPUs until it is gone
        taken: list[Taken] = []
        for column in nodes.tolist():
            layout = self._layouts.get(column)
            found: Taken = {}
            if layout is not None and self._is_looked_at(layout, task.klass.numa_policy):
                found = layout.admit(task.klass.whole_cpus, layout.policy) or {}
                _add(layout.free, found, -1)
            taken.append(found)
        self._moves[id(nodes)] = (nodes, taken)

    def deallocated(self, task: Task, nodes: IntArray) -> None:
        _, taken = self._moves.pop(id(nodes), (nodes, []))
        for column, found in zip(nodes.tolist(), taken, strict=False):
            if found:
                _add(self._layouts[column].free, found, 1)

    def bind_annotations(
        self, tasks: Sequence[Task], nodes: IntArray
    ) -> list[Mapping[str, str] | None]:
        _, taken = self._moves.get(id(nodes), (nodes, []))
        return [{TOPOLOGY_DECISION: write_decision(found)} if found else None for found in taken]


def _why_not(layout: Layout | None, policy: str, containers: Sequence[int]) -> str:
    if layout is None:
        return "node(s) have no Numatopology"
    if not layout.is_static:
        return "node(s) give no pod CPUs of its own (CPU manager policy is not static)"
    if policy and policy != layout.policy:
        return f"node(s) have another topology policy than {policy}"
    if not layout.capacity:
        return "node(s) have a Numatopology without CPUs"
    if layout.admit(containers, layout.policy) is None:
        return f"node(s) had no NUMA nodes that fit under policy {layout.policy}"
    return ""


def _fewest(amounts: Sequence[int], wanted: int) -> int | None:
    """How many of some amounts, the largest first, are enough; at least one."""
    total = 0
    for number, amount in enumerate(amounts, start=1):
        total += amount
        if total >= wanted:
            return number
    return None


def _cpus(text: str) -> set[int]:
    try:
        return parse_cpuset(text)
    except ValueError:
        return set()


def _reserve(free: Taken, text: str) -> None:
    """CPUs kept for the system come off the first NUMA nodes, as kubelet takes them."""
    try:
        left = -(-parse_quantity(text).milli_value() // 1000)
    except QuantityError:
        return
    for numa in sorted(free):
        part = min(left, free[numa])
        free[numa] -= part
        left -= part


def _add(free: Taken, amounts: Taken, sign: int) -> None:
    for numa, cpus in amounts.items():
        if numa in free:
            free[numa] = max(free[numa] + sign * cpus, 0)
