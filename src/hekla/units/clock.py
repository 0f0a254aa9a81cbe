"""Injected time: the system's clock, or one that a test or simulation advances.

Note: use `now()` for times that users and objects show, and `monotonic()` to measure durations.
`now()` may jump when the machine's clock is set; never subtract two of its readings.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """The time functions that code depends on."""

    def now(self) -> float:
        """Return unix seconds."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start that never decrease."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The system clock and the event loop's timers."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class ManualClock:
    """A clock that only tests and simulations advance.

    Sleepers wake in order of their deadline, then of their start, one at a time: each runs until it
    waits again before the next one wakes, and reads its own deadline from `now()`. So every run is
    the same.
    """

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._start = start
        self._elapsed = 0.0
        self._sequence = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._start + self._elapsed

    def monotonic(self) -> float:
        return self._elapsed

    @property
    def sleepers(self) -> int:
        """The number of sleeping tasks."""
        return sum(1 for _, _, future in self._sleepers if not future.done())

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sequence += 1
        heapq.heappush(self._sleepers, (self._elapsed + seconds, self._sequence, future))
        await future

    async def advance(self, seconds: float) -> None:
        """Advance by `seconds` and wake all sleepers whose deadline passes, also repeatedly."""
        if seconds < 0:
            raise ValueError(f"clock: cannot go back by {-seconds} s; advance by 0 or more")
        await self._advance_to(self._elapsed + seconds)

    async def _advance_to(self, target: float) -> None:
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            deadline, _, future = heapq.heappop(self._sleepers)
            if future.done():  # its task was cancelled while asleep
                continue
            self._elapsed = deadline
            future.set_result(None)
            await self.settle()
        self._elapsed = target

    async def advance_to_next(self) -> bool:
        """Advance to the earliest deadline and wake its sleeper; return False if there is none."""
        await self.settle()
        while self._sleepers:
            deadline, _, future = self._sleepers[0]
            if not future.done():
                # Not by the difference: added again, it may fall short of the deadline.
                await self._advance_to(deadline)
                return True
            heapq.heappop(self._sleepers)
        return False

    def skip(self, seconds: float) -> None:
        """Advance without waking sleepers, for synchronous code that only reads the clock."""
        if seconds < 0:
            raise ValueError(f"clock: cannot go back by {-seconds} s; skip 0 or more")
        self._elapsed += seconds

    async def settle(self, rounds: int = 10) -> None:
        """Let other tasks run until they wait.

        The event loop does not report idleness, so this yields a fixed number of times; a chain of
        hand-overs longer than `rounds` needs a larger number.
        """
        for _ in range(rounds):
            await asyncio.sleep(0)
