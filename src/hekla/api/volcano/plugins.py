"""The names of job plugins: ours, and those that installed packages bring along."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from hekla.api import wellknown

GROUP = "hekla.job_plugins"


@cache
def job_plugin_names() -> frozenset[str]:
    """What a job may name in `spec.plugins`. Nothing is imported to find out."""
    return frozenset(wellknown.JOB_PLUGINS) | {entry.name for entry in entry_points(group=GROUP)}
