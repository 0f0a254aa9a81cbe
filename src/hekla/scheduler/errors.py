"""Errors of the scheduler.

SchedulerError
├── PluginError         a plugin is defined or configured wrongly
├── ConfigError         volcano-scheduler.conf cannot be used; the last good one stays
└── ReplayError         a decision log cannot be read
"""

from __future__ import annotations


class SchedulerError(Exception):
    """Base class of the errors below."""


class PluginError(SchedulerError):
    """A plugin is defined or configured wrongly."""


class ConfigError(SchedulerError):
    """A configuration is refused. `line` is where, counted from one, or None."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(f"line {line}: {message}" if line is not None else message)
        self.line = line


class ReplayError(SchedulerError):
    """A file is not a decision log, or it is damaged."""
