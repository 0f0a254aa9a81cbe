"""The order of pending jobs: the first job of the first queue, again and again.

Shares grow as jobs are placed, so a key is computed again when its item reaches the front, and the
item goes back if it is no longer the first. That is correct while keys only grow, which holds while
tasks are only placed. Volcano's heap updates keys only along the path that an element takes, and
may return a job out of order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from hekla.scheduler.session.session import Session
from hekla.scheduler.state.model import Job, Queue

T = TypeVar("T")


class LazyHeap(Generic[T]):
    """A heap of items whose keys may grow while they are in it."""

    def __init__(self, items: Iterable[T], key: Callable[[T], tuple[Any, ...]]) -> None:
        self._key = key
        self._heap = [(key(item), n, item) for n, item in enumerate(items)]
        self._next = len(self._heap)
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, item: T) -> None:
        """Add an item."""
        self._next += 1
        if not self._heap:  # a single item needs no key
            self._heap.append(((), self._next, item))
            return
        if len(self._heap) == 1:
            _, n, other = self._heap[0]
            self._heap[0] = (self._key(other), n, other)
        heapq.heappush(self._heap, (self._key(item), self._next, item))

    def pop(self) -> T:
        """Remove and return the item with the smallest key now."""
        while len(self._heap) > 1:
            key, n, item = self._heap[0]
            fresh = self._key(item)
            if not fresh > key:
                break
            heapq.heapreplace(self._heap, (fresh, n, item))
        return heapq.heappop(self._heap)[2]


class PendingJobs:
    """Pending jobs by queue."""

    def __init__(self, session: Session, jobs: Iterable[Job]) -> None:
        by_queue: dict[str, tuple[Queue, list[Job]]] = {}
        for job in jobs:
            if job.queue is not None:
                by_queue.setdefault(job.queue_name, (job.queue, []))[1].append(job)
        self._jobs = {
            name: LazyHeap(pending, session.job_key) for name, (_, pending) in by_queue.items()
        }
        self._queues = LazyHeap((queue for queue, _ in by_queue.values()), session.queue_key)

    def next_queue(self) -> Queue | None:
        """Remove and return the first queue; put it back with `push_back`."""
        return self._queues.pop() if len(self._queues) else None

    def next_job(self, queue: Queue) -> Job | None:
        """Remove and return the first job of a queue."""
        jobs = self._jobs[queue.name]
        return jobs.pop() if len(jobs) else None

    def pending_jobs(self, queue: Queue) -> int:
        """Return the number of jobs left in a queue."""
        return len(self._jobs[queue.name])

    @property
    def pending_queues(self) -> int:
        """The number of queues left."""
        return len(self._queues)

    def drain(self, queue: Queue) -> list[Job]:
        """Remove and return the remaining jobs of a queue."""
        jobs = self._jobs[queue.name]
        return [jobs.pop() for _ in range(len(jobs))]

    def push_back(self, queue: Queue, job: Job | None = None) -> None:
        """Put a queue back, and a job of it that has more to place."""
        if job is not None:
            self._jobs[queue.name].push(job)
        self._queues.push(queue)
