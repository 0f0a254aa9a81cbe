"""Servers that are away for a while: `hekla down; hekla up`, or a restart of kube-apiserver."""

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
        self._was_reached = False
        self._since: float | None = None

    def reached(self) -> None:
        """The server answered."""
        self._was_reached, self._since = True, None

    def pause_s(self, error: TransportError) -> float:
        """Return the pause before the next try.

        Raise the error of a server that never answered, or has been away for `MAX_S`.
        """
        now = self._now()
        self._since = now if self._since is None else self._since
        if not self._was_reached or now - self._since > MAX_S:
            raise error
        return RETRY_S
