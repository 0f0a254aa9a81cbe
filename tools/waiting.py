"""Bounded polling for state that another process or task changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = 180.0
_POLL_S = 0.05


def until(
    condition: Callable[[], T | None],
    message: str = "",
    patience_s: float = PATIENCE_S,
    ignored: type[Exception] | tuple[type[Exception], ...] = (),
) -> T:
    """Poll until the condition returns something true, and return that.

    An `ignored` exception counts as false. Raises TimeoutError with the message and the last such
    exception.
    """
    deadline = time.monotonic() + patience_s
    last: Exception | None = None
    while True:
        try:
            if value := condition():
                return value
        except ignored as error:
            last = error
        if time.monotonic() > deadline:
            raise TimeoutError(f"{message or 'no success'} after {patience_s:.0f} s") from last
        time.sleep(_POLL_S)


async def until_async(condition: Callable[[], T | None], patience_s: float = PATIENCE_S) -> T:
    """Let the event loop run until the condition returns something true, and return that."""
    async with asyncio.timeout(patience_s):
        while not (value := condition()):  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0)
    return value
