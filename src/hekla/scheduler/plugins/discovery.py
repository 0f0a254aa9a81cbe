"""Discovery of custom plugins: entry points `hekla.plugins`, and files in a directory.

A file that cannot be loaded is logged and left out. It never keeps the scheduler from starting.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import sys
from pathlib import Path

from hekla.scheduler.framework.plugin import PerNodePlugin, Plugin
from hekla.scheduler.framework.registry import Registry
from hekla.scheduler.plugins import builtin

log = logging.getLogger("hekla.scheduler")

ENTRY_POINTS = "hekla.plugins"


def discover(plugins_dir: Path | None = None) -> Registry:
    """Return a registry of built-in and custom plugins. Later ones replace earlier ones."""
    registry = builtin()
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            registry.add(point.load(), source=point.value)
        except Exception as error:  # custom code may raise anything
            registry.left_out[point.value] = _last_line(error)
            log.exception(
                "plugin %s (%s) cannot be loaded and is left out", point.name, point.value
            )
    for path in sorted(plugins_dir.glob("*.py")) if plugins_dir is not None else ():
        try:
            for plugin in _load(path):
                registry.add(plugin, source=str(path))
        except Exception as error:
            registry.left_out[str(path)] = _last_line(error)
            log.exception("%s cannot be loaded and is left out", path)
    return registry


def _last_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _load(path: Path) -> list[type[Plugin]]:
    """Return the named plugins that a file defines, or raise what the file raises."""
    name = f"hekla_plugins_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        return []
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # annotations are read through the module of their class
    try:
        spec.loader.exec_module(module)
    except Exception:
        del sys.modules[name]
        raise
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Plugin)
        and value not in (Plugin, PerNodePlugin)
        and value.__module__ == name
        and value.name
    ]
