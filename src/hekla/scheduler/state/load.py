"""Measured loads of nodes, and the same as arrays over the nodes.

A reading is the mean over a period that ended at a time. Note: a node without a reading, or with a
stale one, is neither idle nor overloaded; its load is unknown.
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
"""The age from which a reading is stale; Volcano's number."""
USAGE_PERIOD_S: Final = 600
"""The period of the means that `usage` uses; Volcano's number."""
AS_GIVEN_S: Final = 0
"""The period of a source with a fixed period."""
_DIGITS: Final = 2
_LOWEST, _HIGHEST = -5.0, 1000.0
"""Rates are extrapolated, so values slightly below 0 count as 0 and values above 100 as 100. Values
outside these limits are not loads."""


class Reading(msgspec.Struct, frozen=True, array_like=True):
    """The used CPU and memory of a node in percent, and the time."""

    cpu: float
    memory: float
    at: float


Readings = Mapping[str, Reading]
"""By node."""
ByPeriod = Mapping[int, Readings]
"""By period in seconds."""


def percent(value: float) -> float | None:
    """Return a load in percent, or None if the value is none."""
    if not (math.isfinite(value) and _LOWEST <= value <= _HIGHEST):
        return None
    return round(min(max(value, 0.0), 100.0), _DIGITS)


@dataclass(frozen=True, slots=True)
class Loads:
    """Readings by column; `at` is minus infinity where there is none."""

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
