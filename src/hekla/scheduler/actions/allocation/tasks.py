"""Placing the pending tasks of one job. Every action that places tasks uses this module."""

from __future__ import annotations

from collections.abc import Iterator

from hekla.scheduler.actions.allocation.nominated import place_nominated
from hekla.scheduler.actions.allocation.pending import group_equal, pending_tasks
from hekla.scheduler.explain.attempts import Attempt
from hekla.scheduler.session.session import Session
from hekla.scheduler.session.statement import Statement
from hekla.scheduler.state.model import Job, Queue, Task


def place(
    session: Session, statement: Statement, job: Job, queue: Queue, most: int | None = None
) -> Attempt:
    """Place tasks until the job is ready, or `most` of them, in the statement."""
    attempt = Attempt(job)
    is_surplus = session.job_ready(job)
    for run in _runs(session, job):
        if run[0].role and run[0].role in attempt.failed_roles:
            continue
        while run and (most is None or statement.placed < most):
            count = len(run)
            if not is_surplus:
                count = _until_ready(job, run)
            if most is not None:
                count = min(count, most - statement.placed)
            allowed = session.allowance(queue, run[0], count)
            if allowed == 0:
                attempt.refused_by_queue(run[0])
                break
            if job.min_member >= len(job.tasks) and not is_surplus:
                # Every member is needed: if not all fit, placing some is of no use.
                fitting = session.placer.fitting_count(run[0], allowed)
                if fitting < allowed:
                    attempt.no_node_for(session, run[0], fitting=fitting, wanted=allowed)
                    break
            placed = place_equal(session, statement, run[:allowed])
            run = run[placed:]
            if placed < allowed:
                attempt.no_node_for(session, run[0])
                break
            if not is_surplus and session.job_ready(job):
                return attempt
        if attempt.cannot_become_ready(is_surplus):
            break
    attempt.is_exhausted = most is None or statement.placed < most
    return attempt


def place_equal(session: Session, statement: Statement, tasks: list[Task]) -> int:
    """Place as many equal tasks as fit, on idle resources and then on releasing ones."""
    placed = 0
    if tasks[0].nominated_node and len(tasks) == 1:
        placed = len(tasks) - len(place_nominated(session, statement, tasks))
    for future in (False, True):
        put = statement.pipeline if future else statement.allocate
        while placed < len(tasks):
            index = session.placer.best_nodes_in_order(tasks[placed:], future=future)
            if len(index) == 0:
                break
            put(tasks[placed : placed + len(index)], index)
            placed += len(index)
    return placed


def _until_ready(job: Job, run: list[Task]) -> int:
    """Return how many of these equal tasks are placed before the job is ready."""
    short = job.short_roles()
    role = run[0].role
    if [name for name in short if name != role]:
        return len(run)  # the job cannot be ready before another role is placed
    missing = job.min_task_member.get(role, 0) - job.role_ready(role) if short else 0
    return min(max(job.needs_until_ready, missing, 1), len(run))


def _runs(session: Session, job: Job) -> Iterator[list[Task]]:
    """Return the pending tasks in order, in runs of equal tasks that are placed together.

    If every task is needed, equal tasks are grouped: the order does not change which pods run, and
    two roles of thousands of tasks do not alternate one by one.
    """
    tasks = session.in_task_order(pending_tasks(job))
    if len(tasks) <= job.needs_until_ready:
        yield from group_equal(tasks, split_nominated=True)
        return
    run: list[Task] = []
    for task in tasks:
        if run and (
            task.nominated_node
            or run[-1].nominated_node
            or (task.klass, task.role, task.group) != (run[0].klass, run[0].role, run[0].group)
        ):
            yield run
            run = []
        run.append(task)
    if run:
        yield run


def place_all(
    session: Session, statement: Statement, queue: Queue, tasks: list[Task], attempt: Attempt
) -> bool:
    """Place all of these tasks; on False, the statement holds only some."""
    for equal in group_equal(tasks, split_nominated=True):
        while equal:
            allowed = session.allowance(queue, equal[0], len(equal))
            if allowed == 0:
                attempt.refused_by_queue(equal[0])
                return False
            fitting = session.placer.fitting_count(equal[0], allowed)
            if fitting < allowed:
                attempt.no_node_for(session, equal[0], fitting=fitting, wanted=allowed)
                return False
            placed = place_equal(session, statement, equal[:allowed])
            equal = equal[placed:]
            if placed < allowed:
                attempt.no_node_for(session, equal[0])
                return False
    return True
