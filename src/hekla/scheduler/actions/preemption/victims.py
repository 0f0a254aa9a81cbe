"""The victim search: which tasks to evict so that a task fits, the fewest and cheapest.

Each node is an option with an eviction cost: number, priority, size and age of the victims. Victims
are taken in order, lowest rank first, until the task fits; then each victim that is not needed is
dropped. Costs are computed from numbers alone, and jobs with equal tasks share them. The cheapest
option is then applied in a statement with all filters and the queue's limits, and counts only if
the task is placed.

A victim that could retake the resources by the same rule makes the preemption pointless. Such a
plan is refused, so evictions come to an end.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, ClassVar, Final, Literal

import numpy as np

from hekla.scheduler.actions.preemption.eviction_costs import Cost, EvictionCosts, cost_of
from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.answers import EvictionContext
from hekla.scheduler.framework.hooks import Hook
from hekla.scheduler.session.session import Session
from hekla.scheduler.session.statement import Statement
from hekla.scheduler.state.classes import TaskClass
from hekla.scheduler.state.dimensions import EPSILON, BoolArray
from hekla.scheduler.state.model import Job, Task
from hekla.scheduler.state.status import ALLOCATED, BOUND, PENDING, PIPELINED, RUNNING, Status

NEVER: Final = "Never"


@dataclass(frozen=True, slots=True)
class EvictionRule:
    """Which tasks a task may evict, and the hook that plugins vote with."""

    kind: Literal["preempt", "reclaim"]
    hook: Hook[BoolArray | None, Any, Sequence[Task]]
    reason: str
    may_preempt: Callable[[Task, Task], bool]
    """Tell whether a task (first) may evict another, before plugins are called."""
    may_lose: Callable[[Sequence[Task]], Iterable[bool]] | None = None
    """Tell which of the candidates, in order, may be evicted whatever plugins answer."""
    is_eligible: Callable[[Task], bool] | None = None
    """Tell whether a task may evict at all."""
    statuses: tuple[Status, ...] = (BOUND, RUNNING)
    """The statuses of tasks that can be evicted."""

    def may_evict(self, task: Task) -> bool:
        """Tell whether a task may evict at all."""
        return self.is_eligible is None or self.is_eligible(task)

    def votes(self, session: Session, task: Task, candidates: Sequence[Task]) -> list[bool]:
        """Return which candidates may be evicted for a task, the first of them first."""
        evictor: Task | EvictionContext = task
        if self.hook is hooks.unified_evictable and task.job is not None:
            evictor = EvictionContext(self.kind, task.job)
        return session.tiers.victims(self.hook, evictor, candidates, self.may_lose)


class VictimSearch:
    """The victim search of one action, shared by its jobs.

    The rank of candidates is computed for the first job and holds for the whole action.
    """

    is_simple: ClassVar[bool] = False
    """Compute every node for every task. Slow; tests compare the shortcuts with it."""

    def __init__(self, session: Session, rule: EvictionRule) -> None:
        self.session = session
        self.rule = rule
        self.failed = FailedSearches(session)
        tiers = session.tiers
        self._has_queue_order = tiers.has(hooks.victim_queue_order)
        dependent = {id(plugin) for plugin, _ in tiers.calls(hooks.depends_on_pods)}
        self._needs_plugins = any(
            id(plugin) not in dependent for plugin, _ in tiers.calls(hooks.fits_after_eviction)
        )
        self._is_shared = all(plugin.victims_by_class for plugin, _ in tiers.calls(rule.hook))
        self._costs: dict[tuple[Any, ...], EvictionCosts] = {}
        self._ranks: dict[str, tuple[Any, ...]] | None = None
        self._candidates: dict[int, list[Task]] = {}
        self._lowest: dict[str, float] = {}
        self._found: dict[int, list[Task] | None] = {}
        self._found_for: tuple[EvictionCosts, int] | None = None

    def has_targets(self, job: Job) -> bool:
        """Tell whether a job could expect victims: its queue is entitled, or it outranks a job."""
        if self.rule.is_eligible is not None:
            kinds = {task.klass: task for task in job.by_status[PENDING].values()}
            return any(map(self.rule.is_eligible, kinds.values()))
        queue = job.queue
        if queue is None:
            return False
        if queue.name not in self._lowest:
            running = (j.priority for j in queue.jobs.values() if j.count(*self.rule.statuses))
            self._lowest[queue.name] = min(running, default=math.inf)
        return job.priority > self._lowest[queue.name]

    def costs(self, task: Task) -> EvictionCosts:
        """Return the costs for equal tasks of a queue, or of a job if plugins vote by job."""
        job = task.job
        assert job is not None
        key: tuple[Any, ...]
        key = (job.queue_name, job.priority, task.klass, task.group, task.priority)
        if not self._is_shared or job.count(BOUND, RUNNING):
            key = (*key, job.key)
        costs = self._costs.get(key)
        if costs is None or self.is_simple:
            costs = self._costs[key] = EvictionCosts()
        return costs

    def refresh(self, costs: EvictionCosts, task: Task) -> None:
        """Compute the cost of every node that changed since the last search."""
        feasible_n = self.session.placer.feasible_without_pods(task)
        changed = self.session.placer.changes.since(costs.seen)
        for index in np.flatnonzero(feasible_n).tolist() if changed is None else changed:
            victims = self.current_victims(costs, task, index) if feasible_n[index] else None
            costs.write(index, None if victims is None else cost_of(victims))
        costs.seen = len(self.session.placer.changes)

    def current_victims(self, costs: EvictionCosts, task: Task, index: int) -> list[Task] | None:
        """Return `victims`, computed once per state of the session.

        The node that changed last is often the one with the lowest cost, and is asked for twice.
        """
        state = (costs, self.session.version)
        if self._found_for != state:
            self._found, self._found_for = {}, state
        if index not in self._found:
            self._found[index] = self.victims(task, index)
        return self._found[index]

    def victims(self, task: Task, index: int) -> list[Task] | None:
        """Return the tasks to evict from a node so that the task fits; None if it never fits."""
        shortfall = self._shortfall(task.klass, index)
        if shortfall is None:
            return None
        needs_plugins = self._asks_plugins(task, index) and (
            not self._fits_after(task, index, [[]])[0]
        )
        if not shortfall and not needs_plugins:
            return []
        candidates = self.evictable(task, index)
        if _remaining(shortfall, candidates):
            return None
        if needs_plugins and not self._fits_after(task, index, [candidates])[0]:
            return None
        allowed = self.allowed(task, candidates)
        options: Iterable[list[Task]] = (allowed[:count] for count in range(1, len(allowed) + 1))
        if needs_plugins:
            # The shortfall may be on one device: one victim that has all of it is tried first.
            tried = [*([victim] for victim in allowed), *options]
            options = compress(tried, self._fits_after(task, index, tried))
        chosen = next((option for option in options if not _remaining(shortfall, option)), None)
        if chosen is None:
            return None
        for victim in reversed(
            chosen[:]
        ):  # drop victims that are not needed, the highest rank first
            others = [other for other in chosen if other is not victim]
            if _remaining(shortfall, others) or (
                needs_plugins and not self._fits_after(task, index, [others])[0]
            ):
                continue
            chosen = others
        return chosen

    def _shortfall(self, klass: TaskClass, index: int) -> list[tuple[int, float]] | None:
        """Return the resources that a node lacks for a task; None if no node has one of them."""
        columns = self.session.columns
        shortfall: list[tuple[int, float]] = []
        for row, amount in zip(klass.rows, klass.amounts, strict=True):
            if row >= columns.idle_rn.shape[0]:
                return None
            idle = columns.idle_rn[row, index] + columns.releasing_rn[row, index]
            lack = amount - float(idle - columns.pipelined_rn[row, index])
            if lack >= EPSILON:
                shortfall.append((row, lack))
        return shortfall

    def _asks_plugins(self, task: Task, index: int) -> bool:
        """Tell whether more than amounts may decide: other pods, or how many there are."""
        columns = self.session.columns
        return (
            self._needs_plugins
            or bool(columns.pods_n[index] >= columns.max_pods_n[index])
            or self.session.placer.depends_on_pods(task)
        )

    def _fits_after(self, task: Task, index: int, options: Sequence[Sequence[Task]]) -> list[bool]:
        """Tell for each set of victims whether plugins let the task fit without it."""
        found = self.session.tiers.fits_after_eviction(task, index, options)
        return [True] * len(options) if found is None else found.tolist()

    def evictable(self, task: Task, index: int) -> list[Task]:
        """Return the tasks on a node that the rule allows to evict, the lowest rank first."""
        statuses, may_preempt = self.rule.statuses, self.rule.may_preempt
        return [
            other
            for other in self._ranked(index)
            if other.status in statuses and may_preempt(task, other)
        ]

    def allowed(self, task: Task, candidates: list[Task]) -> list[Task]:
        """Return the candidates that the plugins allow to evict."""
        tiers = self.session.tiers
        if self._has_queue_order and task.job is not None:
            queue = task.job.queue
            candidates.sort(
                key=lambda victim: tiers.order_key(
                    hooks.victim_queue_order,
                    None if victim.job is None else victim.job.queue,
                    queue,
                )
            )
        votes = self.rule.votes(self.session, task, candidates)
        return list(compress(candidates, votes))

    def _ranked(self, index: int) -> list[Task]:
        """Return all evictable tasks of a node, the lowest rank first."""
        known = self._candidates.get(index)
        if known is None:
            unevictable = self.session.cluster.unevictable
            known = [
                task
                for task in self.session.cluster.node_table.node_list[index].tasks.values()
                if task.job is not None and task.is_preemptable and task.uid not in unevictable
            ]
            known.sort(key=self._rank, reverse=True)
            self._candidates[index] = known
        return known

    def _rank(self, victim: Task) -> tuple[Any, ...]:
        """Return the sort key of a task: the one that is scheduled first comes first."""
        session, job = self.session, victim.job
        assert job is not None
        if self._ranks is None:
            queues = {
                each.name: session.queue_key(each) for each in session.cluster.queues.values()
            }
            self._ranks = {
                each.key: (queues.get(each.queue_name, ()), session.job_key(each))
                for each in session.cluster.jobs.values()
            }
        return (
            *self._ranks[job.key],
            session.tiers.order_key(hooks.task_order, victim),
            victim.order,
        )


class Preemption:
    """Preemption for the tasks of one job, within one statement."""

    def __init__(self, search: VictimSearch, statement: Statement, job: Job) -> None:
        self.session = search.session
        self.rule = search.rule
        self._search = search
        self._statement = statement
        self._job = job
        self._before: dict[EvictionCosts, int] = {}
        self._infeasible: set[tuple[TaskClass, int]] = set()

    def nominate(self, task: Task, without: Collection[int] = ()) -> int | None:
        """Pipeline the task on the node with the lowest cost and return it; None if there is none.

        It is none of the nodes in `without`.
        """
        costs = self._costs_for(task)
        skipped: list[tuple[Cost, int]] = []
        try:
            while (best := costs.lowest()) is not None:
                cost, index = best
                if (task.klass, index) in self._infeasible or index in without:
                    skipped.append(heapq.heappop(costs.heap))
                    continue
                victims = self._search.current_victims(costs, task, index)
                now = None if victims is None else cost_of(victims)
                if victims is None or now != cost:
                    costs.write(index, now)
                elif self._try(task, index, victims):
                    return index
                else:
                    self._infeasible.add((task.klass, index))
            return None
        finally:
            for entry in skipped:
                heapq.heappush(costs.heap, entry)

    def discard(self) -> None:
        """Restore the eviction costs after the statement was rolled back."""
        for costs, seen in self._before.items():
            costs.restore(seen)

    def _costs_for(self, task: Task) -> EvictionCosts:
        costs = self._search.costs(task)
        if costs not in self._before:
            if not self._statement.operations:  # nothing is tentative yet: these costs stay valid
                self._search.refresh(costs, task)
            self._before[costs] = costs.begin()
        self._search.refresh(costs, task)
        return costs

    def _try(self, task: Task, index: int, victims: list[Task]) -> bool:
        session, queue = self.session, self._job.queue
        assert queue is not None
        beside = nominated_beside_pods(session)
        with session.statement() as attempt:
            for victim in victims:
                attempt.evict(victim, self.rule.reason, self._job)
            # The node fits but the queue is at its limit: evict more tasks of the same queue.
            while session.allowance(queue, task, 1) == 0:
                more = self._of_same_queue(task, index)
                if not more:
                    return False
                attempt.evict(more[0], self.rule.reason, self._job)
                victims = [*victims, *more[:1]]
            fits = session.placer.fits(task, index, future=True) or (
                not victims and session.placer.fits(task, index)
            )
            if not fits:
                return False
            attempt.pipeline((task,), np.asarray([index]))
            if not keep_their_nodes(session, beside):
                return False
            if victims_would_retake(session, self.rule, [task], victims):
                return False
            self._statement.merge(attempt)
        return True

    def _of_same_queue(self, task: Task, index: int) -> list[Task]:
        rest = self._search.evictable(task, index)
        own = [v for v in rest if v.job is not None and v.job.queue is self._job.queue]
        return self._search.allowed(task, own)


def nominated_beside_pods(session: Session) -> list[Task]:
    """Return the nominated tasks that must be beside other pods, and are."""
    return [
        task
        for task in session.nominated_beside.values()
        if task.status == PIPELINED and keep_their_nodes(session, [task])
    ]


def keep_their_nodes(session: Session, nominated: Iterable[Task]) -> bool:
    """Tell whether the filters still allow tasks on the nodes for which they were nominated."""
    nodes, placer = session.cluster.nodes, session.placer
    return all(
        placer.feasible(task, future=True)[nodes[task.node_name].index] for task in nominated
    )


def victims_would_retake(
    session: Session, rule: EvictionRule, placed: Sequence[Task], victims: Sequence[Task]
) -> bool:
    """Tell whether a victim could, after the plan, evict the placed tasks by the same rule."""
    # Releasing and pending tasks count alike: a job that is not starving now will not be then.
    if not any(victim.job and session.job_starving(victim.job) for victim in victims):
        return False
    moved: list[tuple[Job, Task, Status]] = []
    for task, status in [*((v, PENDING) for v in victims), *((t, ALLOCATED) for t in placed)]:
        assert task.job is not None
        moved.append((task.job, task, task.status))
        task.job.move((task,), status)
    try:
        return any(_could_retake(session, rule, victim, placed) for victim in _distinct(victims))
    finally:
        for job, task, status in reversed(moved):
            job.move((task,), status)


def _could_retake(
    session: Session, rule: EvictionRule, victim: Task, placed: Sequence[Task]
) -> bool:
    job = victim.job
    if job is None or victim.preemption_policy == NEVER or not session.job_starving(job):
        return False
    if not rule.may_evict(victim):
        return False
    targets = [task for task in placed if task.is_preemptable and rule.may_preempt(victim, task)]
    return bool(targets) and any(rule.votes(session, victim, targets))


def _distinct(victims: Sequence[Task]) -> list[Task]:
    kinds: dict[tuple[int, TaskClass, int], Task] = {}
    for victim in victims:
        kinds.setdefault((id(victim.job), victim.klass, victim.priority), victim)
    return list(kinds.values())


def _remaining(shortfall: Sequence[tuple[int, float]], evicted: Sequence[Task]) -> bool:
    """Tell whether a shortfall remains once these tasks have terminated."""
    for row, lack in shortfall:
        for task in evicted:
            lack -= task.klass.amount(row)
        if lack >= EPSILON:
            return True
    return False


class FailedSearches:
    """Searches that failed while the session has the same version.

    A search for as many equal tasks, or more, is not repeated.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[tuple[Any, ...], tuple[int, int]] = {}

    def includes(self, tasks: Sequence[Task]) -> bool:
        """Tell whether a search for equal tasks failed that was at most as large."""
        version, count = self._known.get(_search_key(tasks), (-1, 0))
        return version == self._session.version and count <= _missing(tasks[0])

    def add(self, tasks: Sequence[Task]) -> None:
        """Record that a search failed."""
        self._known[_search_key(tasks)] = (self._session.version, _missing(tasks[0]))


def _search_key(tasks: Sequence[Task]) -> tuple[Any, ...]:
    """Return what a search depends on besides the cluster state and the number of tasks."""
    task = tasks[0]
    job = task.job
    assert job is not None
    held = job.claimed_r.tobytes()
    # Jobs with several kinds of tasks share no search: they may lack one kind more than the other.
    kinds = "" if all(other.klass is task.klass for other in tasks) else job.key
    own = (task.klass, task.group, task.priority, kinds)
    return (job.queue_name, job.priority, held, job.is_ready, *own)


def _missing(task: Task) -> int:
    """Return how many tasks the job lacks of its minimum; a job that has it takes one."""
    job = task.job
    assert job is not None
    return max(job.min_member - job.ready_count - job.waiting_count, 1)


__all__ = [
    "NEVER",
    "EvictionRule",
    "FailedSearches",
    "Preemption",
    "VictimSearch",
    "keep_their_nodes",
    "nominated_beside_pods",
    "victims_would_retake",
]
