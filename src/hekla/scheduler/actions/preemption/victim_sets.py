"""Victim sets of a job: its surplus task by task, or all of the rest at once.

A gang below its minimum does no work, so evicting one needed member costs the whole gang. Surplus
members are *safe* to evict; the others are evicted together or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hekla.scheduler.framework import hooks
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.dimensions import FloatArray
from hekla.scheduler.state.model import Job, Task


@dataclass(slots=True)
class VictimSet:
    """Tasks of one job that may be evicted; `is_whole` if they must be evicted together."""

    job: Job
    tasks: list[Task]
    is_whole: bool

    def gain_per_loss(self, need_r: FloatArray) -> float:
        """Return the part of the need that the set covers, per part that the gang loses."""
        if not self.is_whole:
            return float("inf")
        rows = [row for row in range(len(need_r)) if need_r[row] > 0]
        local = {row: sum(task.klass.amount(row) for task in self.tasks) for row in rows}
        gain = sum(min(local[row], float(need_r[row])) / float(need_r[row]) for row in rows)
        loss = sum(float(self.job.allocated_r[row]) / float(need_r[row]) for row in rows)
        return gain / loss if loss else float("inf")


def victim_sets_of(job: Job, tasks: Sequence[Task]) -> list[VictimSet]:
    """Return the evictable tasks of one job as its surplus and the rest."""
    tasks = sorted(tasks, key=lambda task: (task.priority, task.uid))
    surplus = job.ready_count - job.min_member
    if surplus < 0:  # the gang is below its minimum: no member is needed
        return [VictimSet(job, tasks, is_whole=False)]
    minimums = job.min_task_member if job.checks_roles else {}
    spare = {role: job.role_ready(role) - minimum for role, minimum in minimums.items()}
    safe: list[Task] = []
    rest: list[Task] = []
    for task in tasks:
        if surplus > 0 and spare.get(task.role, 1) > 0:
            safe.append(task)
            surplus -= 1
            if task.role in spare:
                spare[task.role] -= 1
        else:
            rest.append(task)
    found = [VictimSet(job, safe, is_whole=False)] if safe else []
    return [*found, VictimSet(job, rest, is_whole=True)] if rest else found


def in_order(
    session: Session,
    victim_sets: list[VictimSet],
    need_r: FloatArray,
    preemptor: Job,
    *,
    by_queue: bool,
) -> list[VictimSet]:
    """Sort victim sets: surplus first, then by lowest rank, then by gain per loss."""
    ordered = sorted(victim_sets, key=lambda b: (b.job.key, b.tasks[0].uid))
    ordered.sort(key=lambda b: -b.gain_per_loss(need_r))
    ordered.sort(key=lambda b: session.job_key(b.job), reverse=True)
    if by_queue:
        ordered.sort(key=lambda b: _queue_rank(session, b.job), reverse=True)
        if session.tiers.has(hooks.victim_queue_order):
            order = session.tiers.order_key
            ordered.sort(
                key=lambda b: order(hooks.victim_queue_order, b.job.queue, preemptor.queue)
            )
    ordered.sort(key=lambda b: b.is_whole)
    return ordered


def _queue_rank(session: Session, job: Job) -> tuple[object, ...]:
    return () if job.queue is None else session.queue_key(job.queue)
