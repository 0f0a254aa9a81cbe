"""CPUs of nodes by NUMA node: what is free, what pods would take, and what is left then.

Nodes in equal states give equal results, so each state is stored once, with the CPUs that the next
pod of a class takes and the state after it. The Numatopology and the pods of a node are read again
only when they change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hekla.api.nodeinfo import Numatopology
from hekla.api.numa import NONE, RESTRICTED, SINGLE, STATIC, Taken, fewest, read_decision
from hekla.api.wellknown import TOPOLOGY_DECISION
from hekla.units.cpusets import parse_cpuset
from hekla.units.quantity import QuantityError, parse_quantity

if TYPE_CHECKING:
    from hekla.scheduler.state.model import Node

MAX_NUMA: Final = 8
"""The most NUMA nodes of one node, as in kubelet's topology manager."""
MAX_DIGITS: Final = 4
"""The largest CPU number."""
MOST: Final = 256
"""The number of pods of a class that are computed in advance."""
MOST_STATES: Final = 4096
"""The number of states that are cached across cycles."""
Containers = tuple[int, ...]
"""Exclusive CPUs of a pod by container."""


@dataclass(slots=True)
class Layout:
    """The CPUs of one node, counted by NUMA node."""

    is_static: bool
    policy: str
    capacity: Taken
    free: Taken

    @classmethod
    def of(cls, obj: Numatopology, node: Node) -> Layout:
        spec = obj.spec
        numa_of = {
            int(cpu): info.numa
            for cpu, info in spec.cpu_detail.items()
            if cpu.isdecimal() and len(cpu) <= MAX_DIGITS
        }
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
                taken = read_decision(task.notes.get(TOPOLOGY_DECISION))
                if sum(taken.values()) <= sum(task.klass.whole_cpus):  # else not ours
                    _add(free, taken, -1)
        policies = spec.policies
        return cls(
            policies.get("CPUManagerPolicy") == STATIC,
            policies.get("TopologyManagerPolicy", NONE) or NONE,
            capacity,
            free,
        )

    def admit(self, containers: Sequence[int], policy: str) -> Taken | None:
        """Return what a pod would take by container; None if it is not admitted."""
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
        """Return the smallest set of NUMA nodes with enough free CPUs, and if it is minimal."""
        by_free = sorted(free, key=lambda numa: (-free[numa], numa))
        least = fewest(sorted(self.capacity.values(), reverse=True), wanted)
        enough = fewest([free[numa] for numa in by_free], wanted)
        if enough is None or least is None:
            return None
        return tuple(by_free[:enough]), enough == least


class State:
    """A layout that any number of nodes may have, and what pods would take of it."""

    __slots__ = ("_after", "_lookahead", "_states", "layout", "number")

    def __init__(self, layout: Layout, number: int, states: States) -> None:
        self.layout = layout
        self.number = number
        self._states = states
        self._after: dict[Containers, tuple[Taken, State] | None] = {}
        self._lookahead: dict[Containers, tuple[list[int], int]] = {}

    def after(self, containers: Containers) -> tuple[Taken, State] | None:
        """Return what a pod takes and the state after it; None if it is not admitted."""
        if containers not in self._after:
            taken = self.layout.admit(containers, self.layout.policy)
            found = None if taken is None else (taken, self.less(taken, -1))
            self._after[containers] = found
        return self._after[containers]

    def less(self, taken: Taken, sign: int) -> State:
        """Return the state with some CPUs taken (-1) or freed (1)."""
        layout = self.layout
        free = dict(layout.free)
        _add(free, taken, sign)
        return self._states.of(Layout(layout.is_static, layout.policy, layout.capacity, free))

    def widths(self, containers: Containers) -> Sequence[int]:
        """Return how many NUMA nodes each of the next pods uses, for as many as fit."""
        if containers not in self._lookahead:
            path, widths, state = [self], list[int](), self
            while len(widths) < MOST and (step := state.after(containers)) is not None:
                widths.append(len(step[0]))
                state = step[1]
                path.append(state)
            for start, passed in enumerate(path if len(widths) < MOST else path[:1]):
                passed._lookahead[containers] = (widths, start)
        widths, start = self._lookahead[containers]
        return widths[start:]


class States:
    """Interns states."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], State] = {}
        self.all: list[State] = []

    def of(self, layout: Layout) -> State:
        key = (
            layout.is_static,
            layout.policy,
            tuple(layout.capacity.items()),
            tuple(layout.free.items()),
        )
        state = self._known.get(key)
        if state is None:
            state = self._known[key] = State(layout, len(self.all), self)
            self.all.append(state)
        return state


class Layouts:
    """The states of a cluster's nodes, cached across cycles."""

    def __init__(self) -> None:
        self.stale: set[str] = set()
        """Nodes on which pods with exclusive CPUs were added or removed."""
        self.states = States()
        self._known: dict[str, tuple[Numatopology, State]] = {}

    def by_column(
        self, topologies: Mapping[str, Numatopology], nodes: Mapping[str, Node]
    ) -> dict[int, State]:
        """Return the state of each node with a Numatopology, by column."""
        if len(self.states.all) > MOST_STATES or len(self._known) > 2 * len(topologies) + 64:
            self.states, self._known = States(), {}
        found: dict[int, State] = {}
        for name, obj in topologies.items():
            node = nodes.get(name)
            if node is None or not node.is_known:
                continue
            known = self._known.get(name)
            if known is None or known[0] is not obj or name in self.stale:
                known = self._known[name] = (obj, self.states.of(Layout.of(obj, node)))
            found[node.index] = known[1]
        self.stale.clear()
        return found


def _cpus(text: str) -> set[int]:
    try:
        return parse_cpuset(text)
    except ValueError:
        return set()


def _reserve(free: Taken, text: str) -> None:
    """Remove reserved CPUs from the first NUMA nodes, as kubelet does."""
    try:
        left = max(-(-parse_quantity(text).milli_value() // 1000), 0)
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
