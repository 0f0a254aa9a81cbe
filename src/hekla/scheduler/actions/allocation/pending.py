"""Pending tasks of a job, grouped into tasks that are placed together."""

from __future__ import annotations

from collections.abc import Iterable

from hekla.scheduler.state.classes import TaskClass
from hekla.scheduler.state.model import Job, Task
from hekla.scheduler.state.status import PENDING


def pending_tasks(job: Job) -> list[Task]:
    """Return the pending tasks that allocate places: not gated, not BestEffort."""
    return [
        task
        for task in job.by_status[PENDING].values()
        if not task.is_gated and not task.is_best_effort
    ]


def group_equal(tasks: Iterable[Task], *, split_nominated: bool = False) -> list[list[Task]]:
    """Return tasks of one job in groups of equal class, role and labels.

    With `split_nominated`, a task with a nominated node is a group of its own.
    """
    groups: dict[tuple[TaskClass, str, int, str], list[Task]] = {}
    for task in tasks:
        own = task.uid if split_nominated and task.nominated_node else ""
        groups.setdefault((task.klass, task.role, id(task.group), own), []).append(task)
    return list(groups.values())
