"""proportion: queues share the cluster by weight, and unused shares go to the other queues.

Deserved amounts are computed in rounds (water filling): each unsatisfied queue gets its weight's
part of the rest, up to its request and its capability, and never less than its guarantee. The
result holds for the whole cycle, from the requests at its start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hekla.scheduler.explain.limits import absence, absent, change_for, limit_of
from hekla.scheduler.framework.answers import PERMIT, REJECT, EvictionContext, Vote
from hekla.scheduler.framework.plan import Event, QueueMetrics
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.framework.verdict import Blocked, Gate, Verdict
from hekla.scheduler.state.classes import TaskClass
from hekla.scheduler.state.dimensions import (
    EPSILON,
    BoolArray,
    Dimensions,
    FloatArray,
    largest_share,
    less_equal,
)
from hekla.scheduler.state.model import Job, Queue, Task

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session

ROUNDING = 1e-3
"""The error of computed shares, in bytes or thousandths; amounts themselves are whole."""


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
    guards_queues: ClassVar[bool] = True

    def open(self, session: Session) -> None:
        self._session = session
        queues = session.cluster.queues.values()
        guaranteed_r: FloatArray = sum(
            (queue.guarantee_r for queue in queues), np.zeros_like(session.total_r)
        )
        self._free_r = np.maximum(session.total_r - guaranteed_r, 0.0)
        self._shares = {q.name: QueueShare(q, self._free_r) for q in queues if q.jobs}
        self._most: dict[str, FloatArray] = {}
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

    def leftover(self, queue: Queue, task: Task) -> int:
        """Return how many tasks fit if the last one may exceed the deserved amount in part.

        Shares are fractions: of three equal slots two queues deserve one and a half each. Volcano
        leaves the third one idle.
        """
        known = self._shares.get(queue.name)
        if known is None or not queue.is_open:
            return 0
        within = copies_below(queue.claimed_r, known.deserved_r, task)
        rest_r = known.deserved_r - queue.claimed_r - within * task.klass.request_r
        has_rest = all(rest_r[row] >= EPSILON for row in task.klass.rows)
        return min(within + has_rest, copies_below(queue.claimed_r, known.real_capability_r, task))

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
        # Plain numbers: a search asks about few candidates at a time, and very often.
        if (alike := _alike(candidates)) is not None:
            known = self._shares.get(alike[0].name)
            count = 0 if known is None else _surplus_count(alike[0], known.deserved_r, alike[1])
            alike_n: BoolArray = np.arange(len(candidates)) < count
            return alike_n
        excess: dict[str, list[float]] = {}
        out = np.zeros(len(candidates), dtype=bool)
        for i, victim in enumerate(candidates):
            queue = victim.job.queue if victim.job is not None else None
            if queue is None:
                continue
            over = excess.get(queue.name)
            if over is None:
                known = self._shares.get(queue.name)
                if known is None:
                    continue
                over = excess[queue.name] = (queue.allocated_r - known.deserved_r).tolist()
            if max(over) >= EPSILON:
                for row, amount in zip(victim.klass.rows, victim.klass.amounts, strict=True):
                    over[row] -= amount
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

    def entitled(self, job: Job) -> bool:
        queue = job.queue
        known = None if queue is None else self._shares.get(queue.name)
        if queue is None or known is None or job.min_resources_r is None:
            return False
        most_r = self._most_deserved(queue)
        used_r = queue.allocated_r + known.inqueue_r
        return all(used_r[row] + job.min_resources_r[row] <= most_r[row] for row in job.min_rows)

    def _most_deserved(self, queue: Queue) -> FloatArray:
        """Return what the queue would deserve if it requested the whole cluster.

        Pods of a job that is not enqueued do not exist, so the queue's request has no part of it.
        """
        if queue.name not in self._most:
            shares = {name: QueueShare(s.queue, self._free_r) for name, s in self._shares.items()}
            shares[queue.name].request_r = self._session.total_r.copy()
            water_fill(self._session.total_r, list(shares.values()))
            self._most[queue.name] = shares[queue.name].deserved_r
        return self._most[queue.name]

    def job_unplaceable(self, job: Job) -> None:
        known = self._shares.get(job.queue_name)
        if known is not None:
            known.inqueue_r -= job.inqueue_r

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
    for share in shares:
        # Thirds of 12Gi add up to less than 12Gi; a gang that fits exactly must fit.
        whole_r = np.rint(share.deserved_r)
        near = np.abs(whole_r - share.deserved_r) < ROUNDING
        share.deserved_r = np.where(near, whole_r, share.deserved_r)


def _alike(tasks: Sequence[Task]) -> tuple[Queue, TaskClass] | None:
    """Return the queue and the class of tasks if they have them in common."""
    first = tasks[0].job if tasks else None
    if first is None or first.queue is None:
        return None
    queue, klass = first.queue, tasks[0].klass
    for task in tasks:
        if task.klass is not klass or task.job is None or task.job.queue is not queue:
            return None
    return queue, klass


def _surplus_count(queue: Queue, deserved_r: FloatArray, klass: TaskClass) -> float:
    """Return how many equal tasks a queue may lose until it uses no more than it deserves."""
    over = (queue.allocated_r - deserved_r).tolist()
    count = 0
    for row, amount in zip(klass.rows, klass.amounts, strict=True):
        if over[row] >= EPSILON:
            count = max(count, math.floor((over[row] - EPSILON) / amount) + 1)
        over[row] = 0.0
    return math.inf if max(over) >= EPSILON else count


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
    missing = absent(session, (each.resource for each in blocked))
    limits = [limit_of(session, queue, each.resource, each.allowed) for each in blocked]
    if missing:
        message, change = absence(session, missing)
    else:
        over = ", ".join(f"insufficient {b.resource}" for b in blocked)
        message = f"queue resource quota insufficient: {over}"
        change = change_for(session, limits[0], blocked[0])
    session.verdicts.explain(
        Verdict(
            job.key,
            Gate.NOT_ENQUEUED,
            message,
            blocked=tuple(
                replace(each, basis=limit.basis)
                for each, limit in zip(blocked, limits, strict=True)
                if each.resource not in missing
            ),
            change=change,
            holders=session.verdicts.holders(
                job, session.dimensions.intern(blocked[0].resource), queue
            ),
        )
    )
    if not any(c.message.startswith(message) for c in job.conditions):
        session.events.append(
            Event("PodGroup", job.namespace, job.name, job.uid, "Normal", "Unschedulable", message)
        )


def explain_closed(session: Session, job: Job, queue: Queue) -> None:
    session.verdicts.explain(
        Verdict(
            job.key,
            Gate.QUEUE_CLOSED,
            f"queue {queue.name!r} is {queue.state}",
            change=f"open queue {queue.name!r}",
        )
    )
