"""Looking ahead: where the next tasks of a class will go, if nothing else happens meanwhile.

Placing many at once gives the same nodes as placing one by one, so a row of jobs can be served from
one look at the nodes. The row is only as good as the silence since: anything but taking what was
given ends it.
"""

from __future__ import annotations

from hekla.scheduler.dimensions import IntArray
from hekla.scheduler.model import ALLOCATED
from hekla.scheduler.statement import Operation


class Ahead:
    """A row of nodes for tasks to come."""

    __slots__ = ("_changes", "_given", "_nodes", "_used", "among")

    def __init__(self, nodes: IntArray, changes: int, among: IntArray | None = None) -> None:
        self._nodes = nodes
        self._used = 0
        self._changes = changes
        self._given: IntArray | None = None
        self.among = among
        """The nodes that were looked at, this very array; None for all."""

    def holds(self, changes: int, last: Operation | None) -> bool:
        """Whether all that happened is that what was given was taken."""
        if self._given is None:
            return changes == self._changes
        if changes != self._changes + 1 or last is None or last.index is not self._given:
            return False
        if last.to == ALLOCATED:
            self._changes, self._given = changes, None
            return True
        return False

    def left(self) -> int:
        return len(self._nodes) - self._used

    def give(self, count: int) -> IntArray:
        self._given = self._nodes[self._used : self._used + count]
        self._used += count
        return self._given
