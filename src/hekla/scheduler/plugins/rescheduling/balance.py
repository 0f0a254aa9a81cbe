"""Overloaded nodes, nodes that can take more pods, and the effect of moving a pod.

CPU and memory are measured loads; pods are counted. A pod that moves is assumed to use its
requests, or kube-scheduler's defaults without requests: a pod of weight 0 would be evicted to no
effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from hekla.scheduler.errors import PluginError
from hekla.scheduler.state.classes import TaskClass
from hekla.scheduler.state.dimensions import CPU, MEMORY, BoolArray, FloatArray
from hekla.scheduler.state.load import Loads
from hekla.scheduler.state.matrix import Columns

DIMENSIONS: Final = ("cpu", "memory", "pods")
CRITICAL: Final = "system-cluster-critical"
PARAMS: Final = ("thresholds", "targetThresholds", "thresholdPriorityClassName", "nodeFit")
_SLACK: Final = 1e-9
"""The percentage by which sums of equal numbers may differ by the order of summation."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The parameters of `lowNodeUtilization`, in percent by dimension."""

    low: tuple[float, ...] = (100.0, 100.0, 100.0)
    """A node below all of these can take more pods."""
    target: tuple[float, ...] = (100.0, 100.0, 100.0)
    """A node above one of these is overloaded. No pod is moved to a node that would be."""
    priority_class: str = CRITICAL
    """Pods of this priority and above are not moved."""
    node_fit: bool = True
    """Whether the target node must pass all filters. Resources must fit in any case."""

    @classmethod
    def parse(cls, params: Mapping[str, Any]) -> Thresholds:
        """Parse the parameters; PluginError names the parameter and its valid values."""
        for key in params:
            if key not in PARAMS:
                raise PluginError(
                    f"strategies: lowNodeUtilization has no parameter {key!r}; "
                    f"there are: {', '.join(PARAMS)}"
                )
        low, target = _percents(params, "thresholds"), _percents(params, "targetThresholds")
        for name, one, other in zip(DIMENSIONS, low, target, strict=True):
            if one > other:
                raise PluginError(
                    f"strategies: thresholds has {name} {one:g}, above {other:g} of "
                    "targetThresholds; a node cannot be free and too busy at once"
                )
        name = params.get("thresholdPriorityClassName", CRITICAL)
        if not isinstance(name, str) or not name:
            raise PluginError("strategies: thresholdPriorityClassName must name a PriorityClass")
        fit = params.get("nodeFit", True)
        if not isinstance(fit, bool):
            raise PluginError(f"strategies: nodeFit must be true or false, and {fit!r} is not")
        return cls(low, target, name, fit)


def _percents(params: Mapping[str, Any], key: str) -> tuple[float, ...]:
    given = params.get(key, {})
    if not isinstance(given, Mapping):
        raise PluginError(f"strategies: {key} must be a map like {{cpu: 50, memory: 50}}")
    found = dict.fromkeys(DIMENSIONS, 100.0)
    for name, value in given.items():
        name = "pods" if name == "pod" else name  # Volcano reads one and documents the other
        if name not in DIMENSIONS:
            raise PluginError(
                f"strategies: {key} has {name!r}; it may have: {', '.join(DIMENSIONS)}"
            )
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= 100:
            raise PluginError(
                f"strategies: {key} has {name}: {value!r}; it must be from 0 to 100 percent"
            )
        found[name] = float(value)
    return tuple(found.values())


class Balance:
    """The loads of nodes, updated as pods are chosen to move."""

    def __init__(
        self, columns: Columns, loads: Loads, fresh_n: BoolArray, thresholds: Thresholds
    ) -> None:
        self._capacity_dn: FloatArray = np.stack(
            (columns.allocatable_rn[CPU], columns.allocatable_rn[MEMORY], columns.max_pods_n)
        ).astype(np.float64)
        is_whole_n = fresh_n & (self._capacity_dn > 0).all(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            pods_n = np.where(is_whole_n, 100.0 * columns.pods_n / columns.max_pods_n, 0.0)
        self.usage_dn: FloatArray = np.stack((loads.cpu_n, loads.memory_n, pods_n))
        self._target_d: FloatArray = np.asarray(thresholds.target)[:, None]
        low_d = np.asarray(thresholds.low)[:, None]
        takes_n = is_whole_n & columns.is_ready_n & ~columns.is_unschedulable_n
        self.low_n: BoolArray = takes_n & (self.usage_dn < low_d).all(axis=0)
        """Nodes that can take more pods."""
        self.high_n: BoolArray = is_whole_n & (self.usage_dn > self._target_d).any(axis=0)
        """Overloaded nodes."""

    def busiest_first(self) -> list[int]:
        """Return the columns of overloaded nodes, the busiest first."""
        columns = np.flatnonzero(self.high_n)
        load_n = self.usage_dn[0, columns] + self.usage_dn[1, columns]
        found: list[int] = columns[np.argsort(-load_n, kind="stable")].tolist()
        return found

    def over(self, column: int) -> BoolArray:
        """Return the dimensions in which a node is overloaded."""
        over_d: BoolArray = self.usage_dn[:, column] > self._target_d[:, 0] + _SLACK
        return over_d

    def takers(self, klass: TaskClass) -> BoolArray:
        """Return the nodes that would not be overloaded with one more such pod."""
        with np.errstate(divide="ignore", invalid="ignore"):
            more_dn = 100.0 * weight_of(klass)[:, None] / self._capacity_dn
            fits_dn = self.usage_dn + more_dn <= self._target_d + _SLACK
        takers_n: BoolArray = self.low_n & fits_dn.all(axis=0)
        return takers_n

    def move(self, klass: TaskClass, source: int, target: int) -> None:
        """Move the load of one such pod to another node."""
        weight_d = weight_of(klass)
        self.usage_dn[:, source] -= 100.0 * weight_d / self._capacity_dn[:, source]
        self.usage_dn[:, target] += 100.0 * weight_d / self._capacity_dn[:, target]


def weight_of(klass: TaskClass) -> FloatArray:
    """Return the assumed load of a pod: CPU in thousandths, memory in bytes, one pod."""
    return np.asarray((klass.nonzero_cpu, klass.nonzero_memory, 1.0))
