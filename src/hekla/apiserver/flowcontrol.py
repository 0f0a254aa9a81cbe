"""API priority and fairness: a client that sends many requests does not delay the others.

A request that executes occupies a seat. While seats are free, a request takes one by a dictionary
look-up. Otherwise it waits in the queue of its flow, and a released seat goes to the flows in turn.
A request beyond the limits is answered 429 with `Retry-After`, as by kube-apiserver.

A flow is a user and a bucket of its user agent: on one machine most programs act as the same
administrator, and the few buckets limit what inventing user agents gains. An anonymous client is
identified by its address. Components inside this process bypass flow control. Long-running
requests (watch, log, exec) occupy no seat and have separate limits.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from hekla.apiserver import errors
from hekla.apiserver.auth.authenticator import ANONYMOUS, User

BUCKETS: Final = 16
Flow = tuple[str, int]
"""User name, or address of an anonymous client; and the bucket of its user agent."""


@dataclass(frozen=True)
class Limits:
    """How many requests may execute, wait and stay open."""

    seats: int = 400
    """Requests that execute at once."""
    seats_per_flow: int = 300
    """The same for one flow: the rest is always free for others."""
    queued: int = 4000
    queued_per_flow: int = 1000
    streams: int = 8192
    """Open long-running requests: watches, logs and sessions."""
    streams_per_flow: int = 2048


class FlowControl:
    """Seats and queues. Runs on one event loop."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.executing = 0
        self.queued = 0
        self.streams = 0
        self.rejected = 0
        self._seats: dict[Flow, int] = {}
        self._queues: OrderedDict[Flow, deque[asyncio.Future[None]]] = OrderedDict()
        self._streams: dict[Flow, int] = {}

    @staticmethod
    def flow(user: User, agent: str, source: str) -> Flow:
        """Return the flow that a request belongs to."""
        name = source if user is ANONYMOUS else user.name
        return name, crc32(agent.encode("utf-8", "replace")) % BUCKETS

    # Seats

    def try_acquire(self, flow: Flow) -> bool:
        """Take a free seat; False if the request must `wait`."""
        occupied = self._seats.get(flow, 0)
        if self.executing >= self.limits.seats or occupied >= self.limits.seats_per_flow:
            return False
        if flow in self._queues:
            return False  # its earlier requests come first
        self.executing += 1
        self._seats[flow] = occupied + 1
        return True

    async def wait(self, flow: Flow) -> None:
        """Wait for a seat; 429 when the queue is full."""
        queue = self._queues.get(flow)
        length = 0 if queue is None else len(queue)
        if self.queued >= self.limits.queued or length >= self.limits.queued_per_flow:
            self.rejected += 1
            raise errors.too_many_requests("too many requests, please try again later")
        if queue is None:
            queue = self._queues[flow] = deque()
        dispatched = asyncio.get_running_loop().create_future()
        queue.append(dispatched)
        self.queued += 1
        try:
            await dispatched
        except asyncio.CancelledError:
            if dispatched.done() and not dispatched.cancelled():
                self.release(flow)  # the seat was assigned before the request was cancelled
            else:
                self._dequeue(flow, dispatched)
            raise

    def release(self, flow: Flow) -> None:
        """Release a seat and dispatch the next queued requests."""
        self.executing -= 1
        occupied = self._seats[flow] - 1
        if occupied:
            self._seats[flow] = occupied
        else:
            del self._seats[flow]
        if self.queued:
            self._dispatch()

    def _dispatch(self) -> None:
        """Assign free seats round-robin; a flow that has all its seats is skipped."""
        skipped = 0
        while skipped < len(self._queues) and self.executing < self.limits.seats:
            flow, queue = next(iter(self._queues.items()))
            self._queues.move_to_end(flow)
            if self._seats.get(flow, 0) >= self.limits.seats_per_flow:
                skipped += 1
                continue
            dispatched = queue.popleft()
            self.queued -= 1
            if not queue:
                del self._queues[flow]
            if not dispatched.cancelled():  # a cancelled request may still be in the queue
                self.executing += 1
                self._seats[flow] = self._seats.get(flow, 0) + 1
                dispatched.set_result(None)

    def _dequeue(self, flow: Flow, dispatched: asyncio.Future[None]) -> None:
        queue = self._queues.get(flow)
        if queue is None or dispatched not in queue:
            return  # `_dispatch` removed it
        queue.remove(dispatched)
        self.queued -= 1
        if not queue:
            del self._queues[flow]

    # Long-running requests

    def open_stream(self, flow: Flow) -> None:
        """Count a long-running request; 429 when there are too many."""
        held = self._streams.get(flow, 0)
        if self.streams >= self.limits.streams or held >= self.limits.streams_per_flow:
            self.rejected += 1
            raise errors.too_many_requests("too many watches and sessions are open; end some first")
        self.streams += 1
        self._streams[flow] = held + 1

    def close_stream(self, flow: Flow) -> None:
        """Stop counting a long-running request."""
        self.streams -= 1
        held = self._streams[flow] - 1
        if held:
            self._streams[flow] = held
        else:
            del self._streams[flow]
