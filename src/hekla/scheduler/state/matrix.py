"""The cluster as arrays: one column per node, one row per resource, contiguous over the nodes.

After `refresh`, columns are in order of node name, so the lowest index wins every tie, whatever the
order in which nodes arrived. `Matrix` is the cache's own copy. A session works on `Columns` copied
from it and never writes here.

Accounting is Volcano's: a task on a node reduces idle and adds to used; a releasing task also adds
to releasing; a pipelined task adds to pipelined only. Future idle is `idle + releasing -
pipelined`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hekla.scheduler.state.dimensions import BoolArray, Dimensions, FloatArray, IntArray

_LEDGERS = ("allocatable_rn", "idle_rn", "used_rn", "releasing_rn", "pipelined_rn")


class Columns:
    """The arrays that scheduling reads and, in a session, changes."""

    __slots__ = (
        "allocatable_rn",
        "idle_rn",
        "is_ready_n",
        "is_unschedulable_n",
        "max_pods_n",
        "nonzero_2n",
        "pipelined_rn",
        "pods_n",
        "releasing_rn",
        "used_rn",
    )

    allocatable_rn: FloatArray
    idle_rn: FloatArray
    used_rn: FloatArray
    releasing_rn: FloatArray
    pipelined_rn: FloatArray
    nonzero_2n: FloatArray
    """Used CPU and memory, with kube-scheduler's 100m and 200Mi for pods without requests."""
    pods_n: FloatArray
    max_pods_n: FloatArray
    is_unschedulable_n: BoolArray
    is_ready_n: BoolArray

    def future_idle(self, row: int, index: IntArray | None = None) -> FloatArray:
        """Return the future idle amount of a resource, on some nodes or all."""
        future_n: FloatArray
        if index is None:
            future_n = self.idle_rn[row] + self.releasing_rn[row] - self.pipelined_rn[row]
        else:
            future_n = self.idle_rn[row, index] + self.releasing_rn[row, index]
            future_n -= self.pipelined_rn[row, index]
        return future_n

    def copy(self, rows: int, columns: int) -> Columns:
        """Return a copy for a session; arrays that sessions do not change are shared."""
        twin = Columns()
        twin.allocatable_rn = self.allocatable_rn[:rows, :columns]
        for name in ("idle_rn", "used_rn", "releasing_rn", "pipelined_rn"):
            setattr(twin, name, getattr(self, name)[:rows, :columns].copy())
        twin.nonzero_2n = self.nonzero_2n[:, :columns].copy()
        twin.pods_n = self.pods_n[:columns].copy()
        twin.max_pods_n = self.max_pods_n[:columns]
        twin.is_unschedulable_n = self.is_unschedulable_n[:columns]
        twin.is_ready_n = self.is_ready_n[:columns]
        return twin


class Matrix(Columns):
    """The cache's arrays, which grow in both directions."""

    __slots__ = ("_dimensions", "count")

    def __init__(self, dimensions: Dimensions) -> None:
        self._dimensions = dimensions
        self.count = 0
        rows, columns = dimensions.capacity, 16
        for name in _LEDGERS:
            setattr(self, name, np.zeros((rows, columns)))
        self.nonzero_2n = np.zeros((2, columns))
        self.pods_n = np.zeros(columns)
        self.max_pods_n = np.zeros(columns)
        self.is_unschedulable_n = np.zeros(columns, dtype=bool)
        self.is_ready_n = np.ones(columns, dtype=bool)

    def append(self) -> int:
        """Add an empty column and return its index."""
        if self.count == self.pods_n.shape[0]:
            self._reshape(self.idle_rn.shape[0], 2 * self.count)
        self.clear(self.count)
        self.count += 1
        return self.count - 1

    def clear(self, column: int) -> None:
        for name in (*_LEDGERS, "nonzero_2n"):
            getattr(self, name)[:, column] = 0.0
        self.pods_n[column] = self.max_pods_n[column] = 0.0
        self.is_unschedulable_n[column], self.is_ready_n[column] = False, True

    def fit_rows(self) -> None:
        """Add rows for new resources."""
        if self._dimensions.capacity > self.idle_rn.shape[0]:
            self._reshape(self._dimensions.capacity, self.pods_n.shape[0])

    def arrange(self, order: Sequence[int]) -> None:
        """Keep these columns, in this order."""
        picked: IntArray = np.asarray(order, dtype=np.int64)
        width = self.pods_n.shape[0]
        for name in self._arrays():
            old = getattr(self, name)
            new = np.zeros_like(old)
            new[..., : len(picked)] = old[..., picked]
            setattr(self, name, new)
        self.count = len(picked)
        assert self.pods_n.shape[0] == width

    def _arrays(self) -> Iterable[str]:
        return Columns.__slots__

    def _reshape(self, rows: int, columns: int) -> None:
        for name in self._arrays():
            old = getattr(self, name)
            shape = (columns,) if old.ndim == 1 else (rows, columns)
            if name == "nonzero_2n":
                shape = (2, columns)
            new = np.zeros(shape, dtype=old.dtype)
            if old.ndim == 1:
                new[: old.shape[0]] = old
            else:
                new[: old.shape[0], : old.shape[1]] = old
            setattr(self, name, new)
