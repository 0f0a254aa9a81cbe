"""What a scheduler records about itself, for the command line."""

from __future__ import annotations

from typing import Final

import msgspec

SCHEDULER_STATE_CONFIG_MAP: Final = "hekla-scheduler-state"


class FailedPlugin(msgspec.Struct, frozen=True, rename="camel"):
    """A plugin that raised, or took too long, and lost its vote for a cycle."""

    plugin: str
    times: int
    hook: str
    error: str
    """The last line of the traceback of the newest failure."""
    traceback: str = ""
    """The end of that traceback, without that line; empty for a plugin that took too long."""


class SchedulerState(msgspec.Struct, frozen=True, rename="camel"):
    """The configuration in force, and the plugins that failed since the scheduler started."""

    source: str
    """Where the configuration is from: a ConfigMap, a file, or the default."""
    configuration: str
    """The text in force, without passwords."""
    refused: str = ""
    """Why the newest text at the source is not in force."""
    warnings: tuple[str, ...] = ()
    failed_plugins: tuple[FailedPlugin, ...] = ()
    custom_plugins: tuple[str, ...] = ()
    """The plugins that are not built in; the configuration need not name them."""
    left_out: tuple[str, ...] = ()
    """Which custom plugins could not be loaded, and why."""
