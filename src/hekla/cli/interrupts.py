"""Ctrl-C during `hekla run`: signals as an asyncio event, and the question what to do."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator

from hekla.cli.progress import Screen

QUESTION = "detach and keep the jobs running (d), abort them (a), or stay (s)?"


@contextlib.contextmanager
def signals(interrupted: asyncio.Event) -> Iterator[None]:
    """Set the event on SIGINT and SIGTERM inside the block."""
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, interrupted.set)
    try:
        yield
    finally:
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(one)


async def choice(screen: Screen, interrupted: asyncio.Event, *, can_detach: bool) -> str:
    """Return `d` to detach, `a` to abort or `s` to stay; a second Ctrl-C aborts."""
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        return "a"
    if not can_detach:
        screen.message("aborting; the temporary cluster ends with the run")
        return "a"
    screen.ask(QUESTION)
    try:
        return await _answer(interrupted)
    finally:
        screen.ask("")


async def _answer(interrupted: asyncio.Event) -> str:
    answer = asyncio.create_task(_read_line())
    again = asyncio.create_task(interrupted.wait())
    await asyncio.wait((answer, again), return_when=asyncio.FIRST_COMPLETED)
    again.cancel()
    if not answer.done():
        answer.cancel()
        return "a"
    return (answer.result().strip().lower() or "s")[0]


async def _read_line() -> str:
    """Read one line from the terminal without blocking the event loop."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        loop.remove_reader(sys.stdin)
        ready.set_result(sys.stdin.readline())

    loop.add_reader(sys.stdin, read)
    try:
        return await ready
    finally:
        loop.remove_reader(sys.stdin)
