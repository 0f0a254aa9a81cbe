"""Names of job plugins: built-in ones and those of installed packages."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from hekla.api import wellknown

GROUP = "hekla.job_plugins"


@cache
def job_plugin_names() -> frozenset[str]:
    """Return the valid names of `spec.plugins`, without importing plugins."""
    return frozenset(wellknown.JOB_PLUGINS) | {entry.name for entry in entry_points(group=GROUP)}
