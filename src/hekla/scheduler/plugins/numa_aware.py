"""numa-aware: place pods with exclusive CPUs where these CPUs are on few NUMA nodes.

A node agent reports the layout of its node in a Numatopology. Guaranteed pods with whole CPUs are
tried container by container, as the node's kubelet will: every set of NUMA nodes with enough free
CPUs is a hint; a hint that is no larger than on an empty node is preferred; the smallest preferred
hint is taken. A node whose policy does not admit the pod is infeasible.

Note: the kubelet decides which CPUs a pod gets, and reports it late. The decision is written to the
pod and counted until the Numatopology reports the pod. Unlike in Volcano, each pod is removed when
it is reported, not when all are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from hekla.api.numa import NONE, Taken, write_decision
from hekla.api.wellknown import TOPOLOGY_DECISION
from hekla.scheduler.framework.answers import Normalized
from hekla.scheduler.framework.arguments import Key
from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.state.dimensions import BoolArray, FloatArray, IntArray
from hekla.scheduler.state.model import Task
from hekla.scheduler.state.numa import Layout, State
from hekla.scheduler.state.status import ALLOCATED, PIPELINED

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session

UNKNOWN = -1


class NumaAware(Plugin, name="numa-aware"):
    """Filters by topology policy, and scores by the number of NUMA nodes used."""

    by_class: ClassVar[bool] = True
    essential: ClassVar[bool] = True

    weight: Annotated[int, Key("weight")] = 1

    def open(self, session: Session) -> None:
        self._session = session
        layouts = session.cluster.node_table.layouts
        found = layouts.by_column(session.cluster.numa_topologies, session.cluster.nodes)
        self._states = layouts.states
        state_n = np.full(len(session.nodes), UNKNOWN, dtype=np.int64)
        state_n[list(found)] = [state.number for state in found.values()]
        self._state_n: IntArray = state_n
        """The current state of each node by its number."""
        self._moves: dict[int, tuple[IntArray, list[Taken]]] = {}
        self._looked: dict[str, BoolArray] = {}
        self._written: dict[tuple[tuple[int, int], ...], Mapping[str, str]] = {}

    def _state(self, number: int) -> State | None:
        return None if number == UNKNOWN else self._states.all[number]

    def _looked_at(self, policy: str) -> BoolArray:
        """Return the nodes whose layout counts for pods with such a policy."""
        known = self._looked.get(policy)
        if known is None:
            numbers, at_n = _distinct(self._state_n)
            counts = [_is_looked_at(self._state(n), policy) for n in numbers.tolist()]
            known = self._looked[policy] = np.asarray(counts, dtype=bool)[at_n]
        return known

    def predicate(self, task: Task, nodes: Nodes) -> Iterator[tuple[BoolArray, str]]:
        policy = task.klass.numa_policy
        if not task.klass.whole_cpus:
            return
        numbers, at_n = _distinct(self._state_n)
        reasons = [_why_never(self._state(number), policy) for number in numbers.tolist()]
        for reason in sorted(set(reasons) - {""}):
            is_reason = np.asarray([each == reason for each in reasons], dtype=bool)
            yield is_reason[at_n] & self._looked_at(policy), reason

    def node_capacity(self, task: Task, nodes: Nodes) -> list[tuple[FloatArray, str]]:
        containers = task.klass.whole_cpus
        if not containers:
            return []
        looked_n = self._looked_at(task.klass.numa_policy)
        looked_n = looked_n if nodes.index is None else looked_n[nodes.index]
        state_n = self._state_n if nodes.index is None else self._state_n[nodes.index]
        numbers, at_n = _distinct(state_n)
        states = [self._state(number) for number in numbers.tolist()]
        most = [np.inf if s is None else float(len(s.widths(containers))) for s in states]
        most_n = np.where(looked_n, np.asarray(most)[at_n], np.inf)
        policies = [NONE if s is None else s.layout.policy for s in states]
        return [
            (
                np.where(np.asarray([each == policy for each in policies])[at_n], most_n, np.inf),
                f"node(s) had no NUMA nodes that fit under policy {policy}",
            )
            for policy in sorted(set(policies))
        ]

    def batch_node_order(self, task: Task, nodes: Nodes, candidates: IntArray) -> Normalized | None:
        containers, policy = task.klass.whole_cpus, task.klass.numa_policy
        if not containers or not np.any(self._state_n != UNKNOWN):
            return None

        def widths(index: IntArray, copies: IntArray) -> FloatArray:
            numbers, at = _distinct(self._state_n[index])
            deepest = int(copies.max(initial=0)) + 1
            table_sk = np.zeros((len(numbers), deepest))
            for row, number in enumerate(numbers.tolist()):
                state = self._state(number)
                if state is not None:
                    known = state.widths(containers)[:deepest]
                    table_sk[row, : len(known)] = known
            return np.where(self._looked_at(policy)[index], table_sk[at, copies], 0.0)

        return Normalized(np.zeros(0), float(self.weight), reverse=True, filling=widths)

    # --- decisions ----------------------------------------------------------------------------

    def allocated(self, task: Task, nodes: IntArray) -> None:
        containers = task.klass.whole_cpus
        if not containers or task.status not in (ALLOCATED, PIPELINED):
            return  # an eviction was rolled back: a releasing pod keeps its CPUs
        looked_n = self._looked_at(task.klass.numa_policy)
        taken: list[Taken] = []
        for column in nodes.tolist():
            state = self._state(int(self._state_n[column])) if looked_n[column] else None
            step = None if state is None else state.after(containers)
            taken.append({} if step is None else step[0])
            if step is not None:
                self._state_n[column] = step[1].number
        self._moves[id(nodes)] = (nodes, taken)

    def deallocated(self, task: Task, nodes: IntArray) -> None:
        _, taken = self._moves.pop(id(nodes), (nodes, []))
        for column, found in zip(nodes.tolist(), taken, strict=False):
            state = self._state(int(self._state_n[column]))
            if found and state is not None:
                self._state_n[column] = state.less(found, 1).number

    def bind_annotations(
        self, tasks: Sequence[Task], nodes: IntArray
    ) -> list[Mapping[str, str] | None]:
        _, taken = self._moves.get(id(nodes), (nodes, []))
        return [self._note(found) if found else None for found in taken]

    def _note(self, taken: Taken) -> Mapping[str, str]:
        key = tuple(taken.items())
        if key not in self._written:
            self._written[key] = {TOPOLOGY_DECISION: write_decision(taken)}
        return self._written[key]


def _distinct(state_n: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct state numbers, and the position of each node's; without sorting."""
    is_there = np.bincount(state_n - UNKNOWN, minlength=1) > 0
    numbers = np.flatnonzero(is_there)
    place = np.zeros(len(is_there), dtype=np.int64)
    place[numbers] = np.arange(len(numbers))
    return numbers + UNKNOWN, place[state_n - UNKNOWN]


def _is_looked_at(state: State | None, policy: str) -> bool:
    if policy not in ("", NONE):
        return True
    layout: Layout | None = None if state is None else state.layout
    return layout is not None and layout.is_static and layout.policy != NONE and not policy


def _why_never(state: State | None, policy: str) -> str:
    """Return why a node is infeasible whatever is free on it."""
    if state is None:
        return "node(s) have no Numatopology"
    layout = state.layout
    if not layout.is_static:
        return "node(s) give no pod CPUs of its own (CPU manager policy is not static)"
    if policy and policy != layout.policy:
        return f"node(s) have another topology policy than {policy}"
    return "" if layout.capacity else "node(s) have a Numatopology without CPUs"
