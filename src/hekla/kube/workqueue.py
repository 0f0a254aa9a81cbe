"""A work queue of keys for controllers: each key once, one worker per key.

    queue: WorkQueue[Key] = WorkQueue()
    informer.add_handler(lambda event, old, new: queue.add(key_of(new or old)))
    await run_workers(queue, reconcile, 4)

Runs on one event loop; only `get` waits.

Note: a key is not an event. Ten changes of an object while it waits are one reconcile, and changes
during a reconcile cause one more. The handler reads the current state from a cache.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable
from random import Random
from typing import Generic, TypeVar

import msgspec

from hekla.kube.retries import backoff_s
from hekla.units.clock import Clock, SystemClock

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

# Keys whose failures are counted. Beyond this the oldest starts again with the shortest delay.
MAX_FAILING_KEYS = 65_536


class QueueClosed(Exception):
    """The queue is shut down and empty."""


class QueueStats(msgspec.Struct):
    """Counts for metrics."""

    added: int = 0
    merged: int = 0
    """Adds of a key that was already waiting."""
    delayed: int = 0
    retried: int = 0
    handed_out: int = 0
    longest_wait_s: float = 0.0


class WorkQueue(Generic[K]):
    """A FIFO of unique keys with delays and per-key back-off."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        base_delay_s: float = 0.05,
        max_delay_s: float = 300.0,
    ) -> None:
        self.stats = QueueStats()
        self._clock: Clock = clock or SystemClock()
        self._random = random or Random()
        self._base_delay_s = base_delay_s
        self._max_delay_s = max_delay_s
        # A key is in at most one of these two; `_again` has keys added while being processed.
        self._waiting: OrderedDict[K, float] = OrderedDict()
        self._processing: set[K] = set()
        self._again: set[K] = set()
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._timer: asyncio.Task[None] | None = None
        self._timer_due = 0.0
        self._failures: OrderedDict[K, int] = OrderedDict()
        self._getters: deque[asyncio.Future[None]] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_closed = False

    def __len__(self) -> int:
        """Keys that are ready."""
        return len(self._waiting)

    @property
    def processing(self) -> int:
        """Keys that are being processed."""
        return len(self._processing)

    @property
    def delayed(self) -> int:
        """Keys that are delayed."""
        return len(self._due)

    def add(self, key: K) -> None:
        """Add a key; ignored if it is waiting or after shutdown."""
        if not self._is_closed:
            self._push(key)

    def add_after(self, key: K, delay_s: float) -> None:
        """Add a key after `delay_s`; the earliest of several delays counts.

        Processing the key before then does not cancel the delay: it may be a deadline.
        """
        if delay_s <= 0:
            self.add(key)
            return
        if self._is_closed:
            return
        due = self._clock.monotonic() + delay_s
        if key in self._due and self._due[key] <= due:
            return
        self.stats.delayed += 1
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._heap, (due, self._sequence, key))
        if len(self._heap) > 2 * len(self._due) + 64:
            self._compact()
        self._arm()

    def retry(self, key: K) -> float:
        """Add a failed key after a delay (returned) that doubles with each failure."""
        failures = self._failures.pop(key, 0) + 1
        self._failures[key] = failures
        if len(self._failures) > MAX_FAILING_KEYS:
            self._failures.popitem(last=False)
        self.stats.retried += 1
        delay_s = backoff_s(failures, self._base_delay_s, self._max_delay_s, self._random)
        self.add_after(key, delay_s)
        return delay_s

    def forget(self, key: K) -> None:
        """Reset the back-off of a key."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Return the number of consecutive failures."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """Return the next key for exclusive use until `done`; QueueClosed after shutdown."""
        while not self._waiting:
            # Keys in process may be added again, so closed does not mean empty.
            if self._is_closed and not self._again:
                raise QueueClosed
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter.done() and not getter.cancelled() and self._waiting:
                    self._wake()  # woken but cancelled: wake another worker
                raise
            finally:
                if getter in self._getters:
                    self._getters.remove(getter)
        key, since = self._waiting.popitem(last=False)
        self._processing.add(key)
        self.stats.handed_out += 1
        waited_s = self._clock.monotonic() - since
        self.stats.longest_wait_s = max(self.stats.longest_wait_s, waited_s)
        return key

    def done(self, key: K) -> None:
        """Finish a key; if it was added in the meantime, it waits again."""
        if key not in self._processing:
            raise ValueError(f"{key!r} is not being processed")
        self._processing.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._enqueue(key)
        elif not self._waiting and not self._processing:
            self._idle.set()
        if self._is_closed and not self._again:
            self._wake_all()

    def shutdown(self) -> None:
        """Refuse new keys. Ready keys are still returned; delayed keys are dropped."""
        self._is_closed = True
        self._due.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake_all()

    async def drained(self) -> None:
        """Wait until no key waits or is being processed."""
        await self._idle.wait()

    def _push(self, key: K) -> None:
        self.stats.added += 1
        if key in self._waiting or key in self._again:
            self.stats.merged += 1
        elif key in self._processing:
            self._again.add(key)
        else:
            self._enqueue(key)

    def _enqueue(self, key: K) -> None:
        self._waiting[key] = self._clock.monotonic()
        self._idle.clear()
        self._wake()

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _wake_all(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)

    def _arm(self) -> None:
        """Run one timer for the earliest key: thousands of delayed keys cost one task."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # superseded by an earlier delay
        if not self._heap:
            return
        due = self._heap[0][0]
        if self._timer is not None and not self._timer.done():
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = asyncio.create_task(self._fire(due), name="work queue timer")

    async def _fire(self, due: float) -> None:
        await self._clock.sleep(due - self._clock.monotonic())
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == at:
                del self._due[key]
                self._push(key)
        self._timer = None
        self._arm()

    def _compact(self) -> None:
        self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
        heapq.heapify(self._heap)


async def run_workers(
    queue: WorkQueue[K],
    handler: Callable[[K], Awaitable[float | None]],
    workers: int,
) -> None:
    """Process keys with up to `workers` concurrent calls of `handler`, until shutdown.

    If the handler returns seconds, the key is added again after them; if it raises, the error is
    logged and the key is added with back-off.
    """
    if workers < 1:
        raise ValueError("at least one worker is needed")
    async with asyncio.TaskGroup() as group:
        for number in range(workers):
            group.create_task(_work(queue, handler), name=f"worker {number}")


async def _work(queue: WorkQueue[K], handler: Callable[[K], Awaitable[float | None]]) -> None:
    while True:
        try:
            key = await queue.get()
        except QueueClosed:
            return
        try:
            again_s = await handler(key)
        except Exception:
            wait_s = queue.retry(key)
            logger.exception(
                "%s failed %d times in a row; retrying in %.2f s", key, queue.failures(key), wait_s
            )
        else:
            queue.forget(key)
            if again_s is not None:
                queue.add_after(key, again_s)
        finally:
            queue.done(key)
