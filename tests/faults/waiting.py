"""Waiting for a cluster whose API server fails now and then."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tools import waiting

from hekla.kube.errors import KubeError

T = TypeVar("T")


def until(condition: Callable[[], T | None]) -> T:
    """Poll until the condition returns something true; a failed API call counts as false."""
    return waiting.until(condition, patience_s=300.0, ignored=KubeError)
