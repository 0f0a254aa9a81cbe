"""How much work something is, counted: a clock would judge the machine and its other users."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def steps(function: Callable[..., Any], *arguments: Any) -> int:
    """How many functions are called, Python's own and ours."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function(*arguments)
    finally:
        sys.setprofile(before)
    return count
