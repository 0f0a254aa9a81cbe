"""Volcano's queue-allocation gate: pods that wait for their queue are hidden from autoscalers.

A pod with the annotation `scheduling.volcano.sh/queue-allocation-gate: "true"` is created with the
scheduling gate of that name. The gate is removed once the queue's limits allow the pod, together
with those that its gang needs. Only then the pod is placed, or waits for nodes as `Unschedulable`.
"""

from __future__ import annotations

import numpy as np

from hekla.scheduler.actions.allocation.job_order import PendingJobs
from hekla.scheduler.actions.allocation.pending import group_equal
from hekla.scheduler.explain.attempts import precheck
from hekla.scheduler.framework.plan import OpenGate
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.dimensions import FloatArray
from hekla.scheduler.state.model import Job, Queue, Task
from hekla.scheduler.state.status import PENDING


def open_queue_gates(session: Session) -> None:
    """Plan to remove the gates of pods that their queues allow."""
    jobs = [job for job in session.jobs if not job.is_pending and _gated(job)]
    if not jobs:
        return
    claims: dict[str, tuple[Queue, FloatArray]] = {}
    order = PendingJobs(session, [job for job in jobs if precheck(session, job) is None])
    try:
        while (queue := order.next_queue()) is not None:
            job = order.next_job(queue)
            if job is None:
                continue
            if queue.name not in claims:
                claims[queue.name] = (queue, queue.pipelined_r.copy())
                queue.pipelined_r += _ungated_r(queue)
            _open_gates(session, job, queue)
            order.push_back(queue)
    finally:
        for queue, before_r in claims.values():
            queue.pipelined_r[:] = before_r


def _open_gates(session: Session, job: Job, queue: Queue) -> None:
    """Open the gates that the queue allows: those of the gang's minimum, or none."""
    before_r, allowed = queue.pipelined_r.copy(), list[Task]()
    for tasks in group_equal(session.in_task_order(_gated(job))):
        count = session.allowance(queue, tasks[0], len(tasks))
        allowed += tasks[:count]
        queue.pipelined_r += count * tasks[0].klass.request_r
    others = len(job.by_status[PENDING]) - len(_gated(job))
    if len(allowed) + others < job.needs_until_ready:
        queue.pipelined_r[:] = before_r
        return
    session.plan.effects += [OpenGate(task.namespace, task.name, task.uid) for task in allowed]


def _gated(job: Job) -> list[Task]:
    return [task for task in job.by_status[PENDING].values() if task.is_queue_gated]


def _ungated_r(queue: Queue) -> FloatArray:
    """Return what pods of a queue request that are pending without a gate: they come first."""
    total_r = np.zeros_like(queue.pipelined_r)
    for job in queue.jobs.values():
        for task in job.by_status[PENDING].values():
            if not task.is_gated:
                total_r += task.klass.request_r
    return total_r
