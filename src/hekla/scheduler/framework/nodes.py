"""The nodes as hooks see them: arrays over all nodes, or over a view with tasks added.

A hook receives a `Nodes` and returns one value per node of it. To place many equal tasks in one
pass, the scheduler also calls with a view in which nodes carry a few more tasks of a class, or
appear several times with different numbers of them. A hook that reads through this object needs no
special case. An array over all nodes is a `NodeArray`, and is cut to the view on return.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from hekla.scheduler.state.classes import TaskClass
from hekla.scheduler.state.dimensions import Dimensions, FloatArray, IntArray
from hekla.scheduler.state.matrix import Columns
from hekla.scheduler.state.model import Node

T = TypeVar("T", float, int)


class NodeArray(np.ndarray[Any, np.dtype[np.float64]]):
    """An array over all nodes of the cluster, in the order of the columns.

    The type carries the axis: arithmetic keeps it, and a hook may return it for any view. A plain
    array that a hook returns is over the view.
    """


class Nodes:
    """Nodes of the cluster: all of them, or a view with tasks added."""

    __slots__ = (
        "_added",
        "_columns",
        "_dimensions",
        "_klass",
        "_list",
        "index",
        "is_future",
        "is_without_pods",
    )

    def __init__(
        self,
        columns: Columns,
        dimensions: Dimensions,
        nodes: Sequence[Node],
        *,
        index: IntArray | None = None,
        added: IntArray | None = None,
        klass: TaskClass | None = None,
    ) -> None:
        self._columns = columns
        self._dimensions = dimensions
        self._list = nodes
        self.index = index
        """The nodes of the view; None for all."""
        self._added = added
        self._klass = klass
        self.is_future = False
        """Whether releasing tasks count as gone and pipelined tasks as placed."""
        self.is_without_pods = False
        """Whether filters leave out what depends on the other pods, which could be evicted."""

    def __len__(self) -> int:
        return len(self._list) if self.index is None else len(self.index)

    def with_added(self, index: IntArray, added: IntArray, klass: TaskClass) -> Nodes:
        """Return a view of some nodes, each with a number of tasks of a class added."""
        return Nodes(
            self._columns, self._dimensions, self._list, index=index, added=added, klass=klass
        )

    def in_future(self) -> Nodes:
        """Return the same view once releasing tasks are gone and pipelined tasks are placed."""
        twin = Nodes(
            self._columns,
            self._dimensions,
            self._list,
            index=self.index,
            added=self._added,
            klass=self._klass,
        )
        twin.is_future = True
        return twin

    def without_pods(self) -> Nodes:
        """Return all nodes for filters that leave out what depends on the pods there."""
        twin = self.in_future()
        twin.is_without_pods = True
        return twin

    @property
    def added(self) -> IntArray | int:
        """The number of tasks that the view adds to each of its nodes."""
        return 0 if self._added is None else self._added

    def used(self, resource: str | int) -> FloatArray:
        """Return the requests of tasks on each node for a resource."""
        return self._read(self._columns.used_rn, resource, 1.0)

    def idle(self, resource: str | int) -> FloatArray:
        """Return the idle amount of a resource; negative on an over-committed node."""
        return self._read(self._columns.idle_rn, resource, -1.0)

    def allocatable(self, resource: str | int) -> FloatArray:
        """Return the allocatable amount of a resource."""
        return self._read(self._columns.allocatable_rn, resource, 0.0)

    def nonzero_used(self, which: int) -> FloatArray:
        """Return used CPU (0) or memory (1), with kube-scheduler's default for no request."""
        row_n: FloatArray = self._columns.nonzero_2n[which]
        if self.index is None:
            return row_n
        assert self._klass is not None
        assert self._added is not None
        amount = self._klass.nonzero_memory if which else self._klass.nonzero_cpu
        out: FloatArray = row_n[self.index] + self._added * amount
        return out

    def take(self, array_n: FloatArray) -> FloatArray:
        """Cut an array over all nodes to this view."""
        return array_n if self.index is None else array_n[self.index]

    def array(self, values: Sequence[float] | FloatArray) -> NodeArray:
        """Make an array over all nodes, to be kept in `open` and returned from hooks."""
        made = np.asarray(values).view(NodeArray)
        if len(made) != len(self._list):
            raise ValueError(f"{len(made)} values for {len(self._list)} nodes")
        return made

    def aligned(self, answer: FloatArray | IntArray) -> FloatArray:
        """Return a hook's answer over this view; ValueError if it has another axis."""
        out: FloatArray = np.asarray(self.take(answer) if isinstance(answer, NodeArray) else answer)
        if len(out) != len(self):
            raise ValueError(
                f"{len(out)} values for a view of {len(self)} nodes; make arrays over all nodes "
                "with nodes.array(values) or cut them with nodes.take(array)"
            )
        return out

    def annotation(self, key: str, kind: Callable[[str], T], *, default: T) -> NodeArray:
        """Return an annotation of every node as a number; `default` where there is none."""
        out = np.full(len(self._list), float(default))
        for i, node in enumerate(self._list):
            text = node.annotations.get(key)
            if text is not None:
                try:
                    out[i] = float(kind(text))
                except ValueError:
                    continue
        return self.array(out)

    @property
    def names(self) -> list[str]:
        """The names of all nodes."""
        return [node.name for node in self._list]

    @property
    def all(self) -> Sequence[Node]:
        """Every node of the cluster, in the order of the columns."""
        return self._list

    def _read(self, amounts_rn: FloatArray, resource: str | int, sign: float) -> FloatArray:
        row = resource if isinstance(resource, int) else self._dimensions.row(resource)
        if row is None or row >= amounts_rn.shape[0]:
            return np.zeros(len(self))
        row_n: FloatArray = amounts_rn[row]
        if self.index is None:
            return row_n
        out: FloatArray = row_n[self.index]
        assert self._klass is not None
        assert self._added is not None
        if sign and self._klass.request_r[row]:
            out = out + sign * self._added * self._klass.request_r[row]
        return out
