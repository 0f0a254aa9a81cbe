"""Fair slots for writes in flight: namespaces take turns, and the jobs of a namespace do.

A semaphore would serve the ten thousand pods of one job before the first pod of the next.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hekla.controllers.objects import Key

_Waiting = deque[asyncio.Future[None]]


class FairSlots:
    """At most `size` holders at once. Runs on one event loop."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._waiting: OrderedDict[str, OrderedDict[str, _Waiting]] = OrderedDict()

    @asynccontextmanager
    async def slot(self, job: Key) -> AsyncIterator[None]:
        """Hold a slot for a write of a job."""
        await self._acquire(*job)
        try:
            yield
        finally:
            self._free += 1
            self._dispatch()

    async def _acquire(self, namespace: str, name: str) -> None:
        if self._free:  # then no write waits
            self._free -= 1
            return
        granted = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, OrderedDict()).setdefault(name, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._free += 1  # it was granted before it was cancelled
                self._dispatch()
            raise

    def _dispatch(self) -> None:
        while self._free and self._waiting:
            granted = self._next()
            if not granted.done():  # a cancelled write is still listed
                self._free -= 1
                granted.set_result(None)

    def _next(self) -> asyncio.Future[None]:
        """Remove the next in turn; its job and its namespace go to the end."""
        namespace, jobs = self._waiting.popitem(last=False)
        name, writes = jobs.popitem(last=False)
        granted = writes.popleft()
        if writes:
            jobs[name] = writes
        if jobs:
            self._waiting[namespace] = jobs
        return granted
