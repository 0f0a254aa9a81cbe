"""What an exit code means. Pure."""

from __future__ import annotations

import signal
from typing import Final

BY_SIGNAL: Final = 128
"""Exit codes of processes that a signal ended are larger by this."""
NOT_FOUND: Final = 127
"""The exit code of a shell that does not find a program."""
_SIGNALS: Final = frozenset(map(int, signal.Signals))


def signal_of(exit_code: int) -> str:
    """Return the signal that ended a process, such as `SIGSEGV`; empty if it exited."""
    number = exit_code - BY_SIGNAL
    return signal.Signals(number).name if number in _SIGNALS else ""
