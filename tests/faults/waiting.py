"""Bounded waits for what others bring about."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from hekla.kube.errors import KubeError

T = TypeVar("T")
PATIENCE_S = 300.0
_POLL_S = 0.05


def until(holds: Callable[[], T | None]) -> T:
    """What it gives once that is true. A server that is not there just now is asked again."""
    deadline = time.monotonic() + PATIENCE_S
    last: KubeError | None = None
    while True:
        try:
            found = holds()
            if found:
                return found
        except KubeError as error:
            last = error
        assert time.monotonic() < deadline, f"not so after {PATIENCE_S:.0f} s; {last or ''}"
        time.sleep(_POLL_S)
