"""Whom to ask to leave so that a task finds room: the fewest, and of those the cheapest.

Every node is an option with a cost: how many would have to go, how high their priority is, how
much they hold, how young they are. Victims are taken lowest rank first until the task fits, and
then every one who turns out not to be needed is spared. What the options cost is known from numbers
alone, and jobs that ask for the same share what was found; the one that is taken is tried for real,
in a statement, against every filter and the queue's limits, and does not count unless the task is
placed by it.

A victim that could at once take the room back by the same rule is no gain for anybody: such a plan
is refused, which is what makes evictions come to an end.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np

from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.answers import EvictionContext
from hekla.scheduler.framework.hooks import Hook
from hekla.scheduler.session.session import Session
from hekla.scheduler.session.statement import Statement
from hekla.scheduler.state.classes import TaskClass
from hekla.scheduler.state.dimensions import EPSILON, BoolArray
from hekla.scheduler.state.model import (
    ALLOCATED,
    BOUND,
    PENDING,
    RUNNING,
    Job,
    Status,
    Task,
)

NEVER: Final = "Never"

Cost: TypeAlias = tuple[int, int, float, float]


@dataclass(frozen=True, slots=True)
class EvictionRule:
    """Who may take from whom."""

    hook: Hook[BoolArray | None, Any, Sequence[Task]]
    reason: str
    may_preempt: Callable[[Task, Task], bool]
    """Whether a task (first) may take from another, before any plugin is asked."""
    protected: Callable[[Sequence[Task]], Iterable[bool]] | None = None
    """Of candidates in order, which must stay whatever the plugins say."""
    is_eligible: Callable[[Task], bool] | None = None
    """Whether a task may take from anybody at all."""
    statuses: tuple[Status, ...] = (BOUND, RUNNING)
    """Only who is in one of these can be told to leave."""
    kind: Literal["", "preempt", "reclaim"] = ""
    """By which right gangs leave as a whole; empty where tasks are asked one by one."""

    def votes(self, session: Session, task: Task, candidates: Sequence[Task]) -> list[bool]:
        """Which candidates the plugins let go for a task."""
        asking: Task | EvictionContext = task
        if self.kind and task.job is not None:
            asking = EvictionContext(self.kind, task.job)
        mask: list[bool] = session.tiers.victims(self.hook, asking, candidates).tolist()
        return mask


class EvictionCosts:
    """What it would cost to clear each node for one kind of task, as last looked at.

    While pods leave, plugins let fewer of the others go: prices rise, so an old one is a lower
    bound and is looked at again only when it is the lowest. A node on which something happened
    is priced anew. A plan that comes to nothing takes back what was written for it.
    """

    def __init__(self) -> None:
        self.heap: list[tuple[Cost, int]] = []
        self.known: dict[int, Cost] = {}
        self.seen = -1
        """How many of the session's changes it has taken in; -1 before the first look."""
        self._written: list[tuple[int, Cost | None]] = []

    def write(self, index: int, cost: Cost | None) -> None:
        """The price of a node, or None where no price will do."""
        old = self.known.get(index)
        if cost == old:
            return
        self._written.append((index, old))
        self._set(index, cost)

    def _set(self, index: int, cost: Cost | None) -> None:
        if cost is None:
            self.known.pop(index, None)
        else:
            self.known[index] = cost
            heapq.heappush(self.heap, (cost, index))

    def begin(self) -> int:
        """From here on remember what is written; the answer is for `take_back`."""
        self._written = []
        return self.seen

    def take_back(self, seen: int) -> None:
        for index, cost in reversed(self._written):
            self._set(index, cost)
        self._written, self.seen = [], seen

    def lowest(self) -> tuple[Cost, int] | None:
        while self.heap:
            cost, index = self.heap[0]
            if self.known.get(index) == cost:
                return cost, index
            heapq.heappop(self.heap)
        return None


class VictimSearch:
    """What one action knows of victims, shared by the jobs that look for them.

    Who ranks lowest is settled when the first job looks, and holds for the whole action.
    """

    is_simple: ClassVar[bool] = False
    """Look at every node for every task: slow, and what the shortcuts are tested against."""

    def __init__(self, session: Session, rule: EvictionRule) -> None:
        self.session = session
        self.rule = rule
        self.failed = FailedSearches(session)
        tiers = session.tiers
        self._has_relatives = tiers.has(hooks.victim_queue_order)
        self._has_more = tiers.has(hooks.fits_after_eviction)
        self._is_shared = all(plugin.victims_by_class for plugin, _ in tiers.calls(rule.hook))
        self._prices: dict[tuple[Any, ...], EvictionCosts] = {}
        self._ranks: dict[str, tuple[Any, ...]] | None = None
        self._candidates: dict[int, list[Task]] = {}

    def prices(self, task: Task) -> EvictionCosts:
        """The prices for tasks of a kind, or of a job where plugins tell its tasks from others'."""
        job = task.job
        assert job is not None
        key: tuple[Any, ...]
        key = (job.queue_name, job.priority, task.klass, task.group, task.priority)
        if not self._is_shared or job.count(BOUND, RUNNING):
            key = (*key, job.key)
        prices = self._prices.get(key)
        if prices is None or self.is_simple:
            prices = self._prices[key] = EvictionCosts()
        return prices

    def refresh(self, prices: EvictionCosts, task: Task) -> None:
        """Price every node on which something happened since the last look."""
        feasible_n = self.session.placer.feasible(task)
        changed = self.session.placer.changes.since(prices.seen)
        for index in np.flatnonzero(feasible_n).tolist() if changed is None else changed:
            victims = self.victims(task, index) if feasible_n[index] else None
            prices.write(index, None if victims is None else _cost(victims))
        prices.seen = len(self.session.placer.changes)

    def victims(self, task: Task, index: int) -> list[Task] | None:
        """Who must leave a node for the task to fit; nobody can if None."""
        shortfall = self._shortfall(task.klass, index)
        if shortfall is None:
            return None
        is_more = self._has_more and not self._fits_after(task, index, [[]])[0]
        if not shortfall and not is_more:
            return []
        candidates = self.evictable(task, index)
        if _remaining(shortfall, candidates):
            return None
        if is_more and not self._fits_after(task, index, [candidates])[0]:
            return None
        allowed = self.allowed(task, candidates)
        options: Iterable[list[Task]] = (allowed[:count] for count in range(1, len(allowed) + 1))
        if is_more:
            # It may be in one place, as on a card: one who has all of it goes before several.
            tried = [*([victim] for victim in allowed), *options]
            options = compress(tried, self._fits_after(task, index, tried))
        chosen = next((option for option in options if not _remaining(shortfall, option)), None)
        if chosen is None:
            return None
        for victim in reversed(chosen[:]):  # spare who is not needed; of two, the lower rank goes
            others = [other for other in chosen if other is not victim]
            if _remaining(shortfall, others) or (
                is_more and not self._fits_after(task, index, [others])[0]
            ):
                continue
            chosen = others
        return chosen

    def _shortfall(self, klass: TaskClass, index: int) -> list[tuple[int, float]] | None:
        """What a node will be short of for a task; None for what no node has."""
        columns = self.session.columns
        shortfall: list[tuple[int, float]] = []
        for row, amount in zip(klass.rows, klass.amounts, strict=True):
            if row >= columns.idle_rn.shape[0]:
                return None
            room = columns.idle_rn[row, index] + columns.releasing_rn[row, index]
            lack = amount - float(room - columns.pipelined_rn[row, index])
            if lack >= EPSILON:
                shortfall.append((row, lack))
        return shortfall

    def _fits_after(self, task: Task, index: int, options: Sequence[Sequence[Task]]) -> list[bool]:
        """After which of several departures the plugins would let the task in."""
        found = self.session.tiers.fits_after_eviction(task, index, options)
        return [True] * len(options) if found is None else found.tolist()

    def evictable(self, task: Task, index: int) -> list[Task]:
        """Who could be asked to leave a node for the task, the lowest rank first."""
        statuses, may_preempt = self.rule.statuses, self.rule.may_preempt
        return [
            other
            for other in self._ranked(index)
            if other.status in statuses and may_preempt(task, other)
        ]

    def allowed(self, task: Task, candidates: list[Task]) -> list[Task]:
        """Those of the candidates whom the plugins let go."""
        tiers = self.session.tiers
        if self._has_relatives and task.job is not None:
            queue = task.job.queue
            candidates.sort(
                key=lambda victim: tiers.order_key(
                    hooks.victim_queue_order,
                    None if victim.job is None else victim.job.queue,
                    queue,
                )
            )
        votes = self.rule.votes(self.session, task, candidates)
        allowed = [victim for victim, vote in zip(candidates, votes, strict=True) if vote]
        if self.rule.protected is None:
            return allowed
        stays = self.rule.protected(allowed)
        return [victim for victim, must in zip(allowed, stays, strict=True) if not must]

    def _ranked(self, index: int) -> list[Task]:
        """All on a node who can be told to leave, the lowest rank first."""
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
        """Sorts the one that would be served first to the front."""
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
    """The search for room for tasks of one job, within one statement."""

    def __init__(self, search: VictimSearch, statement: Statement, job: Job) -> None:
        self._search = search
        self._session = search.session
        self._statement = statement
        self._job = job
        self._rule = search.rule
        self._before: dict[EvictionCosts, int] = {}
        self._hopeless: set[tuple[TaskClass, int]] = set()

    def nominate(self, task: Task) -> bool:
        """Promise the task a node, telling others to leave it if need be."""
        prices = self._prices(task)
        passed_over: list[tuple[Cost, int]] = []
        try:
            while (best := prices.lowest()) is not None:
                cost, index = best
                if (task.klass, index) in self._hopeless:
                    passed_over.append(heapq.heappop(prices.heap))
                    continue
                victims = self._search.victims(task, index)
                now = None if victims is None else _cost(victims)
                if victims is None or now != cost:
                    prices.write(index, now)
                elif self._try(task, index, victims):
                    return True
                else:
                    self._hopeless.add((task.klass, index))
            return False
        finally:
            for entry in passed_over:
                heapq.heappush(prices.heap, entry)

    def discard(self) -> None:
        """The statement was rolled back: what was noted on the way does not hold."""
        for prices, seen in self._before.items():
            prices.take_back(seen)

    def _prices(self, task: Task) -> EvictionCosts:
        prices = self._search.prices(task)
        if prices not in self._before:
            if not self._statement.operations:  # nothing tentative yet: these prices will hold
                self._search.refresh(prices, task)
            self._before[prices] = prices.begin()
        self._search.refresh(prices, task)
        return prices

    def _try(self, task: Task, index: int, victims: list[Task]) -> bool:
        session, queue = self._session, self._job.queue
        assert queue is not None
        with session.statement() as attempt:
            for victim in victims:
                attempt.evict(victim, self._rule.reason)
            # The queue may lack share where the node has room: then more of its own must go.
            while session.allowance(queue, task, 1) == 0:
                more = self._of_own_queue(task, index)
                if not more:
                    return False
                attempt.evict(more[0], self._rule.reason)
                victims = [*victims, *more[:1]]
            fits = session.placer.fits(task, index, future=True) or (
                not victims and session.placer.fits(task, index)
            )
            if not fits:
                return False
            attempt.pipeline((task,), np.asarray([index]))
            if victims_would_retake(session, self._rule, [task], victims):
                return False
            self._statement.merge(attempt)
        return True

    def _of_own_queue(self, task: Task, index: int) -> list[Task]:
        rest = self._search.evictable(task, index)
        own = [v for v in rest if v.job is not None and v.job.queue is self._job.queue]
        return self._search.allowed(task, own)


def victims_would_retake(
    session: Session, rule: EvictionRule, placed: Sequence[Task], victims: Sequence[Task]
) -> bool:
    """Whether, once all has happened, a victim could take the room back by the same rule."""
    # Who leaves counts for as little as who waits: a job that does not starve now will not then.
    if not any(victim.job and session.job_starving(victim.job) for victim in victims):
        return False
    moved: list[tuple[Job, Task, Status]] = []
    for task, status in [*((v, PENDING) for v in victims), *((t, ALLOCATED) for t in placed)]:
        assert task.job is not None
        moved.append((task.job, task, task.status))
        task.job.move((task,), status)
    try:
        return any(
            _could_retake(session, rule, victim, placed) for victim in _one_per_kind(victims)
        )
    finally:
        for job, task, status in reversed(moved):
            job.move((task,), status)


def _could_retake(
    session: Session, rule: EvictionRule, victim: Task, placed: Sequence[Task]
) -> bool:
    job = victim.job
    if job is None or victim.preemption_policy == NEVER or not session.job_starving(job):
        return False
    if rule.is_eligible is not None and not rule.is_eligible(victim):
        return False
    targets = [task for task in placed if task.is_preemptable and rule.may_preempt(victim, task)]
    return bool(targets) and any(rule.votes(session, victim, targets))


def _one_per_kind(victims: Sequence[Task]) -> list[Task]:
    kinds: dict[tuple[int, TaskClass, int], Task] = {}
    for victim in victims:
        kinds.setdefault((id(victim.job), victim.klass, victim.priority), victim)
    return list(kinds.values())


def _cost(victims: Sequence[Task]) -> Cost:
    if not victims:
        return (0, 0, 0.0, 0.0)
    highest = max(max(v.priority, v.job.priority if v.job else 0) for v in victims)
    held = sum(sum(victim.klass.amounts) for victim in victims)
    return (len(victims), highest, held, -min(victim.created for victim in victims))


def _remaining(shortfall: Sequence[tuple[int, float]], leaving: Sequence[Task]) -> bool:
    """Whether something is still missing when these have left."""
    for row, lack in shortfall:
        for task in leaving:
            lack -= task.klass.amount(row)
        if lack >= EPSILON:
            return True
    return False


class FailedSearches:
    """What was tried in vain and need not be tried again until something changes."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[tuple[Any, ...], int] = {}

    def known(self, task: Task) -> bool:
        return self._known.get(_situation(task)) == self._session.version

    def add(self, task: Task) -> None:
        self._known[_situation(task)] = self._session.version


def _situation(task: Task) -> tuple[Any, ...]:
    """All that an answer can depend on, besides the state of the cluster."""
    job = task.job
    assert job is not None
    held = job.claimed_r.tobytes()
    return (job.queue_name, job.priority, held, task.klass, task.group, task.priority, job.is_ready)


__all__ = [
    "NEVER",
    "EvictionRule",
    "FailedSearches",
    "Preemption",
    "VictimSearch",
    "victims_would_retake",
]
