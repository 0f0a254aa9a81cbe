"""Eviction costs: for each node, what it costs to evict enough pods for a class of tasks."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TypeAlias

from hekla.scheduler.state.model import Task

Cost: TypeAlias = tuple[int, int, float, float]
"""The number of victims, their highest priority, what they request, and the age of the youngest."""


class EvictionCosts:
    """The eviction cost of each node for one class of tasks.

    While pods are evicted, plugins protect more of the others. Costs therefore rise, an old cost is
    a lower bound, and it is computed again only when it is the lowest. The cost of a node that
    changed is computed again. A preemption that is discarded restores the costs.
    """

    def __init__(self) -> None:
        self.heap: list[tuple[Cost, int]] = []
        self.by_node: dict[int, Cost] = {}
        self.seen = -1
        """The length of the change log that the costs are valid for; -1 before the first search."""
        self._written: list[tuple[int, Cost | None]] = []

    def write(self, index: int, cost: Cost | None) -> None:
        """Set the cost of a node; None if no victims make the task fit."""
        old = self.by_node.get(index)
        if cost == old:
            return
        self._written.append((index, old))
        self._set(index, cost)

    def _set(self, index: int, cost: Cost | None) -> None:
        if cost is None:
            self.by_node.pop(index, None)
        else:
            self.by_node[index] = cost
            heapq.heappush(self.heap, (cost, index))

    def begin(self) -> int:
        """Record writes from here on; pass the result to `restore`."""
        self._written = []
        return self.seen

    def restore(self, seen: int) -> None:
        """Undo the writes since `begin`."""
        for index, cost in reversed(self._written):
            self._set(index, cost)
        self._written, self.seen = [], seen

    def lowest(self) -> tuple[Cost, int] | None:
        """Return the lowest cost and its node."""
        while self.heap:
            cost, index = self.heap[0]
            if self.by_node.get(index) == cost:
                return cost, index
            heapq.heappop(self.heap)
        return None


def cost_of(victims: Sequence[Task]) -> Cost:
    """Return the cost of evicting some tasks of one node."""
    if not victims:
        return (0, 0, 0.0, 0.0)
    highest = max(max(v.priority, v.job.priority if v.job else 0) for v in victims)
    held = sum(sum(victim.klass.amounts) for victim in victims)
    return (len(victims), highest, held, -min(victim.created for victim in victims))
