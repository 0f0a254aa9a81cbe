"""rescheduling: evict pods from overloaded nodes if they fit on another node.

The action `shuffle` performs the evictions, at most once per `interval`. The only strategy is
Volcano's `lowNodeUtilization`: pods are evicted from nodes above `targetThresholds`, the least
important first, as long as nodes below `thresholds` can take them. The controller of a pod creates
it again, and it is scheduled like any other pod. Configure `usage` too, or it may return to its
node.

Volcano evicts without checking for a target. Here each victim has a target node that passes all
filters, has the resources, and stays below the target threshold; these resources are then reserved.
Gangs keep their minimum, and plugins that protect pods (conformance, pdb, cdp) are called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import numpy as np

from hekla.scheduler.errors import PluginError
from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.arguments import Key, duration_s
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.framework.tiers import FAILED
from hekla.scheduler.plugins.rescheduling.balance import CRITICAL, Balance, Thresholds, weight_of
from hekla.scheduler.session.reservations import Reservation
from hekla.scheduler.session.session import Session
from hekla.scheduler.session.statement import Statement
from hekla.scheduler.state.dimensions import EPSILON, BoolArray, IntArray
from hekla.scheduler.state.model import Job, Task
from hekla.scheduler.state.status import RUNNING

STRATEGY: Final = "lowNodeUtilization"
MAX_MOVES: Final = 100
"""The most evictions per interval. The effect of the first ones is not measured yet."""
MAX_LOOKED_AT: Final = 5000
SHORTEST_S: Final = 10.0
_BUILT_IN: Final = {CRITICAL: 2_000_000_000, "system-node-critical": 2_000_001_000}


class Rescheduling(Plugin, name="rescheduling"):
    """Selects victims on overloaded nodes."""

    interval: Annotated[str, Key("interval")] = "5m"
    metrics_period: Annotated[str, Key("metricsPeriod")] = "5m"
    """The period of mean loads. If it exceeds the interval, one peak moves pods twice."""
    strategies: Annotated[list[Any], Key("strategies")] = []  # noqa: RUF012

    _thresholds = Thresholds()
    _interval_s = 300.0
    load_period_s = 300

    def configure(self, raw: Mapping[str, Any], switches: Mapping[str, bool]) -> None:
        super().configure(raw, switches)
        self._interval_s = _seconds("interval", self.interval, SHORTEST_S, 24 * 3600.0)
        self.load_period_s = int(_seconds("metricsPeriod", self.metrics_period, 60.0, 3600.0))
        if self.strategies:
            self._thresholds = _strategy(self.strategies)

    def open(self, session: Session) -> None:
        self._session = session

    def victim_tasks(self, tasks: Sequence[Task]) -> BoolArray | None:
        session = self._session
        due_at = session.cluster.rescheduled_at + self._interval_s
        if session.cluster.rescheduled_at <= session.now < due_at:
            session.wake(due_at)
            return None
        loads = session.cluster.node_table.loads(self.load_period_s)
        fresh_n = loads.is_fresh(session.now)
        if not fresh_n.any():
            return None  # the next reading starts a cycle
        session.plan.rescheduled_at = session.now
        session.wake(session.now + self._interval_s)
        balance = Balance(session.columns, loads, fresh_n, self._thresholds)
        if not balance.low_n.any() or not balance.high_n.any():
            return None
        chosen = self._chosen(balance, self._candidates(tasks))
        return np.asarray([task.uid in chosen for task in tasks], dtype=bool)

    # --- candidates ---------------------------------------------------------------------------

    def _candidates(self, tasks: Sequence[Task]) -> dict[int, list[Task]]:
        """Return the evictable tasks by column, the least important first."""
        bound = self._priority_bound()
        found: dict[int, list[Task]] = {}
        nodes = self._session.cluster.nodes
        for task in tasks:
            node = nodes.get(task.node_name)
            is_low = task.klass.priority is None or task.klass.priority < bound
            if task.status != RUNNING:
                continue  # it does not cause the load
            if node is not None and node.is_known and task.is_preemptable and is_low:
                found.setdefault(node.index, []).append(task)
        for each in found.values():
            each.sort(key=_importance)
        return found

    def _priority_bound(self) -> int:
        name = self._thresholds.priority_class
        found = self._session.cluster.job_table.priority_of_class(name)
        if found is None:
            found = _BUILT_IN.get(name)
        if found is None:
            raise PluginError(
                f"PriorityClass {name!r} does not exist; create it, or change "
                "thresholdPriorityClassName. Nobody is moved meanwhile"
            )
        return found

    def _may_go(self, task: Task) -> bool:
        """Tell whether no plugin protects the task, after the victims chosen before it."""
        tiers = self._session.tiers
        for call in tiers.calls(hooks.unified_evictable):
            if call[0].protects:
                mask = tiers.call(call, hooks.unified_evictable, None, [task])
                if mask is FAILED or (mask is not None and not mask[0]):
                    return False
        return True

    # --- victims ------------------------------------------------------------------------------

    def _chosen(self, balance: Balance, candidates: Mapping[int, list[Task]]) -> set[str]:
        """Return the uids of victims. The trial is rolled back: `shuffle` evicts them."""
        hopeless: set[tuple[Any, ...]] = set()
        with self._session.statement() as trial:
            for source, task in self._in_turn(balance, candidates):
                kind = (task.klass, task.group, task.job, task.role)
                if kind in hopeless or not _helps(balance, task, source) or not self._may_go(task):
                    continue
                target = self._place(balance, task)
                if target is None:
                    hopeless.add(kind)
                elif self._leaves(trial, task):
                    self._take_room(task, target)
                    balance.move(task.klass, source, target)
            return {task.uid for task in trial.evicted}

    def _in_turn(
        self, balance: Balance, candidates: Mapping[int, list[Task]]
    ) -> Iterator[tuple[int, Task]]:
        """Yield tasks of the busiest node, then of the next, while each is overloaded."""
        looked_at = 0
        gone_before = len(self._session.evicted())
        for source in balance.busiest_first():
            for task in candidates.get(source, ()):
                if not balance.over(source).any():
                    break
                looked_at += 1
                moves = len(self._session.evicted()) - gone_before
                if looked_at > MAX_LOOKED_AT or moves >= MAX_MOVES:
                    return
                yield source, task

    def _place(self, balance: Balance, task: Task) -> int | None:
        """Return a node that takes the task now without being overloaded."""
        takers: IntArray = np.flatnonzero(balance.takers(task.klass))
        if not self._thresholds.node_fit:
            takers = self._with_room(task, takers)
        elif len(takers):
            with self._session.placer.restrict_to(takers):
                takers = self._session.placer.best_nodes(task, 1)
        return int(takers[0]) if len(takers) else None

    def _with_room(self, task: Task, index: IntArray) -> IntArray:
        columns = self._session.columns
        fits_n = columns.pods_n[index] < columns.max_pods_n[index]
        for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
            idle_n = np.minimum(columns.idle_rn[row, index], columns.future_idle(row, index))
            fits_n &= idle_n + EPSILON > amount
        return index[fits_n]

    def _leaves(self, trial: Statement, task: Task) -> bool:
        """Evict tentatively; undone if the job would fall below its minimum."""
        with self._session.statement() as one:
            one.evict(task, STRATEGY)
            if task.job is None or not _is_whole(task.job):
                return False
            trial.merge(one)
            return True

    def _take_room(self, task: Task, target: int) -> None:
        assert task.job is not None
        self._session.reservations.add([Reservation(task.job, task.klass, target, 1)])
        self._session.columns.pods_n[target] += 1


def _is_whole(job: Job) -> bool:
    """Tell whether enough members are placed, pending ones not counted."""
    return job.ready_count >= job.min_member and not job.short_roles() and not job.short_policies()


def _helps(balance: Balance, task: Task, source: int) -> bool:
    """Tell whether evicting the task reduces an overloaded dimension."""
    return bool((balance.over(source) & (weight_of(task.klass) > 0)).any())


def _importance(task: Task) -> tuple[Any, ...]:
    priority = task.klass.priority
    return (priority is not None, priority or 0, task.klass.qos, task.order, task.key)


def _strategy(given: Sequence[Any]) -> Thresholds:
    found: Thresholds | None = None
    for one in given:
        if not isinstance(one, Mapping) or not isinstance(one.get("name"), str):
            raise PluginError(f"strategies must be a list of maps with a name, like {STRATEGY}")
        if one["name"] != STRATEGY:
            raise PluginError(f"strategies has {one['name']!r}; there is only {STRATEGY}")
        if found is not None:
            raise PluginError(f"strategies has {STRATEGY} twice; keep one of them")
        for key in one:
            if key not in ("name", "params"):
                raise PluginError(f"strategies: {STRATEGY} has {key!r}; write params")
        params = one.get("params") or {}
        if not isinstance(params, Mapping):
            raise PluginError(f"strategies: params of {STRATEGY} must be a map")
        found = Thresholds.parse(params)
    assert found is not None
    return found


def _seconds(key: str, text: str, least_s: float, most_s: float) -> float:
    found_s = duration_s(key, text)
    if not least_s <= found_s <= most_s:
        raise PluginError(f"{key} must be from {least_s:g}s to {most_s:g}s, and {text!r} is not")
    return found_s
