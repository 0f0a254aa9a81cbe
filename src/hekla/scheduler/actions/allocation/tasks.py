"""Placing the waiting tasks of one job, equal ones together; all actions that place do it here."""

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
    """Place tasks until the job is ready, or `most` of them; the statement holds what was done."""
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
                # Every member is needed: if there is no room for all, trying would be in vain.
                room = session.placer.fitting_count(run[0], allowed)
                if room < allowed:
                    attempt.no_node_for(session, run[0], room=room, wanted=allowed)
                    break
            placed = place_equal(session, statement, run[:allowed])
            run = run[placed:]
            if placed < allowed:
                attempt.no_node_for(session, run[0])
                break
            if not is_surplus and session.job_ready(job):
                return attempt
        if attempt.is_hopeless(is_surplus):
            break
    attempt.is_exhausted = most is None or statement.placed < most
    return attempt


def place_equal(session: Session, statement: Statement, tasks: list[Task]) -> int:
    """Place as many of some equal tasks as fit, on what is free and then on what will be."""
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
    """How many of these equal tasks one-by-one placing would place before the job is ready."""
    short = job.short_roles()
    role = run[0].role
    if [name for name in short if name != role]:
        return len(run)  # it cannot be ready before another role has come
    missing = job.min_task_member.get(role, 0) - job.role_ready(role) if short else 0
    return min(max(job.needs_until_ready, missing, 1), len(run))


def _runs(session: Session, job: Job) -> Iterator[list[Task]]:
    """The waiting tasks in order, cut into runs that can be placed together.

    Where every task is needed anyway, equal ones are brought together: which pods run does not
    depend on it, and two roles of thousands do not alternate one by one.
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
    """Place every one of these tasks; if it cannot be, the statement holds only some."""
    for alike in group_equal(tasks, split_nominated=True):
        while alike:
            allowed = session.allowance(queue, alike[0], len(alike))
            if allowed == 0:
                attempt.refused_by_queue(alike[0])
                return False
            room = session.placer.fitting_count(alike[0], allowed)
            if room < allowed:
                attempt.no_node_for(session, alike[0], room=room, wanted=allowed)
                return False
            placed = place_equal(session, statement, alike[:allowed])
            alike = alike[placed:]
            if placed < allowed:
                attempt.no_node_for(session, alike[0])
                return False
    return True
