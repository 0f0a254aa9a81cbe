"""Weights of resources, as arguments of Volcano's packing plugins.

CPU and memory have arguments of their own. Other resources are named in a list, and the weight of
each is an argument with a prefix and its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hekla.scheduler.errors import PluginError
from hekla.scheduler.state.dimensions import Dimensions


def read_weights(raw: Mapping[str, Any], prefix: str, resources: str) -> dict[str, int]:
    """Parse the weights of a list of resources; PluginError names an invalid argument."""
    weights: dict[str, int] = {}
    for name in (name.strip() for name in resources.split(",")):
        if name:
            given = raw.get(prefix + name, 1)
            if isinstance(given, bool) or not str(given).lstrip("-").isdecimal():
                raise PluginError(f"{prefix}{name} must be a whole number, and {given!r} is not")
            weights[name] = int(given)
    return weights


def by_row(weights: Mapping[str, int], dimensions: Dimensions) -> dict[int, float]:
    """Return the weights by row, for resources that the cluster has.

    As in Volcano, a negative weight counts as 1, and zero keeps the resource in the divisor.
    """
    found: dict[int, float] = {}
    for name, weight in weights.items():
        row = dimensions.row(name)
        if row is not None:
            found[row] = 1.0 if weight < 0 else float(weight)
    return found
