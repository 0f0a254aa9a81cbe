"""The log of nodes that changed during a session, so that caches update only those."""

from __future__ import annotations

import numpy as np

from hekla.scheduler.state.dimensions import IntArray
from hekla.scheduler.state.operation import Operation
from hekla.scheduler.state.status import ALLOCATED


class ChangeLog:
    """The nodes of every operation and rollback of a session, in order.

    Note: caches see a write to the columns only if it is followed by `mark`.
    """

    def __init__(self, *, has_future: bool) -> None:
        self._entries: list[IntArray] = []
        self._merged: tuple[tuple[int, int], IntArray] = ((-1, -1), np.zeros(0, dtype=np.int64))
        """The last result of `between`, with its span."""
        self.last: Operation | None = None
        """The last operation; None if the last change was a rollback or a reservation."""
        self.has_future = has_future
        """Whether any node has releasing, pipelined or reserved resources."""

    def __len__(self) -> int:
        return len(self._entries)

    def mark(self, index: IntArray, operation: Operation | None = None) -> None:
        """Record that nodes changed by an operation, or by a rollback without one."""
        self._entries.append(index)
        self.last = operation
        self.has_future |= operation is not None and operation.to != ALLOCATED

    def mark_reserved(self, index: IntArray) -> None:
        """Record that capacity of nodes was reserved or released."""
        self.mark(index)
        self.has_future = True

    def since(self, seen: int) -> list[int] | None:
        """Return the nodes that changed after entry `seen`; None for all, if it is negative."""
        if seen < 0:
            return None
        entries = self._entries[seen:]
        if len(entries) == 1 and len(entries[0]) == 1:
            return [int(entries[0][0])]
        return sorted({int(i) for index in entries for i in index.tolist()})

    def index_since(self, seen: int) -> IntArray:
        """Return the nodes that changed after entry `seen` as a sorted array without repeats."""
        span = (seen, len(self._entries))
        if self._merged[0] != span:
            changed = self._entries[seen]
            if len(changed) > 1 or span[1] > seen + 1:
                changed = np.unique(np.concatenate(self._entries[seen:]))
            self._merged = (span, changed)
        return self._merged[1]
