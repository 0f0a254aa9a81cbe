"""Measure how long the event loop of this process is held, and log what held it.

    with watch_stalls():
        ...

A thread asks the loop for a sign of life. If none arrives within BOUND_S, it logs the stack of the
loop's thread: the line that holds the loop is in it. The duration goes to the histogram
`hekla_loop_stall_seconds`, which every registry of this process serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.metrics import Histogram

log = logging.getLogger("hekla.stalls")

NAME: Final = "hekla_loop_stall_seconds"
BOUND_S: Final = 0.25
PERIOD_S: Final = 0.1
LOG_EVERY_S: Final = 10.0
MAX_FRAMES: Final = 30
STALLS: Final = Histogram(
    NAME,
    "Time for which a step held the event loop, if longer than 0.25 s.",
    registry=None,
    buckets=(0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0),
)


class StallWatch:
    """The watching thread. `report` gets the stack and the number of stalls not logged before."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        bound_s: float = BOUND_S,
        now: Callable[[], float] = time.monotonic,
        report: Callable[[str, int], None] | None = None,
    ) -> None:
        self._loop = loop
        self._watched = threading.get_ident()
        self._bound_s = bound_s
        self._now = now
        self._report = report or _log_stall
        self._stopped = threading.Event()
        self._logged_at = float("-inf")
        self._unlogged = 0
        self._thread = threading.Thread(target=self._run, name="hekla-stalls", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Note: call it on the loop's thread, or while the loop runs."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD_S):
            alive = threading.Event()
            asked = self._now()
            try:
                self._loop.call_soon_threadsafe(alive.set)
            except RuntimeError:
                return  # the loop is closed
            if alive.wait(self._bound_s):
                continue
            self._stalled()
            while not alive.wait(1.0):
                if self._stopped.is_set() or self._loop.is_closed():
                    return
            STALLS.observe(self._now() - asked)

    def _stalled(self) -> None:
        if self._now() - self._logged_at < LOG_EVERY_S:
            self._unlogged += 1
            return
        frame = sys._current_frames().get(self._watched)
        stack = "" if frame is None else "".join(traceback.format_stack(frame)[-MAX_FRAMES:])
        self._report(stack, self._unlogged)
        self._logged_at, self._unlogged = self._now(), 0


def _log_stall(stack: str, unlogged: int) -> None:
    more = f"; {unlogged} stalls before were not logged" if unlogged else ""
    log.warning("the event loop is held for more than %s s%s, by:\n%s", BOUND_S, more, stack)


@contextlib.contextmanager
def watch_stalls() -> Iterator[None]:
    """Watch the running loop inside the block."""
    watch = StallWatch(asyncio.get_running_loop())
    watch.start()
    try:
        yield
    finally:
        watch.stop()
