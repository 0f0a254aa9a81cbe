"""What a scheduler decided about NUMA nodes, as it is written on a pod: CPUs from each of them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from hekla.units.quantity import QuantityError, parse_quantity

Taken = dict[int, int]
"""CPUs by NUMA node."""


def write_decision(taken: Taken) -> str:
    """For the annotation `volcano.sh/topology-decision`."""
    numa = {str(n): {"cpu": str(cpus)} for n, cpus in sorted(taken.items())}
    return json.dumps({"numa": numa}, separators=(",", ":"))


def read_decision(text: str | None) -> Taken:
    """The same back; nonsense is nothing."""
    try:
        found = json.loads(text or "{}")["numa"]
        return {int(key): _cpus(amounts) for key, amounts in found.items()}
    except (ValueError, TypeError, KeyError, AttributeError, QuantityError):
        return {}


def _cpus(amounts: Mapping[str, str]) -> int:
    return int(parse_quantity(amounts["cpu"]).value())
