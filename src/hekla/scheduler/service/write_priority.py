"""Who goes first at the API server: binds, and then whatever tells about them.

What a newcomer gets wrong: between two gangs of a burst there are moments in which no bind is under
way. Those are no rest; it counts only once it has lasted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

REST_S: Final = 0.1
"""Without a bind for so long, and the burst is over."""


class BindsFirst:
    """Counts what goes first; the others wait until it rests, but no longer than they said."""

    def __init__(self) -> None:
        self._under_way = 0
        self._resting: asyncio.TimerHandle | None = None
        self._at_rest = asyncio.Event()
        self._at_rest.set()

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """What is done within goes first."""
        self._under_way += 1
        self._at_rest.clear()
        self.stop()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                loop = asyncio.get_running_loop()
                self._resting = loop.call_later(REST_S, self._at_rest.set)

    async def rest(self, most_s: float) -> None:
        """Wait until nothing that goes first is under way, or so long."""
        if not self._at_rest.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(most_s):
                    await self._at_rest.wait()

    def stop(self) -> None:
        """Forget the timer."""
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
