"""Tentative moves: leave the block without `commit` or `keep`, and nothing has happened.

    with session.statement() as statement:
        statement.allocate(tasks, nodes)
        if session.job_ready(job):
            statement.commit()

All-or-nothing lives here and nowhere else. Rolling back writes the saved numbers back rather than
computing them again, so every array is restored bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from hekla.scheduler.dimensions import FloatArray, IntArray
from hekla.scheduler.matrix import Columns
from hekla.scheduler.model import ALLOCATED, PENDING, PIPELINED, RELEASING, Job, Status, Task

if TYPE_CHECKING:
    from hekla.scheduler.session import Session

_SAVED = ("idle_rn", "used_rn", "releasing_rn", "pipelined_rn", "nonzero_2n")


class Operation:
    """Equal tasks that came to nodes, or one that was told to leave; and how to undo it."""

    __slots__ = (
        "_ledgers",
        "_sums",
        "index",
        "is_committed",
        "job",
        "old",
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
        self.is_committed = False
        self._ledgers: tuple[IntArray | int, list[FloatArray], FloatArray] | None = None
        self._sums: tuple[FloatArray, ...] = ()

    def apply(self, columns: Columns, names: Sequence[str]) -> None:
        nodes: IntArray | int
        counts: IntArray | int
        if len(self.index) == 1:  # plain numbers are much faster than arrays of one
            nodes, counts = int(self.index[0]), 1
        else:
            nodes, counts = np.unique(self.index, return_counts=True)
        saved = [getattr(columns, name)[:, nodes].copy() for name in _SAVED]
        self._ledgers = (nodes, saved, columns.pods_n[nodes].copy())
        job, queue = self.job, self.job.queue
        self._sums = (job.allocated_r.copy(), job.pending_r.copy())
        if queue is not None:
            self._sums += (queue.allocated_r.copy(), queue.pending_r.copy())
        self._book(columns, nodes, counts)
        if self.to != RELEASING:
            for task, i in zip(self.tasks, self.index.tolist(), strict=True):
                task.node_name = names[i]
        job.move(self.tasks, self.to)

    def _book(self, columns: Columns, nodes: IntArray | int, counts: IntArray | int) -> None:
        klass = self.tasks[0].klass
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
        """Back to before; without columns, only the tasks and sums that the cluster shares."""
        self.job.move(self.tasks, self.old)
        if self.to != RELEASING:
            for task in self.tasks:
                task.node_name = ""
        job, queue = self.job, self.job.queue
        job.allocated_r[:], job.pending_r[:] = self._sums[0], self._sums[1]
        if queue is not None and len(self._sums) == 4:
            queue.allocated_r[:], queue.pending_r[:] = self._sums[2], self._sums[3]
        if columns is not None and self._ledgers is not None:
            nodes, saved, pods = self._ledgers
            for name, old in zip(_SAVED, saved, strict=True):
                getattr(columns, name)[:, nodes] = old
            columns.pods_n[nodes] = pods


class Statement:
    """A transaction over one session. Made by `Session.statement`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._stamp = session.stamp
        self.operations: list[Operation] = []
        self._is_done = False

    def allocate(self, tasks: Sequence[Task], index: IntArray) -> None:
        """Put equal tasks on nodes that have the room now."""
        self._do(tasks, index, ALLOCATED)

    def pipeline(self, tasks: Sequence[Task], index: IntArray) -> None:
        """Promise equal tasks room that is being released."""
        self._do(tasks, index, PIPELINED)

    def evict(self, task: Task, reason: str) -> None:
        """Tell a task to leave."""
        node = self._session.cluster.nodes[task.node_name]
        operation = self._do((task,), np.asarray([node.index], dtype=np.int64), RELEASING)
        if operation is not None:
            operation.reason = reason

    def _do(self, tasks: Sequence[Task], index: IntArray, to: Status) -> Operation | None:
        if len(tasks) == 0:
            return None
        job = tasks[0].job
        assert job is not None, "a task without a job is never moved"
        operation = Operation(job, tasks, index, to)
        self._session.apply(operation)
        self.operations.append(operation)
        return operation

    @property
    def placed(self) -> int:
        """How many tasks found a place, now or later."""
        return sum(len(o.tasks) for o in self.operations if o.old == PENDING)

    def commit(self) -> None:
        """These things will be done."""
        for operation in self.operations:
            operation.is_committed = True
        if self.evicted:
            self._session.nominated.update(task.uid for task in self.promised)
        self._session.keep(self.operations)
        self._is_done = True

    def keep(self) -> None:
        """Hold the room until the cycle ends, and do nothing: how a gang waits for releases."""
        self._session.keep(self.operations)
        self._is_done = True

    def absorb(self, other: Statement) -> None:
        """Take over what another statement did; it stands or falls with this one."""
        self.operations += other.operations
        other._is_done = True

    @property
    def evicted(self) -> list[Task]:
        return [task for o in self.operations if o.to == RELEASING for task in o.tasks]

    @property
    def promised(self) -> list[Task]:
        return [task for o in self.operations if o.to == PIPELINED for task in o.tasks]

    def rollback(self) -> None:
        for operation in reversed(self.operations):
            self._session.revert(operation)
        self._session.stamp = self._stamp
        self.operations = []
        self._is_done = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._is_done:
            self.rollback()
