"""Reserved nodes: a large job that has been pending for long is not starved by small ones.

The first job in order that does not fit, and has been pending for `reserveAfter`, gets nodes
reserved: nodes that could hold its minimum if the jobs on them ended, and of these the ones with
the most idle resources. No later job is placed there; the rest of the cluster stays open, so small
jobs are backfilled around it. Reserved nodes only become freer, so the choice is the same in every
cycle and need not be stored.

One job is served at a time. EASY backfilling would also start small jobs that end before the large
one can start. Pods do not declare a run time, so no job is started on that assumption.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.action_arguments import RESERVE_AFTER
from hekla.scheduler.session.reservations import Reservation
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.dimensions import EPSILON, BoolArray, FloatArray, IntArray
from hekla.scheduler.state.model import Job, Queue, Task
from hekla.scheduler.state.status import PENDING
from hekla.scheduler.state.topology import Domain
from hekla.units.durations import parse_duration


def reserve(session: Session, job: Job, queue: Queue) -> None:
    """Reserve nodes for a job, if none are reserved yet and the job could ever run."""
    if session.reservations or not _is_overdue(session, job):
        return
    reservations = _reservations(session, job, queue)
    if reservations is None:
        return
    session.reservations.add(reservations)
    verdict = session.plan.verdicts.get(job.key)
    if verdict is not None:
        count = len({one.column for one in reservations})
        text = f"{count} node{'s are' if count > 1 else ' is'} reserved for it until it fits"
        session.verdicts.explain(replace(verdict, message=f"{verdict.message}; {text}"))


def _is_overdue(session: Session, job: Job) -> bool:
    after = session.config.argument("allocate", RESERVE_AFTER)
    if after in ("", "0"):
        return False
    after_s = parse_duration(after)
    return after_s > 0 and session.now - job.created >= after_s


def _reservations(session: Session, job: Job, queue: Queue) -> list[Reservation] | None:
    """Return nodes for the job's minimum once the jobs there have ended; None if it never fits."""
    pending = [task for task in job.by_status[PENDING].values() if task.is_schedulable]
    tasks = session.in_task_order(task for task in pending if not task.is_best_effort)
    kinds: dict[object, list[Task]] = {}
    minimum = needed(job, tasks)
    if not minimum or not _could_ever_fit(session, queue, minimum):
        return None
    if len(minimum) < job.needs_until_ready - job.waiting_count:
        return None  # scheduling gates hold members that it needs
    usable = _usable_nodes(session, job, minimum)
    if usable is None:
        return None
    for task in minimum:
        kinds.setdefault(task.klass, []).append(task)
    free_rn = session.columns.allocatable_rn - _used_by_others(session)
    reservations: list[Reservation] = []
    for equal in kinds.values():
        task, count = equal[0], len(equal)
        if session.placer.is_coupled(task):
            return None
        most_n = np.where(session.placer.feasible(task) & usable, _capacity(task, free_rn), 0)
        for column in _most_idle(session, task, most_n):
            tasks_here = min(count, int(most_n[column]))
            reservations.append(Reservation(job, task.klass, column, tasks_here))
            for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
                free_rn[row, column] -= tasks_here * amount
            count -= tasks_here
            if count == 0:
                break
        if count:
            return None
    return reservations


def is_unplaceable(session: Session, job: Job) -> bool:
    """Tell whether a job that has not started would not fit if all nodes were empty.

    Each kind of task is considered alone, and other pods do not count, so a job may be unplaceable
    without this. Tasks that depend on other pods are not considered.
    """
    if job.ready_count or not job.inqueue_r.any():
        return False
    pending = [task for task in job.by_status[PENDING].values() if task.is_schedulable]
    kinds: dict[object, list[Task]] = {}
    for task in needed(job, [task for task in pending if not task.is_best_effort]):
        kinds.setdefault(task.klass, []).append(task)
    return any(
        not session.placer.depends_on_pods(equal[0])
        and len(equal) > session.placer.capacity_of_empty_nodes(equal[0])
        for equal in kinds.values()
    )


def _usable_nodes(session: Session, job: Job, tasks: list[Task]) -> BoolArray | None:
    """Return the mask of usable nodes: one domain's, for a gang with a network topology.

    None if no domain could ever hold it, or if its sub-groups need one each.
    """
    if job.policies:
        return None
    domains: list[Domain] | None = session.tiers.first(hooks.domains_to_clear, job, tasks)
    if domains is None:
        return np.ones(len(session.nodes), dtype=bool)
    if not domains:
        return None
    usable = np.zeros(len(session.nodes), dtype=bool)
    usable[domains[0].nodes] = True
    return usable


def _could_ever_fit(session: Session, queue: Queue, tasks: list[Task]) -> bool:
    """Tell whether the queue's limits allow the tasks once its other jobs have ended."""
    need_r = tasks[0].klass.request_r.copy()
    for task in tasks[1:]:
        need_r += task.klass.request_r
    return queue.is_open and all(
        bool(np.all((need_r <= 0) | (need_r <= limit_r)))
        for limit_r in session.tiers.each(hooks.queue_limit, queue)
    )


def needed(job: Job, tasks: list[Task]) -> list[Task]:
    """Return the pending tasks that complete the gang's minimum; all of them if it is ready."""
    missing = job.min_member - job.ready_count - job.waiting_count - job.pending_best_effort
    short = {
        role: job.min_task_member[role] - job.role_ready(role)
        for role in job.short_roles(pipelined=True)
    }
    if missing <= 0 and not short:
        return tasks
    chosen: dict[str, Task] = {}
    for task in tasks:
        if short.get(task.role, 0) > 0:
            short[task.role] -= 1
            chosen[task.uid] = task
    for task in tasks:
        if len(chosen) < missing:
            chosen.setdefault(task.uid, task)
    return [task for task in tasks if task.uid in chosen]


def _most_idle(session: Session, task: Task, most_n: IntArray) -> list[int]:
    """Return nodes that could hold such tasks, those with the largest idle part first."""
    now_n = np.minimum(_capacity(task, session.columns.idle_rn), most_n)
    index = np.flatnonzero(most_n > 0)
    taken = 1.0 - now_n[index] / most_n[index]
    found: list[int] = index[np.argsort(taken, kind="stable")].tolist()
    return found


def _capacity(task: Task, free_rn: FloatArray) -> IntArray:
    most_n = np.full(free_rn.shape[1], float(2**31))
    for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
        if row >= free_rn.shape[0]:
            return np.zeros(free_rn.shape[1], dtype=np.int64)
        most_n = np.minimum(most_n, np.floor((free_rn[row] + EPSILON) / amount))
    capacity_n: IntArray = np.maximum(most_n, 0.0).astype(np.int64)
    return capacity_n


def _used_by_others(session: Session) -> FloatArray:
    """Return what pods without a job use: they are not expected to end."""
    held_rn = np.zeros_like(session.columns.allocatable_rn)
    for node in session.cluster.node_table.node_list:
        for task in node.tasks.values():
            if task.job is None:
                for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
                    held_rn[row, node.index] += amount
    return held_rn
