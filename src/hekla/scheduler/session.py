"""One cycle: a view of the cluster that actions may change, and everything they ask.

The numbers of the nodes are copies; tasks and jobs are the cluster's own, changed through
statements and put back when the session closes. So a cycle is a pure function: the cluster is
afterwards as it was before, and all that is left is the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

import numpy as np

from hekla.scheduler.classes import HostPort, TaskClass
from hekla.scheduler.cluster import Cluster
from hekla.scheduler.config import Config
from hekla.scheduler.dimensions import IntArray
from hekla.scheduler.explain import Gate, Holder, Verdict
from hekla.scheduler.finding import Finder
from hekla.scheduler.model import (
    ALLOCATED,
    PENDING,
    PIPELINED,
    RELEASING,
    Job,
    LabelGroup,
    Queue,
    Task,
)
from hekla.scheduler.nodes import Nodes
from hekla.scheduler.plan import Bind, Effect, Event, Evict, Plan
from hekla.scheduler.plugin import Plugin
from hekla.scheduler.statement import Operation, Statement
from hekla.scheduler.tiers import Tiers

HOLDERS_SHOWN = NOTES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Hold:
    """Room for so many tasks of a class, kept in a column for a job."""

    job: Job
    klass: TaskClass
    column: int
    copies: int


class Session:
    """Open it with `with`; actions run inside."""

    def __init__(
        self,
        cluster: Cluster,
        config: Config,
        now: float,
        *,
        stopwatch: Callable[[], float] | None = None,
        skipped: Mapping[str, str] | None = None,
    ) -> None:
        cluster.settle()
        self.cluster = cluster
        self.config = config
        self.now = now
        self.plan = Plan()
        self.dimensions = cluster.dimensions
        self.columns = cluster.matrix.copy(len(cluster.dimensions), cluster.matrix.count)
        self.nodes = Nodes(self.columns, cluster.dimensions, cluster.node_list)
        self.total_r = cluster.total_r
        self.jobs: list[Job] = sorted(
            {**cluster.waiting, **cluster.dirty}.values(), key=lambda job: job.key
        )
        """Those with something to decide or to write; no others are looked at."""
        self.skipped = skipped or {}
        """Jobs that must not be placed now, and why: their binds failed and are backing off."""
        self.tiers = Tiers(
            [[option.make() for option in tier] for tier in config.tiers], stopwatch=stopwatch
        )
        self.unschedulable: set[str] = set()
        self.has_kept_promises = False
        self.holds: list[Hold] = []
        """Room that is kept for a job which has waited long."""
        self.nominated: set[str] = set()
        """Tasks for which others were told to leave in this cycle."""
        self._evicted: dict[str, Task] = {}
        self._unbindable: set[str] = set()
        self._kept: list[Operation] = []
        self._phases: dict[str, tuple[Job, str]] = {}
        self._events: list[Event] = []
        self.finder = Finder(cluster, self.tiers, self.columns, self.nodes)
        self.stamp = 0
        """Equal stamps mean equal numbers: a rolled back statement puts it back too."""
        self._last_stamp = 0
        self._holders: dict[tuple[str, int], tuple[Holder, ...]] = {}
        self.placed_groups: dict[LabelGroup, dict[int, int]] = {}
        """Pods placed in this cycle by labels and column; kept only where pod affinity is about."""
        self.placed_terms: dict[TaskClass, dict[int, int]] = {}
        self.placed_ports: dict[int, dict[HostPort, int]] = {}

    def __enter__(self) -> Self:
        self.tiers.notify_timed("open", self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.tiers.notify_timed("close", self)
                self._write_plan()
        finally:
            for operation in reversed(self._kept):
                operation.undo(None)
            for job, phase in self._phases.values():
                job.phase = phase

    def wake(self, at: float) -> None:
        """Decide again at this time, should nothing else call for it before."""
        if at > self.now and (self.plan.wake_at is None or at < self.plan.wake_at):
            self.plan.wake_at = at

    def wake_at_once(self) -> None:
        """Decide again as soon as this is done: what was decided gives something to decide on."""
        self.plan.wake_at = self.now

    def plugin(self, name: str) -> Plugin | None:
        return next((p for p in self.tiers.plugins if p.name == name), None)

    # --- orders and votes ---------------------------------------------------------------------

    def job_key(self, job: Job) -> tuple[Any, ...]:
        return (self.tiers.order_key("job_order", job), job.created, job.key)

    def queue_key(self, queue: Queue) -> tuple[Any, ...]:
        return (self.tiers.order_key("queue_order", queue), queue.created, queue.name)

    def in_task_order(self, tasks: Iterable[Task]) -> list[Task]:
        if not self.tiers.has("task_order"):
            return sorted(tasks, key=lambda task: task.order)
        key = self.tiers.order_key
        return sorted(tasks, key=lambda task: (key("task_order", task), task.order))

    def job_ready(self, job: Job) -> bool:
        return self.tiers.all_true("job_ready", job)

    def job_pipelined(self, job: Job) -> bool:
        return self.tiers.vote("job_pipelined", job)

    def job_enqueueable(self, job: Job) -> bool:
        return self.tiers.vote("job_enqueueable", job)

    def job_starving(self, job: Job) -> bool:
        return self.tiers.starving(job)

    def overused(self, queue: Queue) -> Plugin | None:
        return self.tiers.any_true("overused", queue)

    def preemptive(self, queue: Queue, task: Task) -> bool:
        return self.tiers.all_true("preemptive", queue, task)

    def allowance(self, queue: Queue, task: Task, wanted: int) -> int:
        return self.tiers.allowance(queue, task, wanted)

    def set_phase(self, job: Job, phase: str) -> None:
        self._phases.setdefault(job.key, (job, job.phase))
        job.phase = phase

    def phase_before(self, job: Job) -> str:
        """The phase that the API server has."""
        known = self._phases.get(job.key)
        return job.phase if known is None else known[1]

    # --- changing state -----------------------------------------------------------------------

    def statement(self) -> Statement:
        return Statement(self)

    def apply(self, operation: Operation) -> None:
        operation.apply(self.columns, self.cluster.node_names)
        self._last_stamp += 1
        self.stamp = self._last_stamp
        self.finder.touch(operation.index, operation)
        if operation.to == RELEASING:
            self._evicted.update((task.uid, task) for task in operation.tasks)
        else:
            self._note_placed(operation, 1)
        hook = "deallocated" if operation.to == RELEASING else "allocated"
        self.tiers.notify(hook, operation.tasks[0], operation.index)

    def revert(self, operation: Operation) -> None:
        operation.undo(self.columns)
        self.finder.touch(operation.index)
        if operation.to == RELEASING:
            for task in operation.tasks:
                self._evicted.pop(task.uid, None)
        else:
            self._note_placed(operation, -1)
        hook = "allocated" if operation.to == RELEASING else "deallocated"
        self.tiers.notify(hook, operation.tasks[0], operation.index)

    def hold(self, holds: Sequence[Hold]) -> None:
        """Keep room for a job until the cycle ends: others see it as promised."""
        self._weigh(holds, 1)
        self.holds += holds

    def lift(self, job: Job) -> list[Hold]:
        """Take back what is kept for a job, so that it can use it; give it to `hold` if not."""
        lifted = [one for one in self.holds if one.job is job]
        self._weigh(lifted, -1)
        self.holds = [one for one in self.holds if one.job is not job]
        return lifted

    def _weigh(self, holds: Sequence[Hold], sign: int) -> None:
        for one in holds:
            for row, amount in zip(one.klass.rows, one.klass.amounts, strict=True):
                self.columns.pipelined_rn[row, one.column] += sign * one.copies * amount
            self.finder.promise(np.asarray([one.column]))
            self._last_stamp += 1
            self.stamp = self._last_stamp

    def evicted(self) -> list[Task]:
        """Tasks that were told to leave in this cycle, for good or tentatively."""
        return list(self._evicted.values())

    def keep(self, operations: list[Operation]) -> None:
        self._kept += operations

    def _note_placed(self, operation: Operation, sign: int) -> None:
        """Remember what pod affinity and host ports need to know of this cycle's placements."""
        klass = operation.tasks[0].klass
        if klass.ports:
            for column in operation.index.tolist():
                taken = self.placed_ports.setdefault(column, {})
                for port in klass.ports:
                    taken[port] = taken.get(port, 0) + sign
                    if not taken[port]:
                        del taken[port]
        if not self.cluster.term_classes:
            return
        for task, column in zip(operation.tasks, operation.index.tolist(), strict=True):
            if task.group is not None:
                counts = self.placed_groups.setdefault(task.group, {})
                counts[column] = counts.get(column, 0) + sign
            if klass.has_pod_terms:
                counts = self.placed_terms.setdefault(klass, {})
                counts[column] = counts.get(column, 0) + sign

    # --- nodes for tasks ----------------------------------------------------------------------

    def places(self, task: Task, count: int, *, future: bool = False) -> IntArray:
        """Nodes for up to `count` tasks equal to this one; see `Finder.places`."""
        return self.finder.places(task, count, future=future)

    def places_in_turn(self, tasks: Sequence[Task], *, future: bool = False) -> IntArray:
        """Nodes for these equal tasks, or the first of them; see `Finder.places_in_turn`."""
        return self.finder.places_in_turn(tasks, future=future)

    def within(self, nodes: IntArray | None) -> AbstractContextManager[None]:
        """Look at no other nodes than these for a while; see `Finder.within`."""
        return self.finder.within(nodes)

    def room(self, task: Task, count: int) -> int:
        """How many tasks like this one there is room for, now or later, at most `count`."""
        return self.finder.room(task, count)

    def reasons(self, task: Task, *, filled: bool = False) -> dict[str, int]:
        """Every node that will not take the task now, by its first reason; over all nodes."""
        return self.finder.reasons(task, self.stamp, filled=filled)

    # --- explaining ---------------------------------------------------------------------------

    def explain(self, verdict: Verdict) -> None:
        """The last word of this cycle on a job."""
        job = self.cluster.jobs.get(verdict.job)
        notes: tuple[str, ...] = ()
        if job is not None and not verdict.notes:
            notes = (*_notes(job), *self._network_notes(job))
            for plugin in self.tiers.plugins:
                if (told := getattr(plugin, "_notes_on", None)) is not None:
                    notes += told(job)
        self.plan.verdicts[verdict.job] = replace(verdict, notes=notes) if notes else verdict

    def note(self, job: Job, text: str) -> None:
        """A later action has something to add to why a job waits."""
        verdict = self.plan.verdicts.get(job.key)
        if verdict is not None and text not in verdict.notes:
            self.plan.verdicts[job.key] = replace(verdict, notes=(*verdict.notes, text))

    def note_spared(self, job: Job) -> None:
        """Nobody left for a job: let plugins say whom they protected from it."""
        for plugin in self.tiers.plugins:
            if (told := getattr(plugin, "_notes_on_spared", None)) is not None:
                for text in told(job):
                    self.note(job, text)

    def _network_notes(self, job: Job) -> tuple[str, ...]:
        """What is odd about the network, for a job to which it matters."""
        topologies = (job.topology, *(policy.topology for policy in job.policies))
        if all(topology is None for topology in topologies):
            return ()
        if not self.tiers.has("domains"):
            return ("networkTopology does not count: network-topology-aware is not configured",)
        problems = self.cluster.tree.problems
        told = [f"HyperNode {name}: {text}" for name in sorted(problems) for text in problems[name]]
        return tuple(told[:NOTES_SHOWN])

    def holders(self, job: Job, row: int, queue: Queue | None = None) -> tuple[Holder, ...]:
        """Who else has most of a resource, in a queue or anywhere."""
        where = "" if queue is None else queue.name
        known = self._holders.get((where, row))
        if known is None:
            jobs = (self.cluster.jobs if queue is None else queue.jobs).values()
            held = ((float(other.allocated_r[row]), other.key) for other in jobs)
            most = sorted((h for h in held if h[0] > 0), key=lambda h: (-h[0], h[1]))
            name = self.dimensions.names[row]
            known = tuple(Holder(key, name, amount) for amount, key in most[: HOLDERS_SHOWN + 1])
            self._holders[where, row] = known
        return tuple(holder for holder in known if holder.job != job.key)[:HOLDERS_SHOWN]

    def event(self, event: Event) -> None:
        self._events.append(event)

    def note_figures(self) -> None:
        """What plugins worked out for queues, for those who watch from outside."""
        for call in self.tiers.calls("queue_figures"):
            given, answer = self.tiers.ask(call, "queue_figures")
            self.plan.queues.update(answer if given else {})

    # --- the plan -----------------------------------------------------------------------------

    def _bind_annotations(self) -> dict[str, Mapping[str, str]]:
        """What plugins want written on pods, by uid.

        Without the word of one that must be heard, nobody of the job is bound.
        """
        notes: dict[str, Mapping[str, str]] = {}
        for call in self.tiers.calls("bind_annotations"):
            for operation in self._kept:
                if operation.to != ALLOCATED or not operation.is_committed:
                    continue
                tasks = operation.tasks
                given, answers = self.tiers.ask(call, "bind_annotations", tasks, operation.index)
                if not given and call[0].essential:
                    self._unbindable.add(operation.job.key)
                for task, answer in zip(tasks, answers or () if given else (), strict=False):
                    if answer:
                        known = notes.get(task.uid)
                        notes[task.uid] = {**known, **answer} if known else answer
        return notes

    def _write_plan(self) -> None:
        from hekla.scheduler.status import group_effects, queue_effects  # they need a Session

        effects: list[Effect] = self.plan.effects
        notes = self._bind_annotations()
        for operation in self._kept:
            for task in operation.tasks:
                if operation.to == PIPELINED:
                    self.plan.pipelined[task.uid] = task.node_name
                elif operation.is_committed and operation.job.key not in self._unbindable:
                    effects.append(_effect(operation, task, notes.get(task.uid)))
        for job in self.jobs:
            if not job.has_group and job.by_status[PENDING]:
                self.explain(_without_group(job))
        effects += group_effects(self)
        effects += queue_effects(self)
        effects += self._events
        self.plan.failures = self.tiers.failures
        self.plan.timings_s.update(self.tiers.timings_s)
        self.plan.considered = len(self.jobs)


def _notes(job: Job) -> tuple[str, ...]:
    """Oddities of a job, its pods and its queue, the first few."""
    pods = sorted(task.problem for task in job.tasks.values() if task.problem)
    queue = () if job.queue is None else job.queue.problems
    return (*job.problems, *pods[:NOTES_SHOWN], *(f"queue {job.queue_name!r}: {p}" for p in queue))


def _without_group(job: Job) -> Verdict:
    return Verdict(
        job.key,
        Gate.GROUP_MISSING,
        f"PodGroup {job.name!r} of namespace {job.namespace!r} does not exist, "
        f"and {job.count(PENDING)} pods name it",
        change=f"create PodGroup {job.name!r}, or make the pods anew without naming it",
    )


def _effect(operation: Operation, task: Task, notes: Mapping[str, str] | None) -> Effect:
    job = operation.job.key
    if operation.to == ALLOCATED:
        return Bind(task.namespace, task.name, task.uid, task.node_name, job, notes or {})
    return Evict(task.namespace, task.name, task.uid, task.node_name, operation.reason, job)


__all__ = ["Gate", "Session"]
