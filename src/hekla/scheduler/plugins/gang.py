"""gang: place at least the minimum of a job's members, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from hekla.scheduler.framework.answers import PERMIT, REJECT, Invalid, Vote
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.state.dimensions import BoolArray
from hekla.scheduler.state.model import Job, Task
from hekla.scheduler.state.status import BOUND, RUNNING


class Gang(Plugin, name="gang"):
    """A job starts with its minimum of members, and keeps the minimum when others preempt."""

    victims_by_class: ClassVar[bool] = True

    def job_valid(self, job: Job) -> Invalid | None:
        short = job.short_roles(valid=True)
        if short:
            return Invalid(
                "NotEnoughPodsOfTask",
                f"not enough pods of task {short[0]!r}: {job.role_count(short[0], *range(10))} "
                f"exist, {job.min_task_member[short[0]]} are needed",
            )
        lacking = job.short_policies(valid=True)
        if lacking:
            return Invalid(
                "NotEnoughSubGroups",
                f"not enough sub-groups of policy {lacking[0].name!r}: "
                f"{lacking[0].least} are needed",
            )
        if job.valid_count < job.min_member:
            return Invalid(
                "NotEnoughTasks",
                f"not enough pods: {job.valid_count} of the {job.min_member} needed exist",
            )
        return None

    def job_order(self, job: Job) -> int:
        """Sort started jobs that lost members first, then pending ones, then ready ones.

        Volcano has no such order: after a node failure, drf prefers new jobs to the repair of a
        gang, which holds its other members in vain.
        """
        if job.is_ready:
            return 2
        return 0 if job.by_status[RUNNING] or job.by_status[BOUND] else 1

    def job_ready(self, job: Job) -> bool:
        return job.is_ready and not job.short_roles() and not job.short_policies()

    def job_pipelined(self, job: Job) -> Vote:
        enough = (
            job.is_pipelined
            and not job.short_roles(pipelined=True)
            and not job.short_policies(pipelined=True)
        )
        return PERMIT if enough else REJECT

    def job_starving(self, job: Job) -> bool:
        return job.is_starving

    def preemptable(self, task: Task, candidates: Sequence[Task]) -> BoolArray:
        return self._surplus(candidates)

    def reclaimable(self, task: Task, candidates: Sequence[Task]) -> BoolArray:
        return self._surplus(candidates)

    def unified_evictable(self, context: object, candidates: Sequence[Task]) -> BoolArray:
        return np.ones(len(candidates), dtype=bool)  # victim sets keep gangs whole

    def _surplus(self, candidates: Sequence[Task]) -> BoolArray:
        """Return which candidates a job can lose without falling below its minimum."""
        left: dict[str, int] = {}
        out = np.zeros(len(candidates), dtype=bool)
        for i, task in enumerate(candidates):
            if task.job is None:
                continue
            have = left.setdefault(task.job.key, task.job.ready_count)
            if have > task.job.min_member:
                left[task.job.key] = have - 1
                out[i] = True
        return out
