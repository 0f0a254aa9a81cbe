"""Which nodes a task may go to, and which are the best: filters, room and scores, kept up to date.

What is known of a class of tasks is worked out once and then only for the nodes that changed. A
change that does not come through `touch` is not seen: whoever writes to the columns must say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from hekla.scheduler import following, placement, relative
from hekla.scheduler.ahead import Ahead
from hekla.scheduler.classes import TaskClass
from hekla.scheduler.cluster import Cluster
from hekla.scheduler.dimensions import EPSILON, BoolArray, FloatArray, IntArray
from hekla.scheduler.matrix import Columns
from hekla.scheduler.model import ALLOCATED, Task
from hekla.scheduler.nodes import Nodes
from hekla.scheduler.plugin import InTurn, Normalized, Plugin
from hekla.scheduler.statement import Operation
from hekla.scheduler.tiers import Tiers

MANY = np.int64(2**31)
_NO_COPIES: IntArray = np.zeros(1, dtype=np.int64)
FEW, AHEAD = 64, 1024
"""Who asks for so few nodes is given them from a row found for so many."""
PODS_EXCEEDED = "node(s) pod number exceeded"
OUTSIDE = "node(s) are outside the HyperNodes that the job may use"
PROMISED = "node(s) had room that is promised to others"
_HOOKS = ("pre_predicate", "predicate", "max_copies", "node_order", "batch_node_order")


class _ClassState:
    """What is known of a class in this session, and as of which change."""

    __slots__ = (
        "ahead",
        "asked",
        "base_n",
        "copies_n",
        "habit",
        "is_coupled",
        "is_one_by_one",
        "ok_n",
        "parts",
        "score_n",
        "seen",
        "seen_by_score",
        "turns",
    )

    def __init__(self, ok_n: BoolArray, is_one_by_one: bool) -> None:
        self.ok_n = ok_n
        self.is_one_by_one = is_one_by_one
        """Whether one task's place changes what other nodes answer: nothing here outlasts it."""
        self.is_coupled = is_one_by_one
        """Whether tasks are placed one at a time, if only for scores that hold for one."""
        self.copies_n: IntArray
        self.base_n: FloatArray
        """The scores of nodes by themselves; `score_n` is with those that hold for one task."""
        self.score_n: FloatArray
        self.parts: list[Normalized] = []
        self.turns: list[tuple[Plugin, InTurn]] = []
        """Scores that follow the tasks, and whose they are; they are in neither of the two."""
        self.asked: tuple[Task, int] | None = None
        """For whom scores that hold for one task were asked for last, and as of which change."""
        self.habit = placement.Habit()
        self.seen = self.seen_by_score = 0
        self.ahead: Ahead | None = None


class Finder:
    """The nodes of one session, as tasks look for them."""

    def __init__(self, cluster: Cluster, tiers: Tiers, columns: Columns, nodes: Nodes) -> None:
        self._cluster = cluster
        self._tiers = tiers
        self._columns = columns
        self._nodes = nodes
        self._states: dict[Any, _ClassState] = {}
        self._is_by_class = all(
            plugin.by_class for hook in _HOOKS for plugin, _ in tiers.calls(hook)
        )
        self._touched: list[IntArray] = []
        self._changed = ((-1, -1), placement.NOWHERE)
        """The nodes that were touched between two changes, as asked for last."""
        self._last_applied: Operation | None = None
        self._has_future = bool(columns.releasing_rn.any() or columns.pipelined_rn.any())
        self._reasons: dict[Any, tuple[int, dict[str, int]]] = {}
        self._within: IntArray | None = None
        self._has_bounds = tiers.has("confine")
        self._has_surroundings = tiers.has("domain_order")
        self._has_apart = tiers.has("sets_apart")

    @contextmanager
    def within(self, nodes: IntArray | None) -> Iterator[None]:
        """Look at no other nodes than these (in ascending order) for a while."""
        before, self._within = self._within, nodes
        try:
            yield
        finally:
            self._within = before

    def bounds(self, task: Task) -> IntArray | None:
        """The nodes outside which the task must not go as things are now; None for no bounds."""
        if self._within is not None or not self._has_bounds:
            return self._within
        for call in self._tiers.calls("confine"):
            given, nodes = self._tiers.ask(call, "confine", task)
            if not given and call[0].essential:
                return placement.NOWHERE
            if given and nodes is not None:
                bounds: IntArray = nodes
                return bounds
        return None

    def touch(self, index: IntArray, operation: Operation | None = None) -> None:
        """Something came to these nodes or left them; without an operation, it was taken back."""
        self._touched.append(index)
        self._last_applied = operation
        self._has_future |= operation is not None and operation.to != ALLOCATED

    def promise(self, index: IntArray) -> None:
        """Room on these nodes was promised to somebody, or is free again."""
        self.touch(index)
        self._has_future = True

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

    def places(
        self,
        task: Task,
        count: int,
        *,
        future: bool = False,
        ignore_room: bool = False,
    ) -> IntArray:
        """Nodes for up to `count` tasks equal to this one, in the order of placing one by one.

        With `future`, room that is being released counts too. For tasks whose placing changes what
        other nodes answer (pod affinity, spread) it is one node at a time: apply it, ask again.
        """
        if future and not self._has_future:
            return placement.NOWHERE
        if count > FEW or future or ignore_room:
            return self._search(task, count, future=future, ignore_room=ignore_room)
        ahead = self._ahead(task, count)
        if ahead is not None:
            return ahead.give(count)
        if self._is_full(task):
            return placement.NOWHERE
        state = self._state(task)
        if state.is_coupled:
            count = min(count, 1)
        among = self._among(task, count, state.copies_n)
        found = self._best(task, state, count, among, state.copies_n)
        if not state.is_coupled:
            # If the next to ask is of this class again, it is worth looking ahead.
            state.ahead = Ahead(found, self.changes, among)
            return state.ahead.give(len(found))
        return found

    def places_in_turn(self, tasks: Sequence[Task], *, future: bool = False) -> IntArray:
        """The same for these very tasks, which are equal but for their places in their job."""
        task = tasks[0]
        if len(tasks) > 1 and self._has_apart and not future:
            known = self._states.get(self._key(task))
            state = self._state(task) if known is None or known.is_coupled else known
            if self._only_follow(task, state):
                plugin, turn = state.turns[0]
                state.asked = None  # what it says is used up
                copies_n = np.where(state.ok_n, state.copies_n, 0)
                arguments = (self._scorer(task), copies_n, state.score_n, tasks, turn)
                call = (plugin, following.place)
                given, found = self._tiers.ask(call, "batch_node_order", *arguments)
                if given:
                    index: IntArray = found
                    return index
        return self.places(task, len(tasks), future=future)

    def _only_follow(self, task: Task, state: _ClassState) -> bool:
        """Whether nothing but one score that follows them makes such tasks go one at a time."""
        if len(state.turns) != 1 or state.is_one_by_one or state.parts:
            return False
        if state.score_n is not state.base_n:
            return False
        if self._has_surroundings or self._tiers.has("best_node"):
            return False
        return self.bounds(task) is None

    def _ahead(self, task: Task, count: int) -> Ahead | None:
        """A row of nodes of which the next are for this task, if nothing came between."""
        state = self._states.get(self._key(task))
        ahead = None if state is None else state.ahead
        if state is None or ahead is None or self._tiers.has("best_node"):
            return None
        if not ahead.holds(self.changes, self._last_applied):
            state.ahead = None
            return None
        among = self._among(task, count)
        if among is not ahead.among:
            return None
        if ahead.left() < count:
            found = self._best(task, self._state(task), AHEAD, among, state.copies_n)
            ahead = state.ahead = Ahead(found, self.changes, among)
        return ahead if ahead.left() >= count else None

    def _among(self, task: Task, count: int, copies_n: IntArray | None = None) -> IntArray | None:
        """The nodes to look at for so many tasks, full ones too; None for all.

        Within bounds they are those that keep the gang close together.
        """
        bounds = self.bounds(task)
        if bounds is None:
            return None
        if copies_n is None:
            copies_n = self._state(task, with_scores=False).copies_n
        ok_n = self._states[self._key(task)].ok_n
        live_n = np.zeros_like(copies_n)
        live_n[bounds] = np.where(ok_n[bounds], copies_n[bounds], 0)
        if count <= 0 or np.count_nonzero(live_n) < 2:
            return bounds
        closer: IntArray | None = self._tiers.first("narrow", task, count, live_n)
        return bounds if closer is None or not live_n[closer].any() else closer

    def _is_full(self, task: Task) -> bool:
        """Whether no node takes one more, where that can be told without scoring any."""
        known = self._states.get(self._key(task))
        if known is None or known.is_one_by_one:
            return False
        state = self._state(task, with_scores=False)
        return not np.any(state.ok_n & (state.copies_n > 0))

    def _search(
        self, task: Task, count: int, *, future: bool = False, ignore_room: bool = False
    ) -> IntArray:
        state = self._state(task)
        copies_n = state.copies_n
        if future or ignore_room:
            copies_n = self._copies(task, self._nodes, future=future, ignore_room=ignore_room)
        if state.is_coupled:
            count = min(count, 1)
        return self._best(task, state, count, self._among(task, count, copies_n), copies_n)

    def _best(
        self,
        task: Task,
        state: _ClassState,
        count: int,
        among: IntArray | None,
        copies_n: IntArray,
    ) -> IntArray:
        """The best of some nodes, or of all, for so many tasks."""
        index = _open(state, copies_n, among)
        if len(index) == 0 or count <= 0:
            return placement.NOWHERE
        if len(index) == 1 and not state.parts:
            return np.repeat(index, min(count, int(copies_n[index[0]])))
        score_n = state.score_n
        for plugin, turn in state.turns:
            given, part = self._tiers.ask((plugin, turn.score), "batch_node_order", task)
            score_n = score_n + part if given else score_n
        chosen = self._chosen_by_plugin(task, score_n, index)
        if chosen is not None:
            return chosen
        extra_n = self._tiers.first("domain_order", task) if self._has_surroundings else None
        if not state.parts:
            head = score_n[index]
            return placement.place(
                self._scorer(task, extra_n),
                index,
                copies_n[index],
                count,
                head if extra_n is None else head + extra_n[index],
                state.habit,
            )
        ok_n = state.ok_n
        if among is not None:
            ok_n = np.zeros_like(ok_n)
            ok_n[index] = True
        head_n = score_n if extra_n is None else score_n + extra_n
        score = self._scorer(task, extra_n)
        return relative.place(score, ok_n, copies_n, state.parts, count, head_n)

    def fits(self, task: Task, index: int, *, future: bool = False) -> bool:
        """Whether one node takes the task, now or once what leaves it has left.

        As `copies_on` tells of several; plain numbers make it a quarter faster to try evictions.
        """
        bounds = self.bounds(task)
        if not self.passing(task)[index] or (bounds is not None and not np.any(bounds == index)):
            return False
        columns = self._columns
        for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
            if row >= columns.idle_rn.shape[0]:
                return False
            idle = float(columns.idle_rn[row, index])
            later = idle + float(
                columns.releasing_rn[row, index] - columns.pipelined_rn[row, index]
            )
            if (later if future else min(idle, later)) + EPSILON <= amount:
                return False
        view = self._nodes.with_copies(np.asarray([index]), _NO_COPIES, task.klass)
        view = view.in_future() if future else view
        return bool(self._most_copies(task, view, np.full(1, float(MANY)))[0] > 0)

    def copies_on(
        self, columns: Sequence[int], task: Task, *, future: bool = False
    ) -> dict[int, int]:
        """How many tasks equal to this one each of these nodes takes."""
        ok_n, bounds = self.passing(task), self.bounds(task)
        index = np.unique(np.asarray(columns, dtype=np.int64))
        view = self._nodes.with_copies(index, np.zeros_like(index), task.klass)
        copies = np.where(ok_n[index], self._copies(task, view, future=future), 0)
        if bounds is not None:
            copies[~np.isin(index, bounds)] = 0
        return dict(zip(index.tolist(), copies.tolist(), strict=True))

    def goes_one_by_one(self, task: Task) -> bool:
        """Whether the place of one such task may change which nodes the next may have."""
        state = self._states.get(self._key(task)) or self._state(task)
        return self._has_bounds or state.is_one_by_one

    def _chosen_by_plugin(
        self, task: Task, score_n: FloatArray, index: IntArray
    ) -> IntArray | None:
        if not self._tiers.has("best_node"):
            return None
        chosen = self._tiers.first("best_node", task, index, score_n[index])
        return None if chosen is None else np.asarray([chosen], dtype=np.int64)

    def _state(self, task: Task, *, with_scores: bool = True) -> _ClassState:
        """Filters, room and, where they are asked for, scores of a class, brought up to date."""
        klass, key = task.klass, self._key(task)
        state = self._states.get(key)
        if state is None or state.is_one_by_one:
            is_one_by_one = self._tiers.any_true("one_by_one", task) is not None
            state = _ClassState(self._passes(task), is_one_by_one)
            state.copies_n = self._copies(task, self._nodes)
            state.base_n = state.score_n = self._score(task, self._nodes)
            state.parts = self._parts(task, state)
            self._states[key] = state
            state.seen = state.seen_by_score = len(self._touched)
            return state
        if state.seen < len(self._touched):
            view = self._changed_view(klass, state.seen)
            if view is None:
                state.copies_n = self._copies(task, self._nodes)
            else:
                state.copies_n[view.index] = self._copies(task, view)
            state.seen = len(self._touched)
        if with_scores and state.seen_by_score < len(self._touched):
            view = self._changed_view(klass, state.seen_by_score)
            if view is None:
                state.base_n = self._score(task, self._nodes)
            else:
                state.base_n[view.index] = self._score(task, view)
            state.score_n = state.base_n
            state.seen_by_score = len(self._touched)
        if with_scores and state.is_coupled and state.asked != (task, len(self._touched)):
            state.score_n = state.base_n
            state.parts = self._parts(task, state)
        return state

    def _changed_view(self, klass: TaskClass, seen: int) -> Nodes | None:
        """The nodes on which something happened since there were so many changes; None for all."""
        span = (seen, len(self._touched))
        if self._changed[0] != span:
            changed = self._touched[seen]
            if len(changed) > 1 or span[1] > seen + 1:
                changed = np.unique(np.concatenate(self._touched[seen:]))
            self._changed = (span, changed)
        changed = self._changed[1]
        if 4 * len(changed) > len(self._nodes):
            return None
        return self._nodes.with_copies(changed, np.zeros(len(changed), np.int64), klass)

    def _key(self, task: Task) -> Any:
        """Tasks with equal keys get equal answers from every plugin."""
        if not self._is_by_class or (self._has_apart and self._tiers.any_true("sets_apart", task)):
            return (task.klass, task.group, task.job, task.role)
        # With pod affinity about, the labels of a pod matter to others.
        return (task.klass, task.group) if self._cluster.term_classes else task.klass

    def _passes(self, task: Task) -> BoolArray:
        out = np.ones(len(self._nodes), dtype=bool)
        for mask, _ in self.rejections(task):
            out &= ~mask
        return out

    def rejections(self, task: Task) -> list[tuple[BoolArray, str]]:
        """Masks of nodes that will not do, whatever room they have, with reasons."""
        everywhere = np.ones(len(self._nodes), dtype=bool)
        found: list[tuple[BoolArray, str]] = []
        for call in self._tiers.calls("pre_predicate"):
            given, reason = self._tiers.ask(call, "pre_predicate", task)
            if not given and call[0].essential:
                return [(everywhere, f"plugin {call[0].name} failed")]
            if given and reason is not None:
                return [(everywhere, str(reason))]
        for call in self._tiers.calls("predicate"):
            given, masks = self._tiers.ask(call, "predicate", task, self._nodes)
            if given:
                # The generator runs here, so its errors are caught here too.
                given, masks = self._tiers.ask((call[0], list), "predicate", masks)
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
        columns, index = self._columns, nodes.index
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
        room_n = self._most_copies(task, nodes.in_future() if future else nodes, room_n)
        np.maximum(room_n, 0.0, out=room_n)
        return room_n.astype(np.int64)

    def _most_copies(self, task: Task, nodes: Nodes, room_n: FloatArray) -> FloatArray:
        """The room that plugins leave of what there is."""
        for most_n, _ in self._limits(task, nodes):
            np.minimum(room_n, most_n, out=room_n)
        return room_n

    def _limits(self, task: Task, nodes: Nodes) -> list[tuple[FloatArray, str]]:
        """How many equal tasks each node takes by each plugin's word, and what stops more."""
        found: list[tuple[FloatArray, str]] = []
        for call in self._tiers.calls("max_copies"):
            given, answer = self._tiers.ask(call, "max_copies", task, nodes)
            if not given and call[0].essential:
                found.append((np.zeros(len(nodes)), f"plugin {call[0].name} failed"))
            if not given or answer is None:
                continue
            for most_n, reason in answer if isinstance(answer, list) else [(answer, PODS_EXCEEDED)]:
                found.append((nodes.take(most_n) if len(most_n) != len(nodes) else most_n, reason))
        return found

    def _score(self, task: Task, nodes: Nodes) -> FloatArray:
        total_n = np.zeros(len(nodes))
        for call in self._tiers.calls("node_order"):
            given, score_n = self._tiers.ask(call, "node_order", task, nodes)
            if given:
                # An array over all nodes, made in `open`, is cut to the view.
                total_n += nodes.take(score_n) if len(score_n) != len(nodes) else score_n
        return total_n

    def _scorer(self, task: Task, extra_n: FloatArray | None = None) -> placement.Score:
        if extra_n is not None:
            plain = self._scorer(task)
            return lambda index, copies: plain(index, copies) + extra_n[index]

        def score(index: IntArray, copies: IntArray) -> FloatArray:
            if len(index) == len(self._nodes):
                # One entry too many tells an array over this view from one over all nodes.
                index, copies = np.append(index, index[-1]), np.append(copies, copies[-1])
                return self._score(task, self._nodes.with_copies(index, copies, task.klass))[:-1]
            return self._score(task, self._nodes.with_copies(index, copies, task.klass))

        return score

    def _parts(self, task: Task, state: _ClassState) -> list[Normalized]:
        parts: list[Normalized] = []
        state.turns, state.asked = [], (task, len(self._touched))
        if not self._tiers.has("batch_node_order"):
            return parts
        candidates = np.flatnonzero(state.ok_n & (state.copies_n > 0))
        for call in self._tiers.calls("batch_node_order"):
            given, answer = self._tiers.ask(call, "batch_node_order", task, self._nodes, candidates)
            if not given or answer is None:
                continue
            for part in answer if isinstance(answer, list) else [answer]:
                if isinstance(part, Normalized):
                    parts.append(part)
                elif isinstance(part, InTurn):
                    state.turns.append((call[0], part))
                    state.is_coupled = True
                else:
                    # It may depend on anything, so it holds for one task only.
                    state.score_n = state.score_n + part
                    state.is_coupled = True
        return parts

    def room(self, task: Task, count: int) -> int:
        """How many tasks like this one there is room for, now or later, at most `count`."""
        bounds = self.bounds(task)
        if bounds is None and count <= FEW and self._ahead(task, count) is not None:
            return count
        state = self._state(task, with_scores=False)
        if state.is_coupled:
            return count  # it depends on where the others go: only trying tells
        copies_n = state.copies_n
        if self._has_future:
            copies_n = np.maximum(copies_n, self._copies(task, self._nodes, future=True))
        ok_n = state.ok_n
        if bounds is not None:
            copies_n, ok_n = copies_n[bounds], ok_n[bounds]
        return min(count, int(np.minimum(copies_n[ok_n], count).sum()))

    def capacity(self, task: Task) -> IntArray:
        """How many tasks like this one each node has room for, now or later, without bounds.

        Where one such task's place changes what other nodes answer, it is the room alone.
        """
        state = self._state(task, with_scores=False)
        copies_n = state.copies_n
        if self._has_future:
            copies_n = np.maximum(copies_n, self._copies(task, self._nodes, future=True))
        return copies_n if state.is_coupled else np.where(state.ok_n, copies_n, 0)

    def is_coupled(self, task: Task) -> bool:
        """Whether where one such task goes changes what other nodes answer."""
        self.passing(task)
        return self._states[self._key(task)].is_coupled

    def passing(self, task: Task) -> BoolArray:
        """Nodes that pass the filters, whatever room they have."""
        state = self._states.get(self._key(task))
        if state is None or state.is_one_by_one:
            state = self._state(task)
        return state.ok_n

    def reasons(self, task: Task, stamp: int, *, filled: bool = False) -> dict[str, int]:
        """Every node that will not take the task now, by its first reason; over all nodes.

        With `filled`, as it would be with as many such tasks as fit on every node. Many jobs wait
        for the same: what was found for one is kept as long as the stamp is the same.
        """
        if self.bounds(task) is not None:
            return self._count_reasons(task, filled)
        key = (self._key(task), filled)
        known = self._reasons.get(key)
        if known is None or known[0] != stamp:
            known = self._reasons[key] = (stamp, self._count_reasons(task, filled))
        return known[1]

    def _count_reasons(self, task: Task, filled: bool) -> dict[str, int]:
        left_n = np.ones(len(self._nodes), dtype=bool)
        counts: dict[str, int] = {}
        names = self._cluster.dimensions.names

        def rule_out(mask: BoolArray, reason: str) -> None:
            hit = int(np.count_nonzero(left_n & mask))
            if hit:
                counts[reason] = counts.get(reason, 0) + hit
                left_n[mask] = False

        bounds = self.bounds(task)
        if bounds is not None:
            outside_n = np.ones(len(self._nodes), dtype=bool)
            outside_n[bounds] = False
            rule_out(outside_n, OUTSIDE)
        for mask, reason in self.rejections(task):
            rule_out(mask, reason)
        for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
            rule_out(
                self._columns.idle_rn[row] + EPSILON <= amount,
                f"Insufficient {names[row]}",
            )
        for most_n, reason in self._limits(task, self._nodes):
            rule_out(most_n <= 0, reason)
        copies_n = self._copies(task, self._nodes)
        rule_out(copies_n <= 0, PROMISED)
        if filled:
            for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
                after_n = self._columns.idle_rn[row] - copies_n * amount
                rule_out(
                    after_n + EPSILON <= amount,
                    f"Insufficient {names[row]}",
                )
            for most_n, reason in self._limits(task, self._nodes):
                rule_out(most_n <= copies_n, reason)
            rule_out(left_n.copy(), PODS_EXCEEDED)
        return counts


def _open(state: _ClassState, copies_n: IntArray, among: IntArray | None) -> IntArray:
    """The nodes, of some or of all, that take a task more."""
    if among is None:
        return np.flatnonzero(state.ok_n & (copies_n > 0))
    return among[state.ok_n[among] & (copies_n[among] > 0)]
