"""cdp: cooldown protection. A pod is not evicted for some time after it was scheduled.

Without it, a pod that was evicted, created again and placed can be evicted again at once. The
cooldown starts when the pod is scheduled: `volcano.sh/cooldown-time: 10m`, as label or annotation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hekla.scheduler.framework.answers import EvictionContext
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.state.dimensions import BoolArray
from hekla.scheduler.state.model import Job, Task
from hekla.scheduler.state.status import RUNNING
from hekla.units.timestamps import format_time

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session

_FAR = 253_402_300_799.0
"""The latest time that can be formatted."""


class Cdp(Plugin, name="cdp"):
    """Protects running pods during their cooldown, and requests a cycle at its end."""

    victims_by_class: ClassVar[bool] = True
    protects: ClassVar[bool] = True

    def open(self, session: Session) -> None:
        self._session = session
        self._until: dict[tuple[str, int], float] = {}
        """The end of the first cooldown by kind of preemptor."""

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
        return (
            f"pods that it could preempt are in their cooldown, the first until {_shown(until)}",
        )


def _kind(job: Job) -> tuple[str, int]:
    return (job.queue_name, job.priority)


def _may_take(asks: Job, other: Job) -> bool:
    """Tell whether only the cooldown protects a job's pods from a preemptor."""
    return other.queue_name != asks.queue_name or other.priority < asks.priority


def _shown(until: float) -> str:
    return format_time(min(until, _FAR))
