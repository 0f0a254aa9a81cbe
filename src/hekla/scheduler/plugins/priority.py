"""priority: higher priority comes first, and may preempt lower priority."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from hekla.scheduler.framework.answers import EvictionContext
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.state.dimensions import BoolArray
from hekla.scheduler.state.model import Job, Task


class Priority(Plugin, name="priority"):
    """Orders jobs by the value of their PriorityClass, and tasks by that of their pod."""

    victims_by_class: ClassVar[bool] = True

    def job_order(self, job: Job) -> int:
        return -job.priority

    def task_order(self, task: Task) -> int:
        return -task.priority

    def job_starving(self, job: Job) -> bool:
        return job.ready_count + job.waiting_count < len(job.tasks)

    def preemptable(self, task: Task, candidates: Sequence[Task]) -> BoolArray:
        own = task.job.priority if task.job is not None else task.priority
        return np.asarray(
            [
                victim.priority < task.priority
                if victim.job is task.job
                else victim.job is not None and victim.job.priority < own
                for victim in candidates
            ],
            dtype=bool,
        )

    def unified_evictable(self, context: EvictionContext, candidates: Sequence[Task]) -> BoolArray:
        """Allow gangs of lower priority for preemption; priority does not matter for reclaim."""
        if context.kind == "reclaim":
            return np.ones(len(candidates), dtype=bool)
        own = context.job.priority
        lower = [victim.job is not None and victim.job.priority < own for victim in candidates]
        return np.asarray(lower, dtype=bool)
