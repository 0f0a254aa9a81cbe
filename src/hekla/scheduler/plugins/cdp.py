"""cdp: a pod that was just scheduled is left alone for the time it asked for.

Without it a pod that is evicted, made anew and placed can be evicted again at once, and never gets
anywhere. The time runs from when the pod was scheduled: `volcano.sh/cooldown-time: 10m`, as a label
or an annotation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hekla.scheduler.dimensions import BoolArray
from hekla.scheduler.model import RUNNING, Task
from hekla.scheduler.plugin import Plugin

if TYPE_CHECKING:
    from hekla.scheduler.session import Session


class Cdp(Plugin, name="cdp"):
    """Spares running pods within their cool-down; whoever waits for one is looked at again then."""

    votes_by_kind: ClassVar[bool] = True
    protects: ClassVar[bool] = True

    def open(self, session: Session) -> None:
        self._session = session

    def preemptable(self, task: Task, candidates: Sequence[Task]) -> BoolArray:
        return self._rested(candidates)

    def reclaimable(self, task: Task, candidates: Sequence[Task]) -> BoolArray:
        return self._rested(candidates)

    def unified_evictable(self, context: object, candidates: Sequence[Task]) -> BoolArray:
        return self._rested(candidates)

    def _rested(self, candidates: Sequence[Task]) -> BoolArray:
        now = self._session.now
        for task in candidates:
            if task.status == RUNNING and task.cooldown_end > now:
                self._session.wake(task.cooldown_end)
        return np.asarray(
            [task.status != RUNNING or task.cooldown_end <= now for task in candidates], dtype=bool
        )
