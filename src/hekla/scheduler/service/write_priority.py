"""Write priority: binds are sent before status and events.

Note: between two gangs of a burst there are moments without binds in flight. The burst is over only
after a pause.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

REST_S: Final = 0.1
"""The time without binds after which a burst is over."""


class WritePriority:
    """Counts binds in flight; other writers wait for a pause, up to their own limit."""

    def __init__(self) -> None:
        self._in_flight = 0
        self._pausing: asyncio.TimerHandle | None = None
        self._at_rest = asyncio.Event()
        self._at_rest.set()

    @contextlib.contextmanager
    def in_flight(self) -> Iterator[None]:
        """Mark a bind as in flight inside the block."""
        self._in_flight += 1
        self._at_rest.clear()
        self.stop()
        try:
            yield
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                loop = asyncio.get_running_loop()
                self._pausing = loop.call_later(REST_S, self._at_rest.set)

    async def rest(self, most_s: float) -> None:
        """Wait until no bind is in flight, at most this long."""
        if not self._at_rest.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(most_s):
                    await self._at_rest.wait()

    def stop(self) -> None:
        """Cancel the timer."""
        if self._pausing is not None:
            self._pausing.cancel()
            self._pausing = None
