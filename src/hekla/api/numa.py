"""NUMA policies of nodes, and the annotation with the CPUs of a pod.

The scheduler, which predicts the node's decision, and the node agent, which makes it, share them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from hekla.units.cpusets import MAX_CPU
from hekla.units.quantity import QuantityError, parse_quantity

NONE: Final = "none"
STATIC: Final = "static"
"""CPU manager policy: pods that request whole CPUs get exclusive CPUs."""
BEST_EFFORT: Final = "best-effort"
RESTRICTED: Final = "restricted"
SINGLE: Final = "single-numa-node"
TOPOLOGY_POLICIES: Final = (NONE, BEST_EFFORT, RESTRICTED, SINGLE)
Taken = dict[int, int]
"""CPUs by NUMA node."""


def fewest(amounts: Sequence[int], required: int) -> int | None:
    """Return how many of the largest amounts are enough; at least one."""
    total = 0
    for number, amount in enumerate(amounts, start=1):
        total += amount
        if total >= required:
            return number
    return None


def write_decision(taken: Taken) -> str:
    """Return the annotation `volcano.sh/topology-decision`."""
    numa = {str(n): {"cpu": str(cpus)} for n, cpus in sorted(taken.items())}
    return json.dumps({"numa": numa}, separators=(",", ":"))


def read_decision(text: str | None) -> Taken:
    """Parse the annotation; invalid text is ignored, since users can set annotations."""
    try:
        decoded = json.loads(text or "{}")["numa"]
        return {_bounded(int(key)): _cpus(amounts) for key, amounts in decoded.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, QuantityError):
        return {}


def _cpus(amounts: Mapping[str, str]) -> int:
    return _bounded(parse_quantity(amounts["cpu"]).value())


def _bounded(number: int) -> int:
    if not 0 <= number <= MAX_CPU:
        raise ValueError(f"{number} is out of range")
    return number
