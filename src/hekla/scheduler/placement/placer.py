"""The best nodes for tasks: filters, capacity and scores of each class, kept up to date.

What is computed for a class of tasks is kept for the session and updated only for the nodes in the
change log.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np

from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.answers import Normalized, SequentialScore
from hekla.scheduler.framework.hooks import AnyHook
from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.framework.tiers import FAILED, Tiers
from hekla.scheduler.placement import greedy, normalized, sequential
from hekla.scheduler.placement.changes import ChangeLog
from hekla.scheduler.placement.feasibility import Feasibility
from hekla.scheduler.placement.greedy import NO_NODES
from hekla.scheduler.placement.lookahead import Lookahead
from hekla.scheduler.placement.reasons import Reasons, count_reasons
from hekla.scheduler.placement.scoring import Scoring
from hekla.scheduler.state.classes import TaskClass
from hekla.scheduler.state.cluster import Cluster
from hekla.scheduler.state.dimensions import EPSILON, BoolArray, FloatArray, IntArray
from hekla.scheduler.state.matrix import Columns
from hekla.scheduler.state.model import Task

FEW: Final = 64
"""A search for at most this many tasks uses the lookahead."""
LOOKAHEAD: Final = 1024
"""How many nodes a lookahead computes at once."""
_CLASS_HOOKS: Final[tuple[AnyHook, ...]] = (
    hooks.pre_predicate,
    hooks.predicate,
    hooks.node_capacity,
    hooks.node_order,
    hooks.batch_node_order,
)


class _ClassState:
    """Filters, capacity and scores of one class, and the change log entry they are valid for."""

    __slots__ = (
        "affects_other_nodes",
        "base_n",
        "batch_key",
        "capacity_n",
        "feasible_n",
        "hint",
        "is_coupled",
        "lookahead",
        "normalized",
        "score_n",
        "seen",
        "seen_by_score",
        "sequential",
    )

    def __init__(self, feasible_n: BoolArray, affects_other_nodes: bool) -> None:
        self.feasible_n = feasible_n
        self.affects_other_nodes = affects_other_nodes
        """Whether placing one task changes other nodes. Then nothing here is reused."""
        self.is_coupled = affects_other_nodes
        """Whether tasks are placed one at a time; also for scores that hold for one task."""
        self.capacity_n: IntArray
        self.base_n: FloatArray
        """Scores by node alone. `score_n` adds the batch scores that hold for one task."""
        self.score_n: FloatArray
        self.normalized: list[Normalized] = []
        self.sequential: list[tuple[Plugin, SequentialScore]] = []
        """Scores that depend on earlier placements, with their plugins; not part of `score_n`."""
        self.batch_key: tuple[Task, int] | None = None
        """The task and change log entry of the last batch scores."""
        self.hint = greedy.HeapHint()
        self.seen = self.seen_by_score = 0
        self.lookahead: Lookahead | None = None


class Placer:
    """Finds nodes for tasks in one session."""

    def __init__(self, cluster: Cluster, tiers: Tiers, columns: Columns, nodes: Nodes) -> None:
        self._cluster = cluster
        self._tiers = tiers
        self._columns = columns
        self._nodes = nodes
        has_future = bool(columns.releasing_rn.any() or columns.pipelined_rn.any())
        self.changes = ChangeLog(has_future=has_future)
        self.feasibility = Feasibility(tiers, columns, nodes, self.changes)
        self._scoring = Scoring(tiers, nodes)
        self._states: dict[Any, _ClassState] = {}
        self._is_by_class = all(
            plugin.by_class for hook in _CLASS_HOOKS for plugin, _ in tiers.calls(hook)
        )
        self._reasons: dict[Any, tuple[int, Reasons]] = {}
        self._capacity_of_empty: dict[Any, int] = {}
        self._dependent: dict[Any, bool] = {}
        self._has_domain_order = tiers.has(hooks.domain_order)
        self._has_job_specific = tiers.has(hooks.job_specific)

    def restrict_to(self, nodes: IntArray | None) -> AbstractContextManager[None]:
        """Allow only these nodes (ascending) inside the block; None for no restriction."""
        return self.feasibility.restrict_to(nodes)

    # --- best nodes ---------------------------------------------------------------------------

    def best_nodes(
        self,
        task: Task,
        count: int,
        *,
        future: bool = False,
        ignore_resources: bool = False,
    ) -> IntArray:
        """Return nodes for up to `count` tasks equal to this one, as placing one by one would.

        With `future`, releasing resources are free too. A task that affects other nodes (pod
        affinity, spread) gets one node: apply it and call again.
        """
        if future and not self.changes.has_future:
            return NO_NODES
        if count > FEW or future or ignore_resources:
            return self._search(task, count, future=future, ignore_resources=ignore_resources)
        lookahead = self._valid_lookahead(task, count)
        if lookahead is not None:
            return lookahead.take(count)
        if self._is_full(task):
            return NO_NODES
        state = self._state(task)
        if state.is_coupled:
            count = min(count, 1)
        among = self._search_space(task, count, state.capacity_n)
        found = self._best(task, state, count, among, state.capacity_n)
        if not state.is_coupled:
            # The next search is often for the same class, and may take its nodes from here.
            state.lookahead = Lookahead(found, len(self.changes), among)
            return state.lookahead.take(len(found))
        return found

    def best_nodes_in_order(self, tasks: Sequence[Task], *, future: bool = False) -> IntArray:
        """Return nodes for these tasks, which are equal except for their position in the job."""
        task = tasks[0]
        if len(tasks) > 1 and self._has_job_specific and not future:
            known = self._states.get(self._key(task))
            state = self._state(task) if known is None or known.is_coupled else known
            if self._has_only_sequential(task, state):
                plugin, score = state.sequential[0]
                state.batch_key = None  # placing uses the sequential score up
                capacity_n = np.where(state.feasible_n, state.capacity_n, 0)
                found = self._tiers.call(
                    (plugin, sequential.place),
                    hooks.batch_node_order,
                    self._scoring.function(task),
                    capacity_n,
                    state.score_n,
                    tasks,
                    score,
                )
                if found is not FAILED:
                    return found
        return self.best_nodes(task, len(tasks), future=future)

    def _has_only_sequential(self, task: Task, state: _ClassState) -> bool:
        """Tell whether one sequential score is the only reason to place tasks one at a time."""
        if len(state.sequential) != 1 or state.affects_other_nodes or state.normalized:
            return False
        if state.score_n is not state.base_n:
            return False
        if self._has_domain_order or self._tiers.has(hooks.best_node):
            return False
        return self.feasibility.allowed_nodes(task) is None

    def _valid_lookahead(self, task: Task, count: int) -> Lookahead | None:
        """Return a lookahead of the class with enough nodes left, if it is still valid."""
        state = self._states.get(self._key(task))
        lookahead = None if state is None else state.lookahead
        if state is None or lookahead is None or self._tiers.has(hooks.best_node):
            return None
        if not lookahead.is_valid(len(self.changes), self.changes.last):
            state.lookahead = None
            return None
        among = self._search_space(task, count)
        if among is not lookahead.among:
            return None
        if lookahead.left() < count:
            found = self._best(task, self._state(task), LOOKAHEAD, among, state.capacity_n)
            lookahead = state.lookahead = Lookahead(found, len(self.changes), among)
        return lookahead if lookahead.left() >= count else None

    def _search_space(
        self, task: Task, count: int, capacity_n: IntArray | None = None
    ) -> IntArray | None:
        """Return the nodes to search for `count` tasks, full ones included; None for all.

        Of the allowed nodes, `prefer_nodes` chooses those that keep a gang close together.
        """
        allowed = self.feasibility.allowed_nodes(task)
        if allowed is None:
            return None
        if capacity_n is None:
            capacity_n = self._state(task, with_scores=False).capacity_n
        feasible_n = self._states[self._key(task)].feasible_n
        usable_n = np.zeros_like(capacity_n)
        usable_n[allowed] = np.where(feasible_n[allowed], capacity_n[allowed], 0)
        if count <= 0 or np.count_nonzero(usable_n) < 2:
            return allowed
        closer = self._tiers.first(hooks.prefer_nodes, task, count, usable_n)
        return allowed if closer is None or not usable_n[closer].any() else closer

    def _is_full(self, task: Task) -> bool:
        """Tell whether no node takes another task, where that is known without scores."""
        known = self._states.get(self._key(task))
        if known is None or known.affects_other_nodes:
            return False
        state = self._state(task, with_scores=False)
        return not np.any(state.feasible_n & (state.capacity_n > 0))

    def _search(
        self, task: Task, count: int, *, future: bool = False, ignore_resources: bool = False
    ) -> IntArray:
        state = self._state(task)
        capacity_n = state.capacity_n
        if future or ignore_resources:
            capacity_n = self.feasibility.capacity(
                task, self._nodes, future=future, ignore_resources=ignore_resources
            )
        if state.is_coupled:
            count = min(count, 1)
        among = self._search_space(task, count, capacity_n)
        feasible_n = self.feasible(task, future=True) if future else None
        return self._best(task, state, count, among, capacity_n, feasible_n)

    def _best(
        self,
        task: Task,
        state: _ClassState,
        count: int,
        among: IntArray | None,
        capacity_n: IntArray,
        feasible_n: BoolArray | None = None,
    ) -> IntArray:
        """Return the best of some nodes, or of all, for `count` tasks.

        `feasible_n` are the feasible nodes if they differ from those of the state.
        """
        feasible_n = state.feasible_n if feasible_n is None else feasible_n
        if among is None:
            index = np.flatnonzero(feasible_n & (capacity_n > 0))
        else:
            index = among[feasible_n[among] & (capacity_n[among] > 0)]
        if len(index) == 0 or count <= 0:
            return NO_NODES
        if len(index) == 1 and not state.normalized:
            return np.repeat(index, min(count, int(capacity_n[index[0]])))
        score_n = state.score_n
        for plugin, score in state.sequential:
            part = self._tiers.call((plugin, score.score), hooks.batch_node_order, task)
            score_n = score_n if part is FAILED else score_n + part
        if self._tiers.has(hooks.best_node):
            chosen = self._tiers.first(hooks.best_node, task, index, score_n[index])
            if chosen is not None:
                return np.asarray([chosen], dtype=np.int64)
        extra_n = self._tiers.first(hooks.domain_order, task) if self._has_domain_order else None
        head_n = score_n if extra_n is None else score_n + extra_n
        function = self._scoring.function(task, extra_n)
        if not state.normalized:
            return greedy.place(
                function, index, capacity_n[index], count, head_n[index], state.hint
            )
        if among is not None:
            feasible_n = np.zeros_like(feasible_n)
            feasible_n[index] = True
        return normalized.place(function, feasible_n, capacity_n, state.normalized, count, head_n)

    # --- capacity -----------------------------------------------------------------------------

    def fits(self, task: Task, index: int, *, future: bool = False) -> bool:
        """Tell whether one node takes the task, now or in the future."""
        allowed = self.feasibility.allowed_nodes(task)
        if allowed is not None and not np.any(allowed == index):
            return False
        if not self.feasible(task, future=future)[index]:
            return False
        return self.feasibility.fits_resources(task, index, future=future)

    def capacity_on(
        self, columns: Sequence[int], task: Task, *, future: bool = False
    ) -> dict[int, int]:
        """Return how many tasks equal to this one each of these nodes takes."""
        feasible_n = self.feasible(task, future=future)
        allowed = self.feasibility.allowed_nodes(task)
        index = np.unique(np.asarray(columns, dtype=np.int64))
        view = self._nodes.with_added(index, np.zeros_like(index), task.klass)
        capacity = self.feasibility.capacity(task, view, future=future)
        capacity = np.where(feasible_n[index], capacity, 0)
        if allowed is not None:
            capacity[~np.isin(index, allowed)] = 0
        return dict(zip(index.tolist(), capacity.tolist(), strict=True))

    def fitting_count(self, task: Task, count: int) -> int:
        """Return how many of `count` tasks equal to this one fit, now or in the future."""
        allowed = self.feasibility.allowed_nodes(task)
        if allowed is None and count <= FEW and self._valid_lookahead(task, count) is not None:
            return count
        state = self._state(task, with_scores=False)
        if state.is_coupled:
            return count  # it depends on where the others go, so only placing them tells
        if not self.changes.has_future and allowed is None:
            usable = state.capacity_n[state.feasible_n]
        else:
            usable = self._capacity_with_future(task, state)
            usable = usable if allowed is None else usable[allowed]
        return min(count, int(np.minimum(usable, count).sum()))

    def capacity(self, task: Task) -> IntArray:
        """Return how many tasks equal to this one each node takes, now or in the future.

        Restrictions do not count. For a task that affects other nodes, filters do not either.
        """
        state = self._state(task, with_scores=False)
        if not state.is_coupled:
            return self._capacity_with_future(task, state)
        if not self.changes.has_future:
            return state.capacity_n
        future_n = self.feasibility.capacity(task, self._nodes, future=True)
        return np.maximum(state.capacity_n, future_n)

    def _capacity_with_future(self, task: Task, state: _ClassState) -> IntArray:
        """Return how many tasks each feasible node takes, now or in the future."""
        if not self.changes.has_future:
            return _usable(state)
        future_n = self.feasibility.capacity(task, self._nodes, future=True)
        feasible_n = self.feasible(task, future=True)
        return np.maximum(_usable(state), np.where(feasible_n, future_n, 0))

    def capacity_of_empty_nodes(self, task: Task) -> int:
        """Return how many tasks equal to this one fit on all feasible nodes without any pods."""
        key = self._key(task)
        known = self._capacity_of_empty.get(key)
        if known is None:
            most_n = np.where(self.feasibility.filter(task, self._nodes.without_pods()), np.inf, 0)
            for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
                offered_n = self._columns.allocatable_rn[row]
                most_n = np.minimum(most_n, np.floor((offered_n + EPSILON) / amount))
            known = int(min(most_n.sum(), 2**31))
            self._capacity_of_empty[key] = known
        return known

    def feasible(self, task: Task, *, future: bool = False) -> BoolArray:
        """Return the mask of nodes that pass all filters, whatever capacity they have."""
        state = self._states.get(self._key(task))
        if state is None or state.affects_other_nodes:
            state = self._state(task)
        if future and self.changes.has_future and self.depends_on_pods(task):
            return self.feasibility.filter(task, self._nodes.in_future())
        return state.feasible_n

    def feasible_without_pods(self, task: Task) -> BoolArray:
        """Return the mask of nodes that pass all filters that no eviction can change."""
        if not self.depends_on_pods(task):
            return self.feasible(task)
        return self.feasibility.filter(task, self._nodes.without_pods())

    def depends_on_pods(self, task: Task) -> bool:
        """Tell whether evictions may make nodes feasible for the task."""
        key = self._key(task)
        known = self._dependent.get(key)
        if known is None:
            known = self._tiers.any_true(hooks.depends_on_pods, task) is not None
            self._dependent[key] = known
        return known

    def is_coupled(self, task: Task) -> bool:
        """Tell whether tasks equal to this one are placed one at a time."""
        self.feasible(task)
        return self._states[self._key(task)].is_coupled

    def affects_other_nodes(self, task: Task) -> bool:
        """Tell whether placing the task may change which nodes are feasible for the next."""
        state = self._states.get(self._key(task)) or self._state(task)
        return self.feasibility.has_restrictions or state.affects_other_nodes

    def reasons(self, task: Task, version: int, *, filled: bool = False) -> Reasons:
        """Return how many nodes do not take the task now, by reason.

        With `filled`, every node counts as holding as many such tasks as fit. Results are shared
        by tasks of a class while the session's `version` stays the same.
        """
        if self.feasibility.allowed_nodes(task) is not None:
            return self._count_reasons(task, filled)
        key = (self._key(task), filled)
        known = self._reasons.get(key)
        if known is None or known[0] != version:
            known = self._reasons[key] = (version, self._count_reasons(task, filled))
        return known[1]

    def _count_reasons(self, task: Task, filled: bool) -> Reasons:
        resources = self._cluster.dimensions.names
        return count_reasons(
            self.feasibility, self._columns, self._nodes, resources, task, filled=filled
        )

    # --- the cache per class ------------------------------------------------------------------

    def _state(self, task: Task, *, with_scores: bool = True) -> _ClassState:
        """Return filters, capacity and (with `with_scores`) scores of a class, up to date."""
        klass, key = task.klass, self._key(task)
        state = self._states.get(key)
        now = len(self.changes)
        if state is None or state.affects_other_nodes:
            is_coupled = self._tiers.any_true(hooks.affects_other_nodes, task) is not None
            state = _ClassState(self.feasibility.filter(task), is_coupled)
            state.capacity_n = self.feasibility.capacity(task, self._nodes)
            state.base_n = state.score_n = self._scoring.score(task, self._nodes)
            self._add_batch_scores(task, state)
            self._states[key] = state
            state.seen = state.seen_by_score = now
            return state
        if state.seen < now:
            view = self._changed_view(klass, state.seen)
            if view is None:
                state.capacity_n = self.feasibility.capacity(task, self._nodes)
            else:
                state.capacity_n[view.index] = self.feasibility.capacity(task, view)
            state.seen = now
        if with_scores and state.seen_by_score < now:
            view = self._changed_view(klass, state.seen_by_score)
            if view is None:
                state.base_n = self._scoring.score(task, self._nodes)
            else:
                state.base_n[view.index] = self._scoring.score(task, view)
            state.score_n = state.base_n
            state.seen_by_score = now
        if with_scores and state.is_coupled and state.batch_key != (task, now):
            state.score_n = state.base_n
            self._add_batch_scores(task, state)
        return state

    def _changed_view(self, klass: TaskClass, seen: int) -> Nodes | None:
        """Return a view of the nodes that changed after entry `seen`; None for all nodes."""
        changed = self.changes.index_since(seen)
        if 4 * len(changed) > len(self._nodes):
            return None
        return self._nodes.with_added(changed, np.zeros(len(changed), np.int64), klass)

    def _key(self, task: Task) -> Any:
        """Return the cache key: tasks with equal keys get equal answers from every plugin."""
        if not self._is_by_class or (
            self._has_job_specific and self._tiers.any_true(hooks.job_specific, task)
        ):
            return (task.klass, task.group, task.job, task.role)
        # With pod affinity in the cluster, the labels of a pod matter to other pods.
        return (task.klass, task.group) if self._cluster.term_classes else task.klass

    def _add_batch_scores(self, task: Task, state: _ClassState) -> None:
        state.normalized, state.sequential = [], []
        state.batch_key = (task, len(self.changes))
        if not self._tiers.has(hooks.batch_node_order):
            return
        candidates = np.flatnonzero(state.feasible_n & (state.capacity_n > 0))
        batch = self._scoring.batch(task, candidates)
        state.normalized, state.sequential = batch.normalized, batch.sequential
        state.is_coupled |= bool(batch.sequential or batch.plain)
        for part_n in batch.plain:
            state.score_n = state.score_n + part_n


def _usable(state: _ClassState) -> IntArray:
    """Return how many tasks each node takes, 0 where it is not feasible."""
    return np.where(state.feasible_n, state.capacity_n, 0)
