"""Room kept for a large job that has waited long, so that small ones cannot starve it.

The first job in order that finds no room, and has waited for `reserveAfter`, is given nodes: those
that could hold its minimum if the jobs on them ended, and of these the ones that are freest
already. From then on nobody behind it in order is placed there, while the rest of the cluster is
open to all: small jobs are backfilled around it. Nodes that are kept only become freer, so the
choice stays the same from cycle to cycle without being written down anywhere.

One job is served so at a time. EASY backfilling would also let in small jobs that end before the
large one can start; pods do not say how long they run, so here nobody is let in on trust.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.action_arguments import RESERVE_AFTER
from hekla.scheduler.session.reservations import Reservation
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.dimensions import EPSILON, BoolArray, FloatArray, IntArray
from hekla.scheduler.state.model import PENDING, Job, Queue, Task
from hekla.scheduler.state.topology import Domain
from hekla.units.durations import parse_duration


def reserve(session: Session, job: Job, queue: Queue) -> None:
    """Keep nodes for a job, if it is its turn and it could ever run."""
    if session.reservations or not _has_waited(session, job):
        return
    reservations = _reservations(session, job, queue)
    if reservations is None:
        return
    session.reservations.add(reservations)
    verdict = session.plan.verdicts.get(job.key)
    if verdict is not None:
        count = len({one.column for one in reservations})
        text = f"{count} node{'s are' if count > 1 else ' is'} kept for it until it fits"
        session.verdicts.explain(replace(verdict, message=f"{verdict.message}; {text}"))


def _has_waited(session: Session, job: Job) -> bool:
    after = session.config.argument("allocate", RESERVE_AFTER)
    if after in ("", "0"):
        return False
    after_s = parse_duration(after)
    return after_s > 0 and session.now - job.created >= after_s


def _reservations(session: Session, job: Job, queue: Queue) -> list[Reservation] | None:
    """Where the job's minimum could be once those who are there have ended; None if nowhere."""
    waiting = [task for task in job.by_status[PENDING].values() if task.is_schedulable]
    tasks = session.in_task_order(task for task in waiting if not task.is_best_effort)
    kinds: dict[object, list[Task]] = {}
    minimum = needed(job, tasks)
    if not minimum or not _may_ever_have(session, queue, minimum):
        return None
    if len(minimum) < job.needs_until_ready - job.waiting_count:
        return None  # gates hold members that it needs: nobody knows for how long
    near = _near(session, job, minimum)
    if near is None:
        return None
    for task in minimum:
        kinds.setdefault(task.klass, []).append(task)
    free_rn = session.columns.allocatable_rn - _foreign(session)
    reservations: list[Reservation] = []
    for alike in kinds.values():
        task, count = alike[0], len(alike)
        if session.placer.is_coupled(task):
            return None
        most_n = np.where(session.placer.feasible(task) & near, _copies(task, free_rn), 0)
        for column in _freest(session, task, most_n):
            copies = min(count, int(most_n[column]))
            reservations.append(Reservation(job, task.klass, column, copies))
            for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
                free_rn[row, column] -= copies * amount
            count -= copies
            if count == 0:
                break
        if count:
            return None
    return reservations


def _near(session: Session, job: Job, tasks: list[Task]) -> BoolArray | None:
    """The nodes among which it may be: of a gang that must be close together one domain's.

    None where no domain could ever hold it, or where its sub-groups need one each.
    """
    if job.policies:
        return None
    domains: list[Domain] | None = session.tiers.first(hooks.domains_to_clear, job, tasks)
    if domains is None:
        return np.ones(len(session.nodes), dtype=bool)
    if not domains:
        return None
    near = np.zeros(len(session.nodes), dtype=bool)
    near[domains[0].nodes] = True
    return near


def _may_ever_have(session: Session, queue: Queue, tasks: list[Task]) -> bool:
    """Whether the queue's limits leave room for the tasks once its other jobs have ended."""
    need_r = tasks[0].klass.request_r.copy()
    for task in tasks[1:]:
        need_r += task.klass.request_r
    return queue.is_open and all(
        bool(np.all((need_r <= 0) | (need_r <= limit_r)))
        for limit_r in session.tiers.each(hooks.queue_limit, queue)
    )


def needed(job: Job, tasks: list[Task]) -> list[Task]:
    """Of the waiting tasks those that make the gang's minimum; all of them if it runs already."""
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


def _freest(session: Session, task: Task, most_n: IntArray) -> list[int]:
    """Nodes that could hold such tasks, those first of which the smallest part must be freed."""
    now_n = np.minimum(_copies(task, session.columns.idle_rn), most_n)
    index = np.flatnonzero(most_n > 0)
    taken = 1.0 - now_n[index] / most_n[index]
    found: list[int] = index[np.argsort(taken, kind="stable")].tolist()
    return found


def _copies(task: Task, free_rn: FloatArray) -> IntArray:
    most_n = np.full(free_rn.shape[1], float(2**31))
    for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
        if row >= free_rn.shape[0]:
            return np.zeros(free_rn.shape[1], dtype=np.int64)
        most_n = np.minimum(most_n, np.floor((free_rn[row] + EPSILON) / amount))
    capacity_n: IntArray = np.maximum(most_n, 0.0).astype(np.int64)
    return capacity_n


def _foreign(session: Session) -> FloatArray:
    """What pods without a job hold: nobody waits for those to end."""
    held_rn = np.zeros_like(session.columns.allocatable_rn)
    for node in session.cluster.node_table.node_list:
        for task in node.tasks.values():
            if task.job is None:
                for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
                    held_rn[row, node.index] += amount
    return held_rn
