"""What was measured on each node, and the same as arrays over the nodes.

A reading is the mean over a period that ended at a time. What a newcomer gets wrong: a node without
a reading, or with an old one, is neither idle nor busy; nothing is known of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from hekla.scheduler.state.dimensions import BoolArray, FloatArray

STALE_S: Final = 300.0
"""A reading older than this does not count; Volcano's number."""
USAGE_PERIOD_S: Final = 600
"""Of the means that `usage` decides by; Volcano's number."""
AS_GIVEN_S: Final = 0
"""The period of a source that has one of its own."""
_DIGITS: Final = 2
_LOWEST, _HIGHEST = -5.0, 1000.0
"""Rates are extrapolated, so a little below nothing is nothing, and much above all is all. What is
outside was not measured on a node."""


class Reading(msgspec.Struct, frozen=True, array_like=True):
    """Percent of a node's CPU and memory in use, and when that was so."""

    cpu: float
    memory: float
    at: float


Readings = Mapping[str, Reading]
"""By node."""
ByPeriod = Mapping[int, Readings]
"""By the seconds over which they are means."""


def percent(value: float) -> float | None:
    """A part of a node in percent, or None if that is no sensible number."""
    if not (math.isfinite(value) and _LOWEST <= value <= _HIGHEST):
        return None
    return round(min(max(value, 0.0), 100.0), _DIGITS)


@dataclass(frozen=True, slots=True)
class Loads:
    """Readings in the order of the nodes; where there is none, `at` is minus infinity."""

    cpu_n: FloatArray
    memory_n: FloatArray
    at_n: FloatArray

    @classmethod
    def over(cls, names: Sequence[str], readings: Readings) -> Loads:
        found = np.zeros((3, len(names)))
        found[2] = -np.inf
        for column, name in enumerate(names):
            reading = readings.get(name)
            if reading is not None:
                found[:, column] = reading.cpu, reading.memory, reading.at
        return cls(found[0], found[1], found[2])

    def is_fresh(self, now: float) -> BoolArray:
        fresh_n: BoolArray = now - self.at_n <= STALE_S
        return fresh_n
