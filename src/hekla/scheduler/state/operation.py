"""One tentative change of a session: equal tasks placed on nodes, or one task evicted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hekla.scheduler.state.dimensions import FloatArray, IntArray
from hekla.scheduler.state.matrix import Columns
from hekla.scheduler.state.model import Job, Task
from hekla.scheduler.state.status import PIPELINED, RELEASING, Status

_SAVED = ("idle_rn", "used_rn", "releasing_rn", "pipelined_rn", "nonzero_2n")


class Operation:
    """Equal tasks that are allocated or pipelined on nodes, or one that is evicted."""

    __slots__ = (
        "_columns",
        "_counts",
        "_nodes",
        "_sums",
        "index",
        "is_applied",
        "is_committed",
        "is_notified",
        "job",
        "old",
        "preemptor",
        "reason",
        "tasks",
        "to",
    )

    def __init__(self, job: Job, tasks: Sequence[Task], index: IntArray, to: Status) -> None:
        self.job = job
        self.tasks = tasks
        self.index = index
        self.to = to
        self.old: Status = tasks[0].status
        self.reason = ""
        self.preemptor: Job | None = None
        """The job that tasks are evicted for."""
        self.is_committed = False
        self.is_applied = False
        self.is_notified = False
        """Whether plugins were notified."""
        self._nodes: IntArray | int = 0
        self._counts: IntArray | int = 0
        self._columns: tuple[list[FloatArray], FloatArray] | None = None
        self._sums: tuple[FloatArray, ...] = ()

    def save(self, columns: Columns) -> None:
        """Save every number that `apply` changes. Call it before `apply`."""
        if len(self.index) == 1:  # plain numbers are much faster than arrays of one
            self._nodes, self._counts = int(self.index[0]), 1
        else:
            self._nodes, self._counts = np.unique(self.index, return_counts=True)
        saved = [getattr(columns, name)[:, self._nodes].copy() for name in _SAVED]
        self._columns = (saved, columns.pods_n[self._nodes].copy())
        job, queue = self.job, self.job.queue
        self._sums = (job.allocated_r.copy(), job.pending_r.copy())
        if queue is not None:
            self._sums += (queue.allocated_r.copy(), queue.pending_r.copy())

    def apply(self, columns: Columns, names: Sequence[str]) -> None:
        """Change columns, tasks and sums; `names` are the node names by column."""
        self._account(columns)
        if self.to != RELEASING:
            for task, i in zip(self.tasks, self.index.tolist(), strict=True):
                task.node_name = names[i]
        self.job.move(self.tasks, self.to)
        self.is_applied = True

    def _account(self, columns: Columns) -> None:
        klass, nodes, counts = self.tasks[0].klass, self._nodes, self._counts
        for row, amount in zip(klass.rows, klass.amounts, strict=True):
            if self.to == RELEASING:
                columns.releasing_rn[row, nodes] += counts * amount
            elif self.to == PIPELINED:
                columns.pipelined_rn[row, nodes] += counts * amount
            else:
                columns.idle_rn[row, nodes] -= counts * amount
                columns.used_rn[row, nodes] += counts * amount
        if self.to != RELEASING:
            columns.pods_n[nodes] += counts
            columns.nonzero_2n[0, nodes] += counts * klass.nonzero_cpu
            columns.nonzero_2n[1, nodes] += counts * klass.nonzero_memory

    def undo(self, columns: Columns | None) -> None:
        """Restore what was saved; without columns, only the tasks and sums of the cluster.

        It also undoes an operation that was saved but not applied, or applied up to an error.
        """
        if self.is_applied:
            self.job.move(self.tasks, self.old)
            self.is_applied = False
        if self.to != RELEASING:
            for task in self.tasks:
                task.node_name = ""
        job, queue = self.job, self.job.queue
        job.allocated_r[:], job.pending_r[:] = self._sums[0], self._sums[1]
        if queue is not None and len(self._sums) == 4:
            queue.allocated_r[:], queue.pending_r[:] = self._sums[2], self._sums[3]
        if columns is not None and self._columns is not None:
            saved, pods = self._columns
            for name, old in zip(_SAVED, saved, strict=True):
                getattr(columns, name)[:, self._nodes] = old
            columns.pods_n[self._nodes] = pods
