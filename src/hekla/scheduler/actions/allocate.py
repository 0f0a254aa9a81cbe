"""Allocate: place jobs on nodes, gang by gang, queue by queue in fair order.

Every job gets its minimum or nothing. Then members beyond the minimum share what is left, so that a
large elastic job cannot keep a gang of equal priority from starting. Within a queue, priority comes
first: the surplus of a job is placed before the minimum of a job with lower priority, as in
Volcano. A tier with `gang` before `priority` turns that round. At last each queue may use the rest
of its share that is smaller than a task, where idle.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from hekla.api.wellknown import PodGroupPhase
from hekla.scheduler.actions.allocation.domains import needs_domain, place_in_domains
from hekla.scheduler.actions.allocation.job_order import PendingJobs
from hekla.scheduler.actions.allocation.nominated import bind_nominated
from hekla.scheduler.actions.allocation.pending import pending_tasks
from hekla.scheduler.actions.allocation.queue_gates import open_queue_gates
from hekla.scheduler.actions.allocation.reservation import reserve
from hekla.scheduler.actions.allocation.tasks import place
from hekla.scheduler.explain.attempts import (
    Attempt,
    explain_attempt,
    explain_overused,
    precheck,
)
from hekla.scheduler.framework import hooks
from hekla.scheduler.session.session import Session
from hekla.scheduler.session.statement import Statement
from hekla.scheduler.state.model import Job, Queue

# Jobs that compete for surplus take it in slices, so that their shares rise together. Volcano's
# slice is one task; with 64 slices per job the error stays below two per cent.
SURPLUS_SLICES = 64


def allocate(session: Session) -> None:
    """Place the pending tasks of all jobs that are Inqueue."""
    jobs = [job for job in session.jobs if _is_schedulable(session, job)]
    bind_nominated(session)
    jobs = [job for job in jobs if pending_tasks(job)]
    refused = _place_in_rounds(session, jobs)
    if refused and session.tiers.has(hooks.leftover):
        with session.leftovers():
            _place_in_rounds(session, refused)
    open_queue_gates(session)


def _place_in_rounds(session: Session, jobs: list[Job]) -> list[Job]:
    """Place minimums, then surplus, then the jobs that had to wait for surplus, and so on.

    Return the jobs that a queue's share refused.
    """
    refused: dict[str, Job] = {}
    is_by_priority = _puts_priority_first(session)
    ready: list[Job] = []
    waiting: list[Job] = []
    for job in jobs:
        (ready if session.job_ready(job) else waiting).append(job)
    surplus = Surplus(ready, is_by_priority)
    while True:
        waiting = _place_minimums(session, waiting, surplus, refused)
        _place_surplus(session, surplus, waiting, refused)
        if not waiting:
            return list(refused.values())


def _puts_priority_first(session: Session) -> bool:
    """Tell whether the order of jobs puts priority before what gangs need."""
    names = (plugin.name for plugin, _ in session.tiers.calls(hooks.job_order))
    return next((name for name in names if name in ("priority", "gang")), None) == "priority"


class Surplus:
    """Ready jobs with pending tasks. Jobs of lower priority in their queue wait for them."""

    def __init__(self, jobs: list[Job], is_by_priority: bool) -> None:
        self._jobs: dict[str, Job] = {}
        self._is_by_priority = is_by_priority
        self._priorities: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for job in jobs:
            self.add(job)

    @property
    def jobs(self) -> list[Job]:
        """The jobs, the first added first."""
        return list(self._jobs.values())

    def add(self, job: Job) -> None:
        """Add a job that has its minimum."""
        if pending_tasks(job):
            self._jobs[job.key] = job
            self._priorities[job.queue_name][job.priority] += 1

    def remove(self, job: Job) -> None:
        """Remove a job that gets no more."""
        del self._jobs[job.key]
        left = self._priorities[job.queue_name]
        left[job.priority] -= 1
        if not left[job.priority]:
            del left[job.priority]

    def precedes(self, job: Job) -> bool:
        """Tell whether surplus of the job's queue has a higher priority than the job."""
        highest = max(self._priorities[job.queue_name], default=job.priority)
        return self._is_by_priority and highest > job.priority


def _is_schedulable(session: Session, job: Job) -> bool:
    if job.is_pending:
        if "enqueue" in session.config.actions or not job.has_group:
            return False
        session.set_phase(job, PodGroupPhase.INQUEUE)
    if not pending_tasks(job):
        return False
    found = precheck(session, job)
    if found is not None:
        session.verdicts.explain(found)
    return found is None


def _place_minimums(
    session: Session, jobs: list[Job], surplus: Surplus, refused: dict[str, Job]
) -> list[Job]:
    """Place the minimum of each job, or nothing; return the jobs that wait for surplus."""
    waiting: list[Job] = []
    order = PendingJobs(session, jobs)
    while (queue := order.next_queue()) is not None:
        if (plugin := session.overused(queue)) is not None:
            for other in order.drain(queue):
                explain_overused(session, other, plugin.name)
            continue
        job = order.next_job(queue)
        if job is None:
            continue
        if surplus.precedes(job):
            waiting.append(job)
            order.push_back(queue)
            continue
        with session.statement() as statement:
            attempt = _place(session, statement, job, queue)
            is_served = session.job_ready(job)
            if is_served:
                statement.commit()
            elif session.job_pipelined(job):
                statement.keep()
            explain_attempt(session, job, attempt)
        if is_served:
            surplus.add(job)
        elif not session.job_pipelined(job):
            reserve(session, job, queue)
            if attempt.refused is not None:
                refused[job.key] = job
        order.push_back(queue)
    return waiting


def _place_surplus(
    session: Session, surplus: Surplus, waiting: list[Job], refused: dict[str, Job]
) -> None:
    """Place members beyond the minimum, one slice at a time.

    Stop when a waiting job need not wait any longer: its minimum comes before the surplus of equals
    in other queues.
    """
    jobs = surplus.jobs
    order = PendingJobs(session, jobs)
    slices = {job.key: max(len(pending_tasks(job)) // SURPLUS_SLICES, 1) for job in jobs}
    held: dict[str, Job] = {}
    for each in sorted(waiting, key=lambda job: job.priority):
        held[each.queue_name] = each
    while (queue := order.next_queue()) is not None:
        if (plugin := session.overused(queue)) is not None:
            for other in order.drain(queue):
                explain_overused(session, other, plugin.name)
                surplus.remove(other)
            continue
        job = order.next_job(queue)
        if job is None:
            continue
        is_alone = not order.pending_jobs(queue) and not order.pending_queues
        with session.statement() as statement:
            most = None if is_alone else slices[job.key]
            attempt = _place(session, statement, job, queue, most)
            statement.commit()
        if attempt.is_exhausted or not pending_tasks(job):
            explain_attempt(session, job, attempt)
            surplus.remove(job)
            if attempt.refused is not None:
                refused[job.key] = job
            if queue.name in held and not surplus.precedes(held[queue.name]):
                return
            order.push_back(queue)
        else:
            order.push_back(queue, job)


def _place(
    session: Session, statement: Statement, job: Job, queue: Queue, most: int | None = None
) -> Attempt:
    if needs_domain(session, job):
        return place_in_domains(session, statement, job, queue, most)
    return place(session, statement, job, queue, most)
