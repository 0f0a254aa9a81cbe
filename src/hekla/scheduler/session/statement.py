"""Statements: tentative changes that are rolled back unless they are committed or kept.

    with session.statement() as statement:
        statement.allocate(tasks, nodes)
        if session.job_ready(job):
            statement.commit()

All-or-nothing is implemented here and nowhere else. An operation is recorded before it is applied,
so an error half-way is rolled back too. Rolling back writes saved numbers back instead of computing
them, so every array is restored bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from hekla.scheduler.state.dimensions import IntArray
from hekla.scheduler.state.model import Job, Task
from hekla.scheduler.state.operation import Operation
from hekla.scheduler.state.status import ALLOCATED, PENDING, PIPELINED, RELEASING, Status

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session


class Statement:
    """A transaction over one session. Made by `Session.statement`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._version = session.version
        self.operations: list[Operation] = []
        self._is_done = False

    def allocate(self, tasks: Sequence[Task], index: IntArray) -> None:
        """Place equal tasks on nodes that have idle resources for them."""
        self._do(tasks, index, ALLOCATED)

    def pipeline(self, tasks: Sequence[Task], index: IntArray) -> None:
        """Place equal tasks on resources that are being released."""
        self._do(tasks, index, PIPELINED)

    def evict(self, task: Task, reason: str, preemptor: Job | None = None) -> None:
        """Evict a task, for a job if there is a preemptor."""
        node = self._session.cluster.nodes[task.node_name]
        operation = self._do((task,), np.asarray([node.index], dtype=np.int64), RELEASING)
        if operation is not None:
            operation.reason = reason
            operation.preemptor = preemptor

    def _do(self, tasks: Sequence[Task], index: IntArray, to: Status) -> Operation | None:
        if len(tasks) == 0:
            return None
        job = tasks[0].job
        assert job is not None, "a task without a job is never moved"
        operation = Operation(job, tasks, index, to)
        operation.save(self._session.columns)
        self.operations.append(operation)
        self._session.apply(operation)
        return operation

    @property
    def placed(self) -> int:
        """The number of tasks that were allocated or pipelined."""
        return sum(len(o.tasks) for o in self.operations if o.old == PENDING)

    def commit(self) -> None:
        """Make the operations part of the plan."""
        for operation in self.operations:
            operation.is_committed = True
        if self.evicted:
            self._session.nominate(self.pipelined)
        self.keep()

    def keep(self) -> None:
        """Keep the operations until the cycle ends without making them part of the plan.

        A gang that waits for releasing resources keeps them from other jobs in this way.
        """
        self._session.operations += self.operations
        self._is_done = True

    def merge(self, other: Statement) -> None:
        """Take over the operations of another statement."""
        self.operations += other.operations
        other._is_done = True

    @property
    def evicted(self) -> list[Task]:
        """The tasks that were evicted."""
        return [task for o in self.operations if o.to == RELEASING for task in o.tasks]

    @property
    def pipelined(self) -> list[Task]:
        """The tasks that were pipelined."""
        return [task for o in self.operations if o.to == PIPELINED for task in o.tasks]

    def rollback(self) -> None:
        """Undo all operations."""
        for operation in reversed(self.operations):
            self._session.revert(operation)
        self._session.version = self._version
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
