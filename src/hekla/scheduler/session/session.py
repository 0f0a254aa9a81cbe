"""One scheduling cycle: a snapshot of the cluster that actions change through statements.

The columns of the nodes are copies. Tasks and jobs are the cluster's own; they change through
statements and are restored when the session closes. A cycle is therefore a pure function: the
cluster is afterwards as it was before, and the result is the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from types import TracebackType
from typing import Any

import numpy as np

from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.config import Config
from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.framework.plan import Event, Plan
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.framework.tiers import Tiers
from hekla.scheduler.placement.placer import Placer
from hekla.scheduler.placement.reasons import Reasons
from hekla.scheduler.session.placed import PlacedPods
from hekla.scheduler.session.reservations import Reservations
from hekla.scheduler.session.statement import Statement
from hekla.scheduler.session.verdicts import Verdicts
from hekla.scheduler.state.cluster import Cluster
from hekla.scheduler.state.dimensions import FloatArray
from hekla.scheduler.state.model import Job, Queue, Task
from hekla.scheduler.state.operation import Operation
from hekla.scheduler.state.status import RELEASING


class Session:
    """The state of one cycle. Open it with `with`; actions run inside."""

    def __init__(
        self,
        cluster: Cluster,
        config: Config,
        now: float,
        *,
        stopwatch: Callable[[], float] | None = None,
        skipped: Mapping[str, str] | None = None,
    ) -> None:
        cluster.refresh()
        self.cluster = cluster
        self.config = config
        self.now = now
        self.plan = Plan()
        self.dimensions = cluster.dimensions
        self.columns = cluster.matrix.copy(len(cluster.dimensions), cluster.matrix.count)
        self.nodes = Nodes(self.columns, cluster.dimensions, cluster.node_table.node_list)
        self.total_r = cluster.node_table.total_r
        self.jobs: list[Job] = sorted(
            {**cluster.job_table.pending, **cluster.job_table.changed}.values(),
            key=lambda job: job.key,
        )
        """The jobs with pending tasks or with a status to write. Other jobs are not visited."""
        self.skipped = skipped or {}
        """Jobs that are not placed in this cycle, with the reason: their binds are backing off."""
        self.tiers = Tiers(
            [[option.make() for option in tier] for tier in config.tiers], stopwatch=stopwatch
        )
        self.placer = Placer(cluster, self.tiers, self.columns, self.nodes)
        self.reservations = Reservations(self)
        self.verdicts = Verdicts(self)
        self.placed = PlacedPods(is_affinity_used=bool(cluster.term_classes))
        self.has_bound_nominated = False
        self._has_leftovers = False
        self.nominated: set[str] = set()
        """The uids of tasks that were pipelined where victims terminate for them."""
        self.nominated_beside: dict[str, Task] = {}
        """Those of them, by uid, whose affinity asks for other pods."""
        self.operations: list[Operation] = []
        """The operations of this cycle's statements that were committed or kept, in order."""
        self.events: list[Event] = []
        self.version = 0
        """Equal versions mean equal columns. A rolled back statement restores it."""
        self._last_version = 0
        self._evicted: dict[str, Task] = {}
        self._terminating: list[Task] | None = None
        self._releasing_n: FloatArray | None = None
        self._phases: dict[str, tuple[Job, str]] = {}

    def __enter__(self) -> Session:
        self.tiers.notify_timed(hooks.open, self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for operation in reversed(self.operations):
            operation.undo(None)
        for job, phase in self._phases.values():
            job.phase = phase

    def close(self) -> None:
        """Call the close hooks. The plan is written after this."""
        self.tiers.notify_timed(hooks.close, self)

    def wake(self, at: float) -> None:
        """Request a cycle at this time, unless something else starts one before."""
        if at > self.now and (self.plan.wake_at is None or at < self.plan.wake_at):
            self.plan.wake_at = at

    def wake_at_once(self) -> None:
        """Request a cycle right after this one: its results leave something to decide."""
        self.plan.wake_at = self.now

    def nominate(self, tasks: Iterable[Task]) -> None:
        """Record tasks that were pipelined where victims terminate for them."""
        for task in tasks:
            self.nominated.add(task.uid)
            if task.klass.affinity.pod_affinity:
                self.nominated_beside[task.uid] = task

    def plugin(self, name: str) -> Plugin | None:
        """Return the configured plugin of this name."""
        return next((each for each in self.tiers.plugins if each.name == name), None)

    # --- orders and votes ---------------------------------------------------------------------

    @cached_property
    def largest_r(self) -> FloatArray:
        """The most that one node has of each resource."""
        largest_r: FloatArray = self.columns.allocatable_rn.max(axis=1, initial=0.0)
        return largest_r

    def job_key(self, job: Job) -> tuple[Any, ...]:
        """Return the sort key of a job: plugins, then age, then name."""
        return (self.tiers.order_key(hooks.job_order, job), job.created, job.key)

    def queue_key(self, queue: Queue) -> tuple[Any, ...]:
        """Return the sort key of a queue: plugins, then age, then name."""
        return (self.tiers.order_key(hooks.queue_order, queue), queue.created, queue.name)

    def in_task_order(self, tasks: Iterable[Task]) -> list[Task]:
        """Return tasks of a job sorted by the task_order hook."""
        if not self.tiers.has(hooks.task_order):
            return sorted(tasks, key=lambda task: task.order)
        key = self.tiers.order_key
        return sorted(tasks, key=lambda task: (key(hooks.task_order, task), task.order))

    def job_ready(self, job: Job) -> bool:
        """Tell whether enough tasks of a job have a node."""
        return self.tiers.all_true(hooks.job_ready, job)

    def job_pipelined(self, job: Job) -> bool:
        """Tell whether a job keeps its pipelined tasks until the end of the cycle."""
        return self.tiers.vote(hooks.job_pipelined, job)

    def job_enqueueable(self, job: Job) -> bool:
        """Tell whether a PodGroup may move to Inqueue."""
        return self.tiers.vote(hooks.job_enqueueable, job)

    def job_starving(self, job: Job) -> bool:
        """Tell whether a job may preempt or reclaim."""
        return self.tiers.starving(job)

    def overused(self, queue: Queue) -> Plugin | None:
        """Return the plugin that calls the queue overused."""
        return self.tiers.any_true(hooks.overused, queue)

    def preemptive(self, queue: Queue, task: Task) -> bool:
        """Tell whether a queue may reclaim for a task."""
        return self.tiers.all_true(hooks.preemptive, queue, task)

    def allowance(self, queue: Queue, task: Task, wanted: int) -> int:
        """Return how many tasks equal to this one the queue may allocate, at most `wanted`."""
        return self.tiers.allowance(queue, task, wanted, has_leftovers=self._has_leftovers)

    @contextmanager
    def leftovers(self) -> Iterator[None]:
        """Allow queues, inside the block, the part of their share that is smaller than a task."""
        self._has_leftovers = True
        try:
            yield
        finally:
            self._has_leftovers = False

    def reasons(self, task: Task, *, filled: bool = False) -> Reasons:
        """Return how many nodes do not take the task now, by reason."""
        return self.placer.reasons(task, self.version, filled=filled)

    # --- changes ------------------------------------------------------------------------------

    def set_phase(self, job: Job, phase: str) -> None:
        """Change the phase of a PodGroup for this cycle."""
        self._phases.setdefault(job.key, (job, job.phase))
        job.phase = phase

    def phase_before(self, job: Job) -> str:
        """Return the phase that the API server has."""
        known = self._phases.get(job.key)
        return job.phase if known is None else known[1]

    def statement(self) -> Statement:
        """Return a new statement, to be used with `with`."""
        return Statement(self)

    def bump_version(self) -> None:
        """Record that the columns changed."""
        self._last_version += 1
        self.version = self._last_version

    def apply(self, operation: Operation) -> None:
        """Apply an operation, and let placer and plugins know. Statements call it."""
        operation.apply(self.columns, self.cluster.node_table.node_names)
        self.bump_version()
        self.placer.changes.mark(operation.index, operation)
        is_eviction = operation.to == RELEASING
        if is_eviction:
            self._evicted.update((task.uid, task) for task in operation.tasks)
            self._count_releasing(operation, 1.0)
        else:
            self.placed.add(operation, 1)
        hook = hooks.deallocated if is_eviction else hooks.allocated
        operation.is_notified = True
        self.tiers.notify(hook, operation.tasks[0], operation.index)

    def revert(self, operation: Operation) -> None:
        """Undo an operation, also one that was applied in part, as after an error."""
        operation.undo(self.columns)
        self.placer.changes.mark(operation.index)
        if not operation.is_notified:
            return
        operation.is_notified = False
        is_eviction = operation.to == RELEASING
        if is_eviction:
            for task in operation.tasks:
                self._evicted.pop(task.uid, None)
            self._count_releasing(operation, -1.0)
        else:
            self.placed.add(operation, -1)
        hook = hooks.allocated if is_eviction else hooks.deallocated
        self.tiers.notify(hook, operation.tasks[0], operation.index)

    def releasing_tasks(self) -> list[Task]:
        """Return the tasks that terminate: since before this cycle, or evicted in it."""
        if self._terminating is None:
            nodes = self.cluster.node_table.node_list
            self._terminating = [
                task
                for index in np.flatnonzero(self.columns.releasing_rn.any(axis=0)).tolist()
                for task in nodes[index].tasks.values()
                if task.status == RELEASING and task.uid not in self._evicted
            ]
        return [*self._terminating, *self._evicted.values()]

    def releasing_pods(self) -> FloatArray:
        """Return how many tasks of each node terminate."""
        if self._releasing_n is None:
            self._releasing_n = np.zeros(len(self.nodes))
            for task in self.releasing_tasks():
                node = self.cluster.nodes.get(task.node_name)
                if node is not None and node.is_known:
                    self._releasing_n[node.index] += 1.0
        return self._releasing_n

    def _count_releasing(self, operation: Operation, sign: float) -> None:
        if self._releasing_n is not None:
            for column in operation.index.tolist():
                self._releasing_n[column] += sign

    def evicted(self) -> list[Task]:
        """Return the tasks that were evicted in this cycle, tentatively or not."""
        return list(self._evicted.values())
