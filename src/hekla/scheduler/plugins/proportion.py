"""proportion: queues share the cluster by weight, and unused shares go to the other queues.

Deserved amounts are computed in rounds (water filling): each unsatisfied queue gets its weight's
part of the rest, up to its request and its capability, and never less than its guarantee. The
result holds for the whole cycle, from the requests at its start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hekla.scheduler.framework.answers import PERMIT, REJECT, EvictionContext, Vote
from hekla.scheduler.framework.plan import Event, QueueMetrics
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.framework.verdict import Blocked, Gate, Verdict
from hekla.scheduler.state.dimensions import (
    EPSILON,
    BoolArray,
    Dimensions,
    FloatArray,
    largest_share,
    less_equal,
    show_amount,
)
from hekla.scheduler.state.model import Job, Queue, Task

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session


class QueueShare:
    """The limits and the deserved amount of one queue."""

    def __init__(self, queue: Queue, free_r: FloatArray) -> None:
        self.queue = queue
        self.weight = max(queue.weight, 0)
        unlimited_r = np.where(queue.capability_r > 0, queue.capability_r, np.inf)
        self.guarantee_r = queue.guarantee_r
        self.real_capability_r: FloatArray = np.minimum(free_r + queue.guarantee_r, unlimited_r)
        self.request_r: FloatArray = queue.allocated_r + queue.pending_r
        self.deserved_r: FloatArray = np.zeros_like(self.request_r)
        self.inqueue_r = queue.inqueue_r.copy()


class Proportion(Plugin, name="proportion"):
    """Weighted shares of queues, with guarantees and capabilities."""

    victims_by_class: ClassVar[bool] = True

    def open(self, session: Session) -> None:
        self._session = session
        queues = session.cluster.queues.values()
        guaranteed_r: FloatArray = sum(
            (queue.guarantee_r for queue in queues), np.zeros_like(session.total_r)
        )
        free_r = np.maximum(session.total_r - guaranteed_r, 0.0)
        self._shares = {q.name: QueueShare(q, free_r) for q in queues if q.jobs}
        water_fill(session.total_r, list(self._shares.values()))
        self._rows = range(len(session.dimensions))

    def queue_order(self, queue: Queue) -> tuple[int, float]:
        return (-queue.priority, self._share(queue))

    def overused(self, queue: Queue) -> bool:
        known = self._shares.get(queue.name)
        return known is not None and less_equal(known.deserved_r, queue.claimed_r)

    def allocatable(self, queue: Queue, task: Task) -> int:
        """Return how many such tasks fit in the deserved amount; strict, as in Volcano."""
        known = self._shares.get(queue.name)
        if known is None or not queue.is_open:
            return 0
        return copies_below(queue.claimed_r, known.deserved_r, task)

    def preemptive(self, queue: Queue, task: Task) -> bool:
        return self.allocatable(queue, task) > 0

    def reclaimable(self, task: Task, candidates: Sequence[Task]) -> BoolArray:
        return self._surplus(candidates)

    def unified_evictable(
        self, context: EvictionContext, candidates: Sequence[Task]
    ) -> BoolArray | None:
        """Protect queues below their share. Volcano's plugin lets gangs reclaim from them."""
        return self._surplus(candidates) if context.kind == "reclaim" else None

    def _surplus(self, candidates: Sequence[Task]) -> BoolArray:
        """Return candidates that leave their queue at least its deserved amount, in order."""
        left: dict[str, FloatArray] = {}
        out = np.zeros(len(candidates), dtype=bool)
        for i, victim in enumerate(candidates):
            queue = victim.job.queue if victim.job is not None else None
            if queue is None or queue.name not in self._shares:
                continue
            have_r = left.setdefault(queue.name, queue.allocated_r.copy())
            if not less_equal(have_r, self._shares[queue.name].deserved_r):
                have_r -= victim.klass.request_r
                out[i] = True
        return out

    def job_enqueueable(self, job: Job) -> Vote | None:
        queue = job.queue
        if queue is None:
            return REJECT
        if not queue.is_open:
            explain_closed(self._session, job, queue)
            return REJECT
        known = self._shares.get(queue.name)
        if job.min_resources_r is None or known is None:
            return PERMIT
        used_r = queue.allocated_r + known.inqueue_r - queue.elastic_r
        blocked = blocked_rows(self._session.dimensions, job, used_r, known.real_capability_r)
        if not blocked:
            return PERMIT
        refuse(self._session, job, queue, blocked)
        return REJECT

    def job_enqueued(self, job: Job) -> None:
        known = self._shares.get(job.queue_name)
        if known is not None and job.min_resources_r is not None:
            known.inqueue_r += job.without_gated(job.min_resources_r)

    def queue_metrics(self) -> dict[str, QueueMetrics]:
        return {
            name: QueueMetrics(
                known.deserved_r,
                known.real_capability_r,
                self._share(known.queue),
                self.overused(known.queue),
            )
            for name, known in self._shares.items()
        }

    def _share(self, queue: Queue) -> float:
        known = self._shares.get(queue.name)
        if known is None:
            return 0.0
        rows = [r for r in self._rows if known.deserved_r[r] >= EPSILON]
        return largest_share(queue.claimed_r, known.deserved_r, rows)

    def queue_limit(self, queue: Queue) -> FloatArray:
        """Return the limit of a queue for verdicts."""
        return self._shares[queue.name].deserved_r


def water_fill(total_r: FloatArray, shares: Sequence[QueueShare]) -> None:
    """Set the deserved amount of each queue."""
    remaining_r = total_r.copy()
    unmet = list(shares)
    while unmet:
        weights = sum(share.weight for share in unmet)
        if weights == 0:
            break
        spent_r = np.zeros_like(remaining_r)
        still: list[QueueShare] = []
        for share in unmet:
            old_r = share.deserved_r
            new_r = old_r + remaining_r * share.weight / weights
            new_r = np.minimum(new_r, share.real_capability_r)
            # A queue within a rounding error of its request gets all of it.
            near = np.abs(new_r - share.request_r) < EPSILON
            new_r = np.where(near, share.request_r, np.minimum(new_r, share.request_r))
            new_r = np.maximum(new_r, share.guarantee_r)
            share.deserved_r = new_r
            spent_r += new_r - old_r
            if not less_equal(share.request_r, new_r) and not np.array_equal(new_r, old_r):
                still.append(share)
        left_r = np.maximum(remaining_r - spent_r, 0.0)
        if np.all(left_r < EPSILON) or np.array_equal(left_r, remaining_r):
            break
        remaining_r, unmet = left_r, still


def copies_below(used_r: FloatArray, limit_r: FloatArray, task: Task) -> int:
    """Return the most c with used + c · request ≤ limit in every requested row, exactly."""
    most = 2**31
    for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
        used, limit = float(used_r[row]), float(limit_r[row])
        if math.isinf(limit):
            continue
        c = max(math.floor((limit - used) / amount), 0)
        while c > 0 and used + c * amount > limit:
            c -= 1
        while used + (c + 1) * amount <= limit:
            c += 1
        most = min(most, c)
    return most


def blocked_rows(
    dimensions: Dimensions, job: Job, used_r: FloatArray, limit_r: FloatArray
) -> list[Blocked]:
    """Return the resources of a job's minimum that exceed a limit; compared strictly."""
    wanted_r = job.min_resources_r
    assert wanted_r is not None
    return [
        Blocked(dimensions.names[r], float(wanted_r[r]), float(limit_r[r]), float(used_r[r]))
        for r in job.min_rows
        if wanted_r[r] > 0 and wanted_r[r] + used_r[r] > limit_r[r]
    ]


def refuse(session: Session, job: Job, queue: Queue, blocked: list[Blocked]) -> None:
    """Write the verdict of a job that its queue cannot enqueue, and emit an event once."""
    over = ", ".join(f"insufficient {b.resource}" for b in blocked)
    message = f"queue resource quota insufficient: {over}"
    session.verdicts.explain(
        Verdict(
            job.key,
            Gate.NOT_ENQUEUED,
            message,
            blocked=tuple(blocked),
            change=_way_in(session, queue, blocked[0]),
            holders=session.verdicts.holders(
                job, session.dimensions.intern(blocked[0].resource), queue
            ),
        )
    )
    if not any(c.message.startswith(message) for c in job.conditions):
        session.events.append(
            Event("PodGroup", job.namespace, job.name, job.uid, "Normal", "Unschedulable", message)
        )


def _way_in(session: Session, queue: Queue, short: Blocked) -> str:
    """Return the smallest change: a limit of the queue, or else the size of the cluster."""
    row = session.dimensions.intern(short.resource)
    if 0 < queue.capability_r[row] <= short.allowed:
        return f"raise the capability of queue {queue.name!r}, or wait for its jobs to end"
    if short.asked > short.allowed:
        most = show_amount(short.resource, short.allowed)
        return f"request at most {most} {short.resource}, all there is for it, or add nodes"
    return f"wait for jobs of queue {queue.name!r} to end, or add nodes"


def explain_closed(session: Session, job: Job, queue: Queue) -> None:
    session.verdicts.explain(
        Verdict(
            job.key,
            Gate.QUEUE_CLOSED,
            f"queue {queue.name!r} is {queue.state}",
            change=f"open queue {queue.name!r}",
        )
    )
