"""Whom to ask to leave so that a task finds room: the fewest, and of those the cheapest.

Every node is an option with a cost: how many would have to go, how high their priority is, how
much they hold, how young they are. Victims are taken worst first until the task fits, and then
every one who turns out not to be needed is spared. What the options cost is known from numbers
alone; the one that is taken is tried for real, in a statement, against every filter and the queue's
limits, and does not count unless the task is placed by it.

A victim that could at once take the room back by the same rule is no gain for anybody: such a plan
is refused, which is what makes evictions come to an end.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from hekla.scheduler.classes import TaskClass
from hekla.scheduler.dimensions import EPSILON
from hekla.scheduler.model import (
    ALLOCATED,
    BOUND,
    PENDING,
    RUNNING,
    Job,
    Status,
    Task,
)
from hekla.scheduler.session import Session
from hekla.scheduler.statement import Statement

NEVER: Final = "Never"

Cost: TypeAlias = tuple[int, int, float, float]


@dataclass(frozen=True, slots=True)
class Rule:
    """Who may take from whom."""

    hook: str
    reason: str
    may_take: Callable[[Task, Task], bool]
    """Whether a task (first) may take from another, before any plugin is asked."""
    must_stay: Callable[[Sequence[Task]], Iterable[bool]] | None = None
    """Of candidates in order, which must stay whatever the plugins say."""
    may_try: Callable[[Task], bool] | None = None
    """Whether a task may take from anybody at all."""
    statuses: tuple[Status, ...] = (BOUND, RUNNING)
    """Only who is in one of these can be told to leave."""


class Hunt:
    """The search for room for tasks of one job, within one statement."""

    def __init__(self, session: Session, statement: Statement, job: Job, rule: Rule) -> None:
        self._session = session
        self._statement = statement
        self._job = job
        self._rule = rule
        self._options: dict[TaskClass, list[tuple[Cost, int]]] = {}
        self._keys: dict[str, tuple[Any, ...]] = {}

    def make_room(self, task: Task) -> bool:
        """Promise the task a node, telling others to leave it if need be."""
        options = self._options.get(task.klass)
        if options is None:
            options = self._options[task.klass] = self._all_options(task)
        while options:
            cost, index = heapq.heappop(options)
            victims = self._victims(task, index)
            if victims is None:
                continue
            now = _cost(victims)
            if now > cost:  # somebody it counted on has gone meanwhile
                heapq.heappush(options, (now, index))
            elif self._try(task, index, victims):
                heapq.heappush(options, (now, index))
                return True
        return False

    def _all_options(self, task: Task) -> list[tuple[Cost, int]]:
        found = []
        for index in np.flatnonzero(self._session.passing(task)).tolist():
            victims = self._victims(task, index)
            if victims is not None:
                found.append((_cost(victims), index))
        heapq.heapify(found)
        return found

    def _try(self, task: Task, index: int, victims: list[Task]) -> bool:
        session, queue = self._session, self._job.queue
        assert queue is not None
        name = session.cluster.node_list[index].name
        with session.statement() as attempt:
            for victim in victims:
                attempt.evict(victim, self._rule.reason)
            # The queue may lack share where the node has room: then more of its own must go.
            while session.allowance(queue, task, 1) == 0:
                rest = [v for v in self._leavable(task, index) if v.job and v.job.queue is queue]
                more = self._allowed(task, rest)[:1]
                if not more:
                    return False
                attempt.evict(more[0], self._rule.reason)
                victims = [*victims, *more]
            place = session.places(task, 1, future=True, only=name)
            if len(place) == 0 and not victims:
                place = session.places(task, 1, only=name)
            if len(place) == 0:
                return False
            attempt.pipeline((task,), place)
            if comes_back(session, self._rule, [task], victims):
                return False
            self._statement.absorb(attempt)
        return True

    def _victims(self, task: Task, index: int) -> list[Task] | None:
        """Who must leave a node for the task to fit; nobody can if None."""
        columns, klass = self._session.columns, task.klass
        lacks: dict[int, float] = {}
        for row, amount in zip(klass.rows, klass.amounts, strict=True):
            if row >= columns.idle_rn.shape[0]:
                return None
            room = columns.idle_rn[row, index] + columns.releasing_rn[row, index]
            lack = amount - float(room - columns.pipelined_rn[row, index])
            if lack >= EPSILON:
                lacks[row] = lack
        if not lacks:
            return []
        candidates = self._leavable(task, index)
        if _remaining(lacks, candidates):
            return None
        allowed = self._allowed(task, candidates)
        chosen: list[Task] = []
        for victim in allowed:
            if not _remaining(lacks, chosen):
                break
            chosen.append(victim)
        if _remaining(lacks, chosen):
            return None
        for victim in reversed(chosen[:]):
            others = [other for other in chosen if other is not victim]
            if not _remaining(lacks, others):
                chosen = others
        return chosen

    def _leavable(self, task: Task, index: int) -> list[Task]:
        return [
            other
            for other in self._session.cluster.node_list[index].tasks.values()
            if other.status in self._rule.statuses
            and other.job is not None
            and other.is_preemptable
            and other.uid not in self._session.cluster.unevictable
            and self._rule.may_take(task, other)
        ]

    def _allowed(self, task: Task, candidates: list[Task]) -> list[Task]:
        ordered = sorted(candidates, key=self._worth, reverse=True)
        tiers, queue = self._session.tiers, self._job.queue
        if tiers.has("victim_queue_order"):
            ordered.sort(
                key=lambda victim: tiers.order_key(
                    "victim_queue_order", (victim.job and victim.job.queue, queue)
                )
            )
        votes = tiers.victims(self._rule.hook, task, ordered).tolist()
        allowed = [victim for victim, vote in zip(ordered, votes, strict=True) if vote]
        if self._rule.must_stay is None:
            return allowed
        stays = self._rule.must_stay(allowed)
        return [victim for victim, must in zip(allowed, stays, strict=True) if not must]

    def _worth(self, victim: Task) -> tuple[Any, ...]:
        """Sorts the one that would be served first to the front."""
        job, session = victim.job, self._session
        assert job is not None
        known = self._keys.get(job.key)
        if known is None:
            queue_key = session.queue_key(job.queue) if job.queue is not None else ()
            known = self._keys[job.key] = (queue_key, session.job_key(job))
        return (*known, session.tiers.order_key("task_order", victim), victim.order)


def comes_back(
    session: Session, rule: Rule, placed: Sequence[Task], victims: Sequence[Task]
) -> bool:
    """Whether, once all has happened, a victim could take the room back by the same rule."""
    moved: list[tuple[Job, Task, int]] = []
    for task, status in [*((v, PENDING) for v in victims), *((t, ALLOCATED) for t in placed)]:
        assert task.job is not None
        moved.append((task.job, task, task.status))
        task.job.move((task,), status)
    try:
        return any(_could_take(session, rule, victim, placed) for victim in _one_per_kind(victims))
    finally:
        for job, task, status in reversed(moved):
            job.move((task,), status)


def _could_take(session: Session, rule: Rule, victim: Task, placed: Sequence[Task]) -> bool:
    job = victim.job
    if job is None or victim.preemption_policy == NEVER or not session.job_starving(job):
        return False
    if rule.may_try is not None and not rule.may_try(victim):
        return False
    targets = [task for task in placed if task.is_preemptable and rule.may_take(victim, task)]
    return bool(targets) and bool(session.tiers.victims(rule.hook, victim, targets).any())


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


def _remaining(lacks: dict[int, float], leaving: Sequence[Task]) -> bool:
    """Whether something is still missing when these have left."""
    return any(
        lack - sum(float(task.klass.request_r[row]) for task in leaving) >= EPSILON
        for row, lack in lacks.items()
    )


class Failures:
    """What was tried in vain and need not be tried again until something changes."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[tuple[Any, ...], int] = {}

    def known(self, task: Task) -> bool:
        return self._known.get(_situation(task)) == self._session.stamp

    def add(self, task: Task) -> None:
        self._known[_situation(task)] = self._session.stamp


def _situation(task: Task) -> tuple[Any, ...]:
    """All that an answer can depend on, besides the state of the cluster."""
    job = task.job
    assert job is not None
    held = job.claimed_r.tobytes()
    return (job.queue_name, job.priority, held, task.klass, task.group, task.priority, job.is_ready)


__all__ = ["NEVER", "Failures", "Hunt", "Rule", "comes_back"]
