"""A full-screen page on a terminal: scrolled by keys, redrawn when its size changes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from hekla.cli import terminal
from hekla.cli.capacity.page import Line, fitted

_ENTER: Final = "\x1b[?1049h\x1b[?25l"
"""The alternate screen, without a cursor."""
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_KEYS: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|.", re.DOTALL)
_MOVES: Final = {
    "j": 1, "\x1b[B": 1, "\x1bOB": 1, "\n": 1, "\r": 1,
    "k": -1, "\x1b[A": -1, "\x1bOA": -1,
}  # fmt: skip
_PAGES: Final = {" ": 1, "\x1b[6~": 1, "\x06": 1, "b": -1, "\x1b[5~": -1, "\x02": -1}
_START: Final = frozenset({"g", "\x1b[H", "\x1bOH", "\x1b[1~"})
_END: Final = frozenset({"G", "\x1b[F", "\x1bOF", "\x1b[4~"})
_STYLES: Final[dict[str, dict[str, Any]]] = {
    "title": {"bold": True},
    "header": {"dim": True},
    "bad": {"fg": "red"},
    "reason": {"fg": "yellow"},
}
_QUITTING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MAX_READ: Final = 256


def scrolled(first: int, keys: str, *, count: int, height: int) -> int | None:
    """Return the first visible line after keys; None if one of them quits."""
    for key in _KEYS.findall(keys):
        if key in ("q", "Q"):
            return None
        if key in _MOVES:
            first += _MOVES[key]
        elif key in _PAGES:
            first += _PAGES[key] * max(1, height - 1)
        elif key in _START:
            first = 0
        elif key in _END:
            first = count
        first = max(0, min(first, count - height))
    return first


def styled(line: Line, width: int | None) -> str:
    """Return a line for `terminal.echo`."""
    text, style = fitted(line.text, width), _STYLES.get(line.style)
    return terminal.style(text, **style) if style and text else text


class Screen:
    """The terminal while a page is shown; it is restored at the end, and by Ctrl-Z."""

    def __init__(self, woken: asyncio.Event) -> None:
        """`woken` is set when the page has to be drawn again."""
        self.is_closed = False
        self._woken = woken
        self._first = 0
        self._keys = ""
        self._modes: list[Any] | None = None

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for one in _QUITTING:
            loop.add_signal_handler(one, self._close)
        loop.add_signal_handler(signal.SIGWINCH, self._woken.set)
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        if sys.stdin.isatty():
            loop.add_reader(sys.stdin.fileno(), self._read)
        self._take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._give_back()
        loop = asyncio.get_running_loop()
        if sys.stdin.isatty():
            loop.remove_reader(sys.stdin.fileno())
        for one in (*_QUITTING, signal.SIGWINCH, signal.SIGTSTP):
            loop.remove_signal_handler(one)

    def draw(self, head: Line, lines: Sequence[Line]) -> None:
        """Show the head, as many lines as fit, and the keys."""
        width, rows = _size()
        height = max(1, rows - 2)
        first = scrolled(self._first, self._keys + "\0", count=len(lines), height=height)
        self._keys = ""
        if first is None:
            self.is_closed = True
            return
        self._first = first
        shown = [head, *lines[first : first + height]]
        shown += [Line()] * (height + 1 - len(shown))
        last = min(first + height, len(lines))
        foot = f"q quits, j/k scroll   {first + 1}-{last} of {len(lines)} lines"
        text = "\x1b[K\n".join(styled(line, width) for line in shown[:rows])
        foot = terminal.style(fitted(foot, width), reverse=True)
        _write(f"\x1b[H{text}\x1b[K\n{foot}\x1b[J" if rows > 1 else f"\x1b[H{text}\x1b[J")

    def _take(self) -> None:
        if sys.stdin.isatty():
            self._modes = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        _write(_ENTER)

    def _give_back(self) -> None:
        _write(_LEAVE)
        if self._modes is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._modes)

    def _suspend(self) -> None:
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()
        self._woken.set()

    def _close(self) -> None:
        self.is_closed = True
        self._woken.set()

    def _read(self) -> None:
        pressed = os.read(sys.stdin.fileno(), MAX_READ)
        if not pressed:  # the terminal is gone
            self._close()
        self._keys = (self._keys + pressed.decode(errors="replace"))[-MAX_READ:]
        self._woken.set()


def _size() -> tuple[int, int]:
    """Return columns and rows. Note: $COLUMNS and $LINES do not follow a change of the size."""
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    return columns or 80, rows or 24  # a serial line has no size


def _write(text: str) -> None:
    """Write our own sequences; names of tenants in them were escaped by `fitted`."""
    terminal.echo(terminal.sequence(text), nl=False)
    sys.stdout.flush()
