"""Who waits to be placed, and who of them can be placed together."""

from __future__ import annotations

from collections.abc import Iterable

from hekla.scheduler.state.classes import TaskClass
from hekla.scheduler.state.model import PENDING, Job, Task


def pending_tasks(job: Job) -> list[Task]:
    """What is placed: BestEffort tasks are backfill's, gated ones nobody's."""
    return [
        task
        for task in job.by_status[PENDING].values()
        if not task.is_gated and not task.is_best_effort
    ]


def group_equal(tasks: Iterable[Task], *, split_nominated: bool = False) -> list[list[Task]]:
    """Tasks of one job in which nothing differs but their promises, together; each by itself that
    was promised a node, if so asked for."""
    together: dict[tuple[TaskClass, str, int, str], list[Task]] = {}
    for task in tasks:
        alone = task.uid if split_nominated and task.nominated_node else ""
        together.setdefault((task.klass, task.role, id(task.group), alone), []).append(task)
    return list(together.values())
