"""Time as something that is handed in: the system's, or one that a test or simulation moves.

`now()` is for what people and objects see, `monotonic()` for measuring how long something took;
the first may jump when the machine's clock is set, so never subtract two readings of it.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """What code that waits or stamps needs to know about time."""

    def now(self) -> float:
        """Unix seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clock and the event loop's timers."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class ManualClock:
    """Stands still until told otherwise.

    Sleepers wake in order of their deadline, then in order of falling asleep, one at a time:
    each runs until it waits for something again before the next is woken, and sees `now()` at
    exactly its own deadline. So a test reads the same story on every run.
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
        """How many tasks are asleep right now."""
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
        """Let `seconds` pass, waking everyone whose time comes, also those who sleep again."""
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
        """Jump to the earliest deadline and wake it; False when nobody sleeps."""
        await self.settle()
        while self._sleepers:
            deadline, _, future = self._sleepers[0]
            if not future.done():
                # Not by the difference: added up again it may fall short of the deadline.
                await self._advance_to(deadline)
                return True
            heapq.heappop(self._sleepers)
        return False

    def skip(self, seconds: float) -> None:
        """Move time without waking anyone: for synchronous code that only reads the clock."""
        if seconds < 0:
            raise ValueError(f"clock: cannot go back by {-seconds} s; skip 0 or more")
        self._elapsed += seconds

    async def settle(self, rounds: int = 10) -> None:
        """Give other tasks the loop until they are waiting for something.

        The loop does not say when it is idle, so this yields a fixed number of times; a chain of
        hand-overs between tasks that is longer than `rounds` needs a larger number.
        """
        for _ in range(rounds):
            await asyncio.sleep(0)
