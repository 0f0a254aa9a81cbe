"""The registry of plugins by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from hekla.scheduler.errors import PluginError
from hekla.scheduler.framework.plugin import Plugin


class Registry:
    """Plugins by name."""

    def __init__(self, plugins: Iterable[type[Plugin]] = ()) -> None:
        self._known: dict[str, type[Plugin]] = {}
        self.custom: dict[str, str] = {}
        """Names of plugins that are not built in, and where each is from."""
        self.left_out: dict[str, str] = {}
        """Where a plugin could not be loaded from, and why."""
        for plugin in plugins:
            self.add(plugin)

    def add(self, plugin: type[Plugin], *, source: str = "") -> None:
        """Add a plugin; one that is not built in has a source."""
        if not plugin.name:
            raise PluginError(f"{plugin.__name__} needs a name: class X(Plugin, name='x')")
        self._known[plugin.name] = plugin
        if source:
            self.custom[plugin.name] = source

    def get(self, name: str) -> type[Plugin] | None:
        return self._known.get(name)

    def names(self) -> Sequence[str]:
        return sorted(self._known)

    def suggestion(self, name: str) -> str:
        """Return `did you mean 'x'?`, or the list of names."""
        close = difflib.get_close_matches(name, self._known, n=1)
        return f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(self.names())}"
