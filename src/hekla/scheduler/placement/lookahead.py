"""Lookahead: the nodes of the next tasks of a class, computed in one search.

Placing many tasks at once gives the same nodes as placing them one by one, so several jobs with
equal tasks are served from one search. Any change other than allocating the nodes that were taken
invalidates the lookahead.
"""

from __future__ import annotations

from hekla.scheduler.state.dimensions import IntArray
from hekla.scheduler.state.operation import Operation
from hekla.scheduler.state.status import ALLOCATED


class Lookahead:
    """A sequence of nodes for tasks to come."""

    __slots__ = ("_changes", "_nodes", "_taken", "_used", "among")

    def __init__(self, nodes: IntArray, changes: int, among: IntArray | None = None) -> None:
        self._nodes = nodes
        self._used = 0
        self._changes = changes
        self._taken: IntArray | None = None
        self.among = among
        """The nodes that were searched, compared by identity; None for all."""

    def is_valid(self, changes: int, last: Operation | None) -> bool:
        """Tell whether the only change since is that the nodes taken last were allocated."""
        if self._taken is None:
            return changes == self._changes
        if changes != self._changes + 1 or last is None or last.index is not self._taken:
            return False
        if last.to == ALLOCATED:
            self._changes, self._taken = changes, None
            return True
        return False

    def left(self) -> int:
        """Return how many nodes are not taken."""
        return len(self._nodes) - self._used

    def take(self, count: int) -> IntArray:
        """Return the next `count` nodes."""
        self._taken = self._nodes[self._used : self._used + count]
        self._used += count
        return self._taken
