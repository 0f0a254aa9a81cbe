"""Whose turn it is: the best job of the best queue, again and again.

Shares grow as jobs are placed, so a key is read again when its item comes to the front, and the
item goes back if it is no longer the first. That is right as long as keys only grow, which holds
while nothing but placing happens. Volcano's heap re-reads keys only along the path that an element
takes, and may serve one out of turn.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from hekla.scheduler.session.session import Session
from hekla.scheduler.state.model import Job, Queue

T = TypeVar("T")


class LazyHeap(Generic[T]):
    """Items in order of a key that may grow while they wait."""

    def __init__(self, items: Iterable[T], key: Callable[[T], tuple[Any, ...]]) -> None:
        self._key = key
        self._heap = [(key(item), n, item) for n, item in enumerate(items)]
        self._next = len(self._heap)
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, item: T) -> None:
        self._next += 1
        if not self._heap:  # alone it needs no key, until another comes
            self._heap.append(((), self._next, item))
            return
        if len(self._heap) == 1:
            _, n, other = self._heap[0]
            self._heap[0] = (self._key(other), n, other)
        heapq.heappush(self._heap, (self._key(item), self._next, item))

    def pop(self) -> T:
        while len(self._heap) > 1:
            key, n, item = self._heap[0]
            fresh = self._key(item)
            if not fresh > key:
                break
            heapq.heapreplace(self._heap, (fresh, n, item))
        return heapq.heappop(self._heap)[2]


class PendingJobs:
    """Jobs waiting in their queues."""

    def __init__(self, session: Session, jobs: Iterable[Job]) -> None:
        by_queue: dict[str, tuple[Queue, list[Job]]] = {}
        for job in jobs:
            if job.queue is not None:
                by_queue.setdefault(job.queue_name, (job.queue, []))[1].append(job)
        self._jobs = {
            name: LazyHeap(waiting, session.job_key) for name, (_, waiting) in by_queue.items()
        }
        self._queues = LazyHeap((queue for queue, _ in by_queue.values()), session.queue_key)

    def next_queue(self) -> Queue | None:
        """The queue that is first, taken out; give it back with `again`."""
        return self._queues.pop() if len(self._queues) else None

    def next_job(self, queue: Queue) -> Job | None:
        waiting = self._jobs[queue.name]
        return waiting.pop() if len(waiting) else None

    def pending_jobs(self, queue: Queue) -> int:
        return len(self._jobs[queue.name])

    @property
    def pending_queues(self) -> int:
        return len(self._queues)

    def drain(self, queue: Queue) -> list[Job]:
        """The jobs that will not get a turn."""
        waiting = self._jobs[queue.name]
        return [waiting.pop() for _ in range(len(waiting))]

    def push_back(self, queue: Queue, job: Job | None = None) -> None:
        if job is not None:
            self._jobs[queue.name].push(job)
        self._queues.push(queue)
