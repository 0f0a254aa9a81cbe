"""CPUs close together: the policies of nodes, and what was decided, as it is written on a pod.

Shared by the scheduler, which foresees what a node will do, and by our node agent, which does it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from hekla.units.cpusets import MAX_CPU
from hekla.units.quantity import QuantityError, parse_quantity

NONE: Final = "none"
STATIC: Final = "static"
"""Of the CPU manager: pods that ask for whole CPUs get them alone."""
BEST_EFFORT: Final = "best-effort"
RESTRICTED: Final = "restricted"
SINGLE: Final = "single-numa-node"
TOPOLOGY_POLICIES: Final = (NONE, BEST_EFFORT, RESTRICTED, SINGLE)
Taken = dict[int, int]
"""CPUs by NUMA node."""


def fewest(amounts: Sequence[int], wanted: int) -> int | None:
    """How many of some amounts, the largest first, are enough; at least one."""
    total = 0
    for number, amount in enumerate(amounts, start=1):
        total += amount
        if total >= wanted:
            return number
    return None


def write_decision(taken: Taken) -> str:
    """For the annotation `volcano.sh/topology-decision`."""
    numa = {str(n): {"cpu": str(cpus)} for n, cpus in sorted(taken.items())}
    return json.dumps({"numa": numa}, separators=(",", ":"))


def read_decision(text: str | None) -> Taken:
    """The same back; nonsense is nothing, whoever wrote it: pods come with annotations."""
    try:
        found = json.loads(text or "{}")["numa"]
        return {_bounded(int(key)): _cpus(amounts) for key, amounts in found.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, QuantityError):
        return {}


def _cpus(amounts: Mapping[str, str]) -> int:
    return _bounded(parse_quantity(amounts["cpu"]).value())


def _bounded(number: int) -> int:
    if not 0 <= number <= MAX_CPU:
        raise ValueError(f"{number} is more than any machine has, or less than none")
    return number
