"""What a scheduler decided about NUMA nodes, as it is written on a pod: CPUs from each of them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from hekla.units.cpusets import MAX_CPU
from hekla.units.quantity import QuantityError, parse_quantity

Taken = dict[int, int]
"""CPUs by NUMA node."""


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
