"""What ends `hekla run` early: Ctrl-C, a signal, a closed terminal, a closed pipe.

Each sets an asyncio event. Of Ctrl-C on a terminal the user is asked what to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hekla.cli.progress import Screen

QUESTION = "detach and keep the jobs running (d), abort them (a), or stay (s)?"
PIPE_CHECK_S = 0.1
_UNSEEN = (signal.SIGHUP, signal.SIGPIPE)

_handlers: list[Callable[[int], None]] = []
"""The innermost is last."""


class Interrupt(asyncio.Event):
    """Set when the run has to end, with the number of the signal."""

    def __init__(self) -> None:
        super().__init__()
        self.number: int = signal.SIGINT

    @property
    def is_unseen(self) -> bool:
        """Whether nobody sees the output any more."""
        return self.number in _UNSEEN

    @property
    def exit_code(self) -> int:
        """The exit code after an abort, as of a process that the signal ended."""
        return 128 + (self.number if self.is_unseen else signal.SIGINT)

    def receive(self, number: int) -> None:
        if not self.is_unseen:
            self.number = number
        if number == signal.SIGPIPE:
            discard_unseen_output()
        self.set()


@contextlib.contextmanager
def signals(interrupted: Interrupt) -> Iterator[None]:
    """Set the event on SIGINT, SIGTERM and SIGHUP, and if the pipe of the output is closed."""
    watch = asyncio.create_task(_watch_pipe(interrupted))
    try:
        with handlers(interrupted.receive, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
            yield
    finally:
        watch.cancel()


@contextlib.contextmanager
def handlers(handle: Callable[[int], None], numbers: Iterable[int]) -> Iterator[None]:
    """Call a function on these signals; a block inside another one takes its place.

    A SIGHUP that is ignored, as by nohup, stays so.
    """
    loop = asyncio.get_running_loop()
    added = []
    for number in numbers:
        is_ignored = number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN
        if not is_ignored and not any(number in known for known in _numbers):
            loop.add_signal_handler(number, _dispatch, number)
            added.append(number)
    _handlers.append(handle)
    _numbers.append(added)
    try:
        yield
    finally:
        _handlers.pop()
        for number in _numbers.pop():
            loop.remove_signal_handler(number)


_numbers: list[list[int]] = []
"""The signals that each handler added."""


def _dispatch(number: int) -> None:
    if number == signal.SIGHUP:
        discard_unseen_output()
    _handlers[-1](number)


async def _watch_pipe(interrupted: Interrupt) -> None:
    """Wait until the reader of a piped output has ended: also without output."""
    try:
        watched = os.dup(1)  # `discard_unseen_output` replaces the original
    except OSError:
        return
    try:
        kind = os.fstat(watched).st_mode
        if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
            while not _is_closed(watched):  # noqa: ASYNC110 - epoll of uvloop has no such event
                await asyncio.sleep(PIPE_CHECK_S)
            interrupted.receive(signal.SIGPIPE)
    finally:
        os.close(watched)


def discard_unseen_output() -> None:
    """Drop what is written to a closed pipe or terminal from now on, instead of failing."""
    null = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        if _is_closed(number):
            os.dup2(null, number)
    os.close(null)


def _is_closed(number: int) -> bool:
    poll = select.poll()
    poll.register(number, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


async def choice(screen: Screen, interrupted: Interrupt, *, can_detach: bool) -> str:
    """Return `d` to detach, `a` to abort or `s` to stay; a second Ctrl-C aborts.

    A closed terminal detaches, so that a job outlives a lost connection. A closed pipe aborts.
    """
    if interrupted.is_unseen or not sys.stdin.isatty() or not sys.stdout.isatty():
        return _default(interrupted, can_detach=can_detach)
    if not can_detach:
        screen.message("aborting; the temporary cluster ends with the run")
        return "a"
    screen.ask(QUESTION)
    try:
        answer = await _answer(interrupted)
    finally:
        screen.ask("")
    return _default(interrupted, can_detach=True) if interrupted.is_unseen else answer


def _default(interrupted: Interrupt, *, can_detach: bool) -> str:
    return "d" if can_detach and interrupted.number == signal.SIGHUP else "a"


async def _answer(interrupted: Interrupt) -> str:
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
        line = ""
        with contextlib.suppress(OSError):  # EIO: the terminal is closed
            line = sys.stdin.readline()
        ready.set_result(line)

    loop.add_reader(sys.stdin, read)
    try:
        return await ready
    finally:
        loop.remove_reader(sys.stdin)
