"""The nodes as hooks see them: all at once, and also as they would be with more tasks on them.

A hook gets a `Nodes` and returns one value per node. To place many equal tasks in one pass, the
scheduler also asks with a view in which some nodes carry a few more copies of the task, or appear
several times with different numbers of copies. A hook that only reads through this object is right
without knowing; one that returns an array over all nodes, made in `open`, is right too: it is cut
to the view.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from hekla.scheduler.classes import TaskClass
from hekla.scheduler.dimensions import Dimensions, FloatArray, IntArray
from hekla.scheduler.matrix import Columns
from hekla.scheduler.model import Node

T = TypeVar("T", float, int)


class Nodes:
    """Columns of the matrix, by default all of them as they are."""

    __slots__ = ("_columns", "_copies", "_dimensions", "_klass", "_list", "index", "is_future")

    def __init__(
        self,
        columns: Columns,
        dimensions: Dimensions,
        nodes: Sequence[Node],
        *,
        index: IntArray | None = None,
        copies: IntArray | None = None,
        klass: TaskClass | None = None,
    ) -> None:
        self._columns = columns
        self._dimensions = dimensions
        self._list = nodes
        self.index = index
        """Which nodes the view holds; None for all."""
        self._copies = copies
        self._klass = klass
        self.is_future = False
        """Whether those who are leaving count as gone, and what was promised as taken."""

    def __len__(self) -> int:
        return len(self._list) if self.index is None else len(self.index)

    def with_copies(self, index: IntArray, copies: IntArray, klass: TaskClass) -> Nodes:
        """A view of some nodes, each with a number of copies of a class added."""
        return Nodes(
            self._columns, self._dimensions, self._list, index=index, copies=copies, klass=klass
        )

    def in_future(self) -> Nodes:
        """The same nodes as they will be."""
        twin = Nodes(
            self._columns,
            self._dimensions,
            self._list,
            index=self.index,
            copies=self._copies,
            klass=self._klass,
        )
        twin.is_future = True
        return twin

    @property
    def copies(self) -> IntArray | int:
        """How many tasks more than there are the view has on each of its nodes."""
        return 0 if self._copies is None else self._copies

    def used(self, resource: str | int) -> FloatArray:
        """What tasks on the nodes request of a resource."""
        return self._read(self._columns.used_rn, resource, 1.0)

    def idle(self, resource: str | int) -> FloatArray:
        """What is left of a resource; less than nothing where someone over-committed."""
        return self._read(self._columns.idle_rn, resource, -1.0)

    def allocatable(self, resource: str | int) -> FloatArray:
        """What the nodes offer of a resource."""
        return self._read(self._columns.allocatable_rn, resource, 0.0)

    def nonzero_used(self, which: int) -> FloatArray:
        """CPU (0) or memory (1) in use, counting kube-scheduler's minimum for who asks nothing."""
        row_n: FloatArray = self._columns.nonzero_2n[which]
        if self.index is None:
            return row_n
        assert self._klass is not None
        assert self._copies is not None
        amount = self._klass.nonzero_memory if which else self._klass.nonzero_cpu
        out: FloatArray = row_n[self.index] + self._copies * amount
        return out

    def take(self, array_n: FloatArray) -> FloatArray:
        """An array over all nodes, cut to this view."""
        return array_n if self.index is None else array_n[self.index]

    def annotation(self, key: str, kind: Callable[[str], T], *, default: T) -> FloatArray:
        """An annotation of every node as a number; `default` where it is missing or unreadable."""
        out = np.full(len(self._list), float(default))
        for i, node in enumerate(self._list):
            text = node.annotations.get(key)
            if text is not None:
                try:
                    out[i] = float(kind(text))
                except ValueError:
                    continue
        return out

    @property
    def names(self) -> list[str]:
        return [node.name for node in self._list]

    @property
    def all(self) -> Sequence[Node]:
        """Every node of the cluster, in the order of the columns."""
        return self._list

    def _read(self, ledger_rn: FloatArray, resource: str | int, sign: float) -> FloatArray:
        row = resource if isinstance(resource, int) else self._dimensions.row(resource)
        if row is None or row >= ledger_rn.shape[0]:
            return np.zeros(len(self))
        row_n: FloatArray = ledger_rn[row]
        if self.index is None:
            return row_n
        out: FloatArray = row_n[self.index]
        assert self._klass is not None
        assert self._copies is not None
        if sign and self._klass.request_r[row]:
            out = out + sign * self._copies * self._klass.request_r[row]
        return out
