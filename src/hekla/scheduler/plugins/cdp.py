"""cdp: a pod that was just scheduled is left alone for the time it asked for.

Without it a pod that is evicted, made anew and placed can be evicted again at once, and never gets
anywhere. The time runs from when the pod was scheduled: `volcano.sh/cooldown-time: 10m`, as a label
or an annotation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hekla.scheduler.framework.answers import EvictionContext
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.state.dimensions import BoolArray
from hekla.scheduler.state.model import RUNNING, Job, Task
from hekla.units.timestamps import format_time

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session

_FAR = 253_402_300_799.0
"""The last second that can be written."""


class Cdp(Plugin, name="cdp"):
    """Spares running pods within their cool-down; whoever waits for one is looked at again then."""

    victims_by_class: ClassVar[bool] = True
    protects: ClassVar[bool] = True

    def open(self, session: Session) -> None:
        self._session = session
        self._until: dict[tuple[str, int], float] = {}
        """When the first is to be had whom a kind of job could do with."""

    def preemptable(self, task: Task, candidates: Sequence[Task]) -> BoolArray:
        return self._rested(task.job, candidates)

    def reclaimable(self, task: Task, candidates: Sequence[Task]) -> BoolArray:
        return self._rested(task.job, candidates)

    def unified_evictable(
        self, context: EvictionContext | None, candidates: Sequence[Task]
    ) -> BoolArray:
        return self._rested(None if context is None else context.job, candidates)

    def _rested(self, asks: Job | None, candidates: Sequence[Task]) -> BoolArray:
        now = self._session.now
        for task in candidates:
            if task.status == RUNNING and task.cooldown_end > now:
                self._session.wake(task.cooldown_end)
                if asks is not None and task.job is not None and _may_take(asks, task.job):
                    until = self._until.get(_kind(asks), task.cooldown_end)
                    self._until[_kind(asks)] = min(until, task.cooldown_end)
        return np.asarray(
            [task.status != RUNNING or task.cooldown_end <= now for task in candidates], dtype=bool
        )

    def protection_notes(self, job: Job) -> tuple[str, ...]:
        until = self._until.get(_kind(job))
        if until is None:
            return ()
        return (f"pods that it could take room from cool down, the first until {_shown(until)}",)


def _kind(job: Job) -> tuple[str, int]:
    return (job.queue_name, job.priority)


def _may_take(asks: Job, other: Job) -> bool:
    """Whether it is only for its cool-down that a job's pods stay."""
    return other.queue_name != asks.queue_name or other.priority < asks.priority


def _shown(until: float) -> str:
    return format_time(min(until, _FAR))
