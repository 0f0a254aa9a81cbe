"""Which ended pods the agent forgets, although their objects still exist. Pure.

The agent keeps the record and the last logs of an ended pod until its object is deleted. Objects of
ended pods can pile up, so number and age are bounded. The logs of a forgotten pod move to the kept
logs, and are found there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MAX_FINISHED_PODS = 5_000
MAX_AGE_S = 30 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class FinishedPod:
    """An ended pod with an object."""

    uid: str
    ended_at: float


def surplus(pods: Iterable[FinishedPod], now: float) -> list[str]:
    """Return the uids of the pods that are too old, and of the oldest beyond the number."""
    newest_first = sorted(pods, key=lambda pod: pod.ended_at, reverse=True)
    return [
        pod.uid
        for number, pod in enumerate(newest_first)
        if number >= MAX_FINISHED_PODS or pod.ended_at < now - MAX_AGE_S
    ]
