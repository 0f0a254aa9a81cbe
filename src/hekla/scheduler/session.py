"""One cycle: a view of the cluster that actions may change, and everything they ask.

The numbers of the nodes are copies; tasks and jobs are the cluster's own, changed through
statements and put back when the session closes. So a cycle is a pure function: the cluster is
afterwards as it was before, and all that is left is the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from hekla.scheduler import placement
from hekla.scheduler.classes import HostPort, TaskClass
from hekla.scheduler.cluster import Cluster
from hekla.scheduler.config import Config
from hekla.scheduler.dimensions import EPSILON, BoolArray, FloatArray, IntArray
from hekla.scheduler.explain import Gate, Holder, Verdict
from hekla.scheduler.model import ALLOCATED, PIPELINED, RELEASING, Job, LabelGroup, Queue, Task
from hekla.scheduler.nodes import Nodes
from hekla.scheduler.plan import Bind, Effect, Event, Evict, Plan
from hekla.scheduler.plugin import Normalized, Plugin
from hekla.scheduler.statement import Operation, Statement
from hekla.scheduler.tiers import Tiers

MANY = np.int64(2**31)
HOLDERS_SHOWN = 3
_NO_COPIES: IntArray = np.zeros(1, dtype=np.int64)


class _ClassState:
    """What is known of a class in this session, and as of which change."""

    __slots__ = ("copies_n", "habit", "is_coupled", "ok_n", "parts", "score_n", "seen")

    def __init__(self, ok_n: BoolArray, is_coupled: bool) -> None:
        self.ok_n = ok_n
        self.is_coupled = is_coupled
        self.copies_n: IntArray
        self.score_n: FloatArray
        self.parts: list[Normalized] = []
        self.habit = placement.Habit()
        self.seen = 0


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
        self.nominated: set[str] = set()
        """Tasks for which others were told to leave in this cycle."""
        self._evicted: dict[str, Task] = {}
        self._kept: list[Operation] = []
        self._phases: dict[str, tuple[Job, str]] = {}
        self._events: list[Event] = []
        self._states: dict[Any, _ClassState] = {}
        self._is_by_class = all(
            plugin.by_class
            for hook in (
                "pre_predicate",
                "predicate",
                "max_copies",
                "node_order",
                "batch_node_order",
            )
            for plugin, _ in self.tiers.calls(hook)
        )
        self._touched: list[IntArray] = []
        self.stamp = 0
        """Equal stamps mean equal numbers: a rolled back statement puts it back too."""
        self._last_stamp = 0
        self._reasons: dict[Any, tuple[int, dict[str, int]]] = {}
        self._names = [node.name for node in cluster.node_list]
        self._has_future = bool(self.columns.releasing_rn.any() or self.columns.pipelined_rn.any())
        self._holders: dict[tuple[str, int], tuple[Holder, ...]] = {}
        self.placed_groups: dict[LabelGroup, dict[int, int]] = {}
        """Pods placed in this cycle by labels and column; kept only where pod affinity is about."""
        self.placed_terms: dict[TaskClass, dict[int, int]] = {}
        self.placed_ports: dict[int, dict[HostPort, int]] = {}

    def __enter__(self) -> Self:
        self.tiers.notify("open", self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.tiers.notify("close", self)
                self._write_plan()
        finally:
            for operation in reversed(self._kept):
                operation.undo(None)
            for job, phase in self._phases.values():
                job.phase = phase

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
        operation.apply(self.columns, self._names)
        self._last_stamp += 1
        self.stamp = self._last_stamp
        self._has_future |= operation.to in (PIPELINED, RELEASING)
        self._touch(operation.index)
        if operation.to == RELEASING:
            self._evicted.update((task.uid, task) for task in operation.tasks)
        else:
            self._note_placed(operation, 1)
        hook = "deallocated" if operation.to == RELEASING else "allocated"
        self.tiers.notify(hook, operation.tasks[0], operation.index)

    def revert(self, operation: Operation) -> None:
        operation.undo(self.columns)
        self._touch(operation.index)
        if operation.to == RELEASING:
            for task in operation.tasks:
                self._evicted.pop(task.uid, None)
        else:
            self._note_placed(operation, -1)
        hook = "allocated" if operation.to == RELEASING else "deallocated"
        self.tiers.notify(hook, operation.tasks[0], operation.index)

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

    def _touch(self, index: IntArray) -> None:
        self._touched.append(index)

    @property
    def changes(self) -> int:
        """How often something came to nodes or left them, or was taken back."""
        return len(self._touched)

    def changed_since(self, changes: int) -> list[int] | None:
        """The nodes on which something happened since there were so many changes; None for all."""
        if changes < 0:
            return None
        since = self._touched[changes:]
        if len(since) == 1 and len(since[0]) == 1:
            return [int(since[0][0])]
        return sorted({int(i) for index in since for i in index.tolist()})

    # --- nodes for tasks ----------------------------------------------------------------------

    def places(
        self,
        task: Task,
        count: int,
        *,
        future: bool = False,
        ignore_room: bool = False,
        only: str = "",
    ) -> IntArray:
        """Nodes for up to `count` tasks equal to this one, in the order of placing one by one.

        With `future`, room that is being released counts too; `only` names the one node that is
        looked at. For tasks whose placing changes what
        other nodes answer (pod affinity, spread) it is one node at a time: apply it, ask again.
        """
        if future and not self._has_future:
            return placement.NOWHERE
        state = self._state(task)
        if state.is_coupled:
            count = min(count, 1)
        copies_n = state.copies_n
        if future or ignore_room:
            copies_n = self._copies(task, self.nodes, future=future, ignore_room=ignore_room)
        live_n = state.ok_n & (copies_n > 0)
        index = np.flatnonzero(live_n)
        if only:
            node = self.cluster.nodes.get(only)
            return index[index == node.index] if node is not None else placement.NOWHERE
        if len(index) == 0 or count <= 0:
            return placement.NOWHERE
        if len(index) == 1 and not state.parts:
            return np.repeat(index, min(count, int(copies_n[index[0]])))
        chosen = self._chosen_by_plugin(task, state, index)
        if chosen is not None:
            return chosen
        if not state.parts:
            return placement.place(
                self._scorer(task),
                index,
                copies_n[index],
                count,
                state.score_n[index],
                state.habit,
            )
        return self._places_normalized(task, state, copies_n, count)

    def fits(self, task: Task, index: int, *, future: bool = False) -> bool:
        """Whether one node takes the task, now or once what leaves it has left."""
        state = self._states.get(self._key(task))
        if state is None or state.is_coupled:
            state = self._state(task)
        if not state.ok_n[index]:
            return False
        columns = self.columns
        for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
            if row >= columns.idle_rn.shape[0]:
                return False
            idle = float(columns.idle_rn[row, index])
            later = idle + float(
                columns.releasing_rn[row, index] - columns.pipelined_rn[row, index]
            )
            if (later if future else min(idle, later)) + EPSILON <= amount:
                return False
        view = self.nodes.with_copies(np.asarray([index]), _NO_COPIES, task.klass)
        return bool(self._most_copies(task, view, np.full(1, float(MANY)))[0] > 0)

    def _chosen_by_plugin(self, task: Task, state: _ClassState, index: IntArray) -> IntArray | None:
        if not self.tiers.has("best_node"):
            return None
        chosen = self.tiers.first("best_node", task, index, state.score_n[index])
        return None if chosen is None else np.asarray([chosen], dtype=np.int64)

    def _places_normalized(
        self, task: Task, state: _ClassState, copies_n: IntArray, count: int
    ) -> IntArray:
        """Placing with scores that are relative to the candidates.

        The candidates change when a node is full, and the scale with them if it was the one that
        set it: up to there the shortcut is right, from there it starts again.
        """
        score, left_n, out = self._scorer(task), copies_n.copy(), [placement.NOWHERE]
        placed_n = np.zeros(len(left_n), dtype=np.int64)
        while count > 0:
            index = np.flatnonzero(state.ok_n & (left_n > 0))
            if len(index) == 0:
                break
            extra_n = np.zeros(len(left_n))
            for part in state.parts:
                extra_n[index] += _normalized(part, part.raw_n[index])

            def with_extra(
                nodes: IntArray, copies: IntArray, extra_n: FloatArray = extra_n
            ) -> FloatArray:
                return score(nodes, placed_n[nodes] + copies) + extra_n[nodes]

            head = with_extra(index, np.zeros(len(index), dtype=np.int64))
            found = placement.place(with_extra, index, left_n[index], count, head)
            found = found[: _steps_until_rescale(found, left_n, index, state.parts)]
            out.append(found)
            np.subtract.at(left_n, found, 1)
            np.add.at(placed_n, found, 1)
            count -= len(found)
        return np.concatenate(out)

    def _state(self, task: Task) -> _ClassState:
        """Filters, room and scores of a class, brought up to date."""
        klass, key = task.klass, self._key(task)
        state = self._states.get(key)
        if state is None or state.is_coupled:
            is_coupled = self.tiers.any_true("one_by_one", task) is not None
            state = _ClassState(self._passes(task), is_coupled)
            state.copies_n = self._copies(task, self.nodes)
            state.score_n = self._score(task, self.nodes)
            state.parts = self._parts(task, state)
            self._states[key] = state
        elif state.seen < len(self._touched):
            changed = self._touched[state.seen]
            if len(changed) > 1 or len(self._touched) > state.seen + 1:
                changed = np.unique(np.concatenate(self._touched[state.seen :]))
            if 4 * len(changed) > len(state.ok_n):
                state.copies_n = self._copies(task, self.nodes)
                state.score_n = self._score(task, self.nodes)
            else:
                view = self.nodes.with_copies(changed, np.zeros(len(changed), np.int64), klass)
                state.copies_n[changed] = self._copies(task, view)
                state.score_n[changed] = self._score(task, view)
        state.seen = len(self._touched)
        return state

    def _key(self, task: Task) -> Any:
        """Tasks with equal keys get equal answers from every plugin."""
        if not self._is_by_class:
            return (task.klass, task.group, task.job, task.role)
        # With pod affinity about, the labels of a pod matter to others.
        return (task.klass, task.group) if self.cluster.term_classes else task.klass

    def _passes(self, task: Task) -> BoolArray:
        out = np.ones(len(self.nodes), dtype=bool)
        for mask, _ in self.rejections(task):
            out &= ~mask
        return out

    def rejections(self, task: Task) -> list[tuple[BoolArray, str]]:
        """Masks of nodes that will not do, whatever room they have, with reasons."""
        everywhere = np.ones(len(self.nodes), dtype=bool)
        found: list[tuple[BoolArray, str]] = []
        for call in self.tiers.calls("pre_predicate"):
            given, reason = self.tiers.ask(call, "pre_predicate", task)
            if not given and call[0].essential:
                return [(everywhere, f"plugin {call[0].name} failed")]
            if given and reason is not None:
                return [(everywhere, str(reason))]
        for call in self.tiers.calls("predicate"):
            given, masks = self.tiers.ask(call, "predicate", task, self.nodes)
            if given:
                # The generator runs here, so its errors are caught here too.
                given, masks = self.tiers.ask((call[0], list), "predicate", masks)
            if not given:
                if call[0].essential:
                    return [(everywhere, f"plugin {call[0].name} failed")]
                continue
            found += [(np.asarray(mask, dtype=bool), reason) for mask, reason in masks]
        return found

    def _copies(
        self, task: Task, nodes: Nodes, *, future: bool = False, ignore_room: bool = False
    ) -> IntArray:
        """How many equal tasks each node takes: most c with c · request < room + ε."""
        columns, index = self.columns, nodes.index
        room_n = np.full(len(nodes), float(MANY))
        if not ignore_room:
            for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
                if row >= columns.idle_rn.shape[0]:
                    return np.zeros(len(nodes), dtype=np.int64)
                idle_n = columns.idle_rn[row] if index is None else columns.idle_rn[row, index]
                if self._has_future:
                    later_n = columns.future_idle(row, index)
                    # What others were promised is not free, even where it is idle now.
                    idle_n = later_n if future else np.minimum(idle_n, later_n)
                np.minimum(room_n, np.ceil((idle_n + EPSILON) / amount) - 1.0, out=room_n)
        room_n = self._most_copies(task, nodes, room_n)
        np.maximum(room_n, 0.0, out=room_n)
        return room_n.astype(np.int64)

    def _most_copies(self, task: Task, nodes: Nodes, room_n: FloatArray) -> FloatArray:
        """The room that plugins leave of what there is."""
        for call in self.tiers.calls("max_copies"):
            given, most_n = self.tiers.ask(call, "max_copies", task, nodes)
            if given and most_n is not None:
                np.minimum(
                    room_n, nodes.take(most_n) if len(most_n) != len(nodes) else most_n, out=room_n
                )
        return room_n

    def _score(self, task: Task, nodes: Nodes) -> FloatArray:
        total_n = np.zeros(len(nodes))
        for call in self.tiers.calls("node_order"):
            given, score_n = self.tiers.ask(call, "node_order", task, nodes)
            if given:
                # An array over all nodes, made in `open`, is cut to the view.
                total_n += nodes.take(score_n) if len(score_n) != len(nodes) else score_n
        return total_n

    def _scorer(self, task: Task) -> placement.Score:
        def score(index: IntArray, copies: IntArray) -> FloatArray:
            if len(index) == len(self.nodes):
                # One entry too many tells an array over this view from one over all nodes.
                index, copies = np.append(index, index[-1]), np.append(copies, copies[-1])
                return self._score(task, self.nodes.with_copies(index, copies, task.klass))[:-1]
            return self._score(task, self.nodes.with_copies(index, copies, task.klass))

        return score

    def _parts(self, task: Task, state: _ClassState) -> list[Normalized]:
        parts: list[Normalized] = []
        if not self.tiers.has("batch_node_order"):
            return parts
        candidates = np.flatnonzero(state.ok_n & (state.copies_n > 0))
        for call in self.tiers.calls("batch_node_order"):
            given, answer = self.tiers.ask(call, "batch_node_order", task, self.nodes, candidates)
            if not given or answer is None:
                continue
            for part in answer if isinstance(answer, list) else [answer]:
                if isinstance(part, Normalized):
                    parts.append(part)
                else:
                    # It may depend on anything, so it holds for one task only.
                    state.score_n = state.score_n + part
                    state.is_coupled = True
        return parts

    # --- explaining ---------------------------------------------------------------------------

    def room(self, task: Task, count: int) -> int:
        """How many tasks like this one there is room for, now or later, at most `count`."""
        state = self._state(task)
        if state.is_coupled:
            return count  # it depends on where the others go: only trying tells
        copies_n = state.copies_n
        if self._has_future:
            copies_n = np.maximum(copies_n, self._copies(task, self.nodes, future=True))
        return min(count, int(np.minimum(copies_n[state.ok_n], count).sum()))

    def passing(self, task: Task) -> BoolArray:
        """Nodes that pass the filters, whatever room they have."""
        state = self._states.get(self._key(task))
        if state is None or state.is_coupled:
            state = self._state(task)
        return state.ok_n

    def reasons(self, task: Task, *, filled: bool = False) -> dict[str, int]:
        """Every node that will not take the task now, by its first reason; over all nodes.

        With `filled`, as it would be with as many such tasks as fit on every node. Many jobs wait
        for the same: what was found for one is kept until something is placed.
        """
        key = (self._key(task), filled)
        known = self._reasons.get(key)
        if known is None or known[0] != self.stamp:
            known = self._reasons[key] = (self.stamp, self._count_reasons(task, filled))
        return known[1]

    def _count_reasons(self, task: Task, filled: bool) -> dict[str, int]:
        left_n = np.ones(len(self.nodes), dtype=bool)
        counts: dict[str, int] = {}

        def rule_out(mask: BoolArray, reason: str) -> None:
            hit = int(np.count_nonzero(left_n & mask))
            if hit:
                counts[reason] = counts.get(reason, 0) + hit
                left_n[mask] = False

        for mask, reason in self.rejections(task):
            rule_out(mask, reason)
        for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
            rule_out(
                self.columns.idle_rn[row] + EPSILON <= amount,
                f"Insufficient {self.dimensions.names[row]}",
            )
        copies_n = self._copies(task, self.nodes)
        rule_out(copies_n <= 0, "node(s) pod number exceeded")
        if filled:
            for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
                after_n = self.columns.idle_rn[row] - copies_n * amount
                rule_out(after_n + EPSILON <= amount, f"Insufficient {self.dimensions.names[row]}")
            rule_out(left_n.copy(), "node(s) pod number exceeded")
        return counts

    def explain(self, verdict: Verdict) -> None:
        """The last word of this cycle on a job."""
        self.plan.verdicts[verdict.job] = verdict

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

    # --- the plan -----------------------------------------------------------------------------

    def _write_plan(self) -> None:
        from hekla.scheduler.status import group_effects, queue_effects  # they need a Session

        effects: list[Effect] = self.plan.effects
        for operation in self._kept:
            for task in operation.tasks:
                if operation.to == PIPELINED:
                    self.plan.pipelined[task.uid] = task.node_name
                elif operation.is_committed:
                    effects.append(_effect(operation, task))
        effects += group_effects(self)
        effects += queue_effects(self)
        effects += self._events
        self.plan.failures = self.tiers.failures
        self.plan.considered = len(self.jobs)


def _effect(operation: Operation, task: Task) -> Effect:
    job = operation.job.key
    if operation.to == ALLOCATED:
        return Bind(task.namespace, task.name, task.uid, task.node_name, job)
    return Evict(task.namespace, task.name, task.uid, task.node_name, operation.reason, job)


def _normalized(part: Normalized, raw: FloatArray) -> FloatArray:
    """A raw score on the scale 0..100 × weight, as kube-scheduler normalises."""
    low = float(raw.min()) if part.between else 0.0
    span = float(raw.max()) - low
    if span == 0:
        return np.full(len(raw), 100.0 * part.weight if part.reverse else 0.0)
    scaled: FloatArray = np.floor((raw - low) * 100.0 / span)
    return (100.0 - scaled if part.reverse else scaled) * part.weight


def _steps_until_rescale(
    found: IntArray, left_n: IntArray, index: IntArray, parts: Sequence[Normalized]
) -> int:
    """How many placements are made before a node that sets a scale is full."""
    left = {int(i): int(left_n[i]) for i in np.unique(found)}
    alive = np.ones(len(left_n), dtype=bool)
    scales = [_scale(part, part.raw_n[index]) for part in parts]
    for step, node in enumerate(found.tolist()):
        left[node] -= 1
        if left[node]:
            continue
        alive[node] = False
        rest = index[alive[index]]
        if len(rest) == 0:
            return len(found)
        for part, scale in zip(parts, scales, strict=True):
            is_edge = part.raw_n[node] in scale
            if is_edge and _scale(part, part.raw_n[rest]) != scale:
                return step + 1
    return len(found)


def _scale(part: Normalized, raw: FloatArray) -> tuple[float, float]:
    return (float(raw.min()) if part.between else 0.0, float(raw.max()))


__all__ = ["Gate", "Session"]
