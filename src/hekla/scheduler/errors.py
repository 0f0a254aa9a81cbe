"""What can go wrong in the scheduler.

SchedulerError
├── ConfigError         volcano-scheduler.conf cannot be used; the last good one stays
└── ReplayError         a decision log cannot be read
"""

from __future__ import annotations


class SchedulerError(Exception):
    """The root."""


class ConfigError(SchedulerError):
    """A configuration is refused. `line` is where, counted from one, or None."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(f"line {line}: {message}" if line is not None else message)
        self.line = line


class ReplayError(SchedulerError):
    """The file is no decision log, or a damaged one."""
