"""Servers that are away for a while: `hekla down; hekla up`, or a restart of kube-apiserver.

Note: only for servers that have answered before, when the awaited job was read.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from hekla.kube.errors import TransportError

RETRY_S = 1.0
MAX_S = 600.0


class Outage:
    """Says how long to pause before a server is asked again, and raises when it stays away."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._since: float | None = None

    def reached(self) -> None:
        """The server answered."""
        self._since = None

    def pause_s(self, error: TransportError) -> float:
        """Return the pause before the next try; raise the error after `MAX_S`."""
        now = self._now()
        self._since = now if self._since is None else self._since
        if now - self._since > MAX_S:
            raise error
        return RETRY_S
