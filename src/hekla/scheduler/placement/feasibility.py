"""Feasible nodes: the filters of plugins, and how many equal tasks each node takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.framework.tiers import FAILED, Tiers
from hekla.scheduler.placement.changes import ChangeLog
from hekla.scheduler.placement.greedy import NO_NODES
from hekla.scheduler.state.dimensions import EPSILON, BoolArray, FloatArray, IntArray
from hekla.scheduler.state.matrix import Columns
from hekla.scheduler.state.model import Task

UNLIMITED: Final = np.int64(2**31)
PODS_EXCEEDED: Final = "node(s) pod number exceeded"
_NONE_ADDED: Final[IntArray] = np.zeros(1, dtype=np.int64)


class Feasibility:
    """Filters and capacity of the nodes of one session."""

    def __init__(self, tiers: Tiers, columns: Columns, nodes: Nodes, changes: ChangeLog) -> None:
        self._tiers = tiers
        self._columns = columns
        self._nodes = nodes
        self._changes = changes
        self._restriction: IntArray | None = None
        self.has_restrictions = tiers.has(hooks.restrict_nodes)

    @contextmanager
    def restrict_to(self, nodes: IntArray | None) -> Iterator[None]:
        """Allow only these nodes (ascending) inside the block; None for no restriction."""
        before, self._restriction = self._restriction, nodes
        try:
            yield
        finally:
            self._restriction = before

    def allowed_nodes(self, task: Task) -> IntArray | None:
        """Return the nodes that the block or a plugin restricts the task to; None for all."""
        if self._restriction is not None or not self.has_restrictions:
            return self._restriction
        for call in self._tiers.calls(hooks.restrict_nodes):
            nodes = self._tiers.call(call, hooks.restrict_nodes, task)
            if nodes is FAILED:
                if call[0].essential:
                    return NO_NODES
            elif nodes is not None:
                return nodes
        return None

    def filter(self, task: Task, nodes: Nodes | None = None) -> BoolArray:
        """Return the mask of nodes that pass all filters, whatever capacity they have."""
        feasible_n = np.ones(len(self._nodes), dtype=bool)
        for mask, _ in self.rejections(task, nodes):
            feasible_n &= ~mask
        return feasible_n

    def rejections(self, task: Task, nodes: Nodes | None = None) -> list[tuple[BoolArray, str]]:
        """Return masks of nodes that the filters reject, with reasons.

        `nodes` are all nodes, now unless a view of them in the future or without pods is given.
        """
        everywhere = np.ones(len(self._nodes), dtype=bool)
        found: list[tuple[BoolArray, str]] = []
        for pre_call in self._tiers.calls(hooks.pre_predicate):
            reason = self._tiers.call(pre_call, hooks.pre_predicate, task)
            if reason is FAILED:
                if pre_call[0].essential:
                    return [(everywhere, f"plugin {pre_call[0].name} failed")]
            elif reason is not None:
                return [(everywhere, str(reason))]
        for call in self._tiers.calls(hooks.predicate):
            answer = self._tiers.call(call, hooks.predicate, task, nodes or self._nodes)
            # A generator runs here, so that its errors are the plugin's failure too.
            masks = (
                FAILED
                if answer is FAILED
                else self._tiers.call((call[0], _as_list), hooks.predicate, answer)
            )
            if masks is FAILED:
                if call[0].essential:
                    return [(everywhere, f"plugin {call[0].name} failed")]
                continue
            found += [(np.asarray(mask, dtype=bool), reason) for mask, reason in masks]
        return found

    def capacity(
        self, task: Task, nodes: Nodes, *, future: bool = False, ignore_resources: bool = False
    ) -> IntArray:
        """Return how many equal tasks each node takes: the most c with c · request < idle + ε.

        Note: pipelined and reserved resources are not free, even where they are idle now. With
        `future`, releasing resources are free too.
        """
        columns, index = self._columns, nodes.index
        capacity_n = np.full(len(nodes), float(UNLIMITED))
        if not ignore_resources:
            for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
                if row >= columns.idle_rn.shape[0]:
                    return np.zeros(len(nodes), dtype=np.int64)
                idle_n = columns.idle_rn[row] if index is None else columns.idle_rn[row, index]
                if self._changes.has_future:
                    later_n = columns.future_idle(row, index)
                    idle_n = later_n if future else np.minimum(idle_n, later_n)
                np.minimum(capacity_n, np.ceil((idle_n + EPSILON) / amount) - 1.0, out=capacity_n)
        capacity_n = self._limited(task, nodes.in_future() if future else nodes, capacity_n)
        np.maximum(capacity_n, 0.0, out=capacity_n)
        return capacity_n.astype(np.int64)

    def _limited(self, task: Task, nodes: Nodes, capacity_n: FloatArray) -> FloatArray:
        for limit_n, _ in self.limits(task, nodes):
            np.minimum(capacity_n, limit_n, out=capacity_n)
        return capacity_n

    def limits(self, task: Task, nodes: Nodes) -> list[tuple[FloatArray, str]]:
        """Return the limits of plugins on how many equal tasks each node takes, with reasons."""
        found: list[tuple[FloatArray, str]] = []
        for call in self._tiers.calls(hooks.node_capacity):
            answer = self._tiers.call(call, hooks.node_capacity, task, nodes)
            if isinstance(answer, np.ndarray):
                answer = [(answer, PODS_EXCEEDED)]
            if answer is not None and answer is not FAILED:
                try:
                    found += [(nodes.aligned(limit_n), reason) for limit_n, reason in answer]
                except ValueError as error:
                    self._tiers.fail(call[0], hooks.node_capacity, error)
                    answer = FAILED
            if answer is FAILED and call[0].essential:
                found.append((np.zeros(len(nodes)), f"plugin {call[0].name} failed"))
        return found

    def fits_resources(self, task: Task, index: int, *, future: bool = False) -> bool:
        """Tell whether one node has the resources for a task, now or in the future.

        The same as `capacity` for one node, with plain numbers: a quarter faster.
        """
        columns = self._columns
        for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
            if row >= columns.idle_rn.shape[0]:
                return False
            idle = float(columns.idle_rn[row, index])
            later = idle + float(
                columns.releasing_rn[row, index] - columns.pipelined_rn[row, index]
            )
            if (later if future else min(idle, later)) + EPSILON <= amount:
                return False
        view = self._nodes.with_added(np.asarray([index]), _NONE_ADDED, task.klass)
        view = view.in_future() if future else view
        return bool(self._limited(task, view, np.full(1, float(UNLIMITED)))[0] > 0)


def _as_list(masks: Iterable[tuple[BoolArray, str]]) -> list[tuple[BoolArray, str]]:
    return list(masks)
