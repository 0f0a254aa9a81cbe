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
        for plugin in plugins:
            self.add(plugin)

    def add(self, plugin: type[Plugin]) -> None:
        if not plugin.name:
            raise PluginError(f"{plugin.__name__} needs a name: class X(Plugin, name='x')")
        self._known[plugin.name] = plugin

    def get(self, name: str) -> type[Plugin] | None:
        return self._known.get(name)

    def names(self) -> Sequence[str]:
        return sorted(self._known)

    def suggestion(self, name: str) -> str:
        """Return `did you mean 'x'?`, or the list of names."""
        close = difflib.get_close_matches(name, self._known, n=1)
        return f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(self.names())}"
