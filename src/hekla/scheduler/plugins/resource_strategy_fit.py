"""resource-strategy-fit: pack by one resource while spreading by another, and keep scarce ones
free.

Each resource has a type (`MostAllocated` packs, `LeastAllocated` spreads) and a weight. A name may
end in `*`; the longest match counts. A pod may have its own strategy in annotations.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import numpy as np

from hekla.scheduler.errors import PluginError
from hekla.scheduler.framework.arguments import Key
from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.plugins.reserve import Rates, copies_beside
from hekla.scheduler.state.dimensions import EPSILON, FloatArray
from hekla.scheduler.state.model import Task

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session

MOST, LEAST = "MostAllocated", "LeastAllocated"
DEFAULT_WEIGHT: Final = 10
Strategy = tuple[str, float]
"""Type and weight."""


class ResourceStrategyFit(Plugin, name="resource-strategy-fit"):
    """Scores the used fraction of each resource with the task, by its type."""

    by_class: ClassVar[bool] = True

    weight: Annotated[int, Key("resourceStrategyFitWeight")] = DEFAULT_WEIGHT
    resources: Annotated[dict[str, Any], Key("resources")] = {}  # noqa: RUF012 - copied per plugin
    sra: Annotated[dict[str, Any], Key("sra")] = {}  # noqa: RUF012
    proportional: Annotated[dict[str, Any], Key("proportional")] = {}  # noqa: RUF012

    def configure(self, raw: Mapping[str, Any], switches: Mapping[str, bool]) -> None:
        super().configure(raw, switches)
        self._settle()

    def _settle(self) -> None:
        self._strategies = _strategies(self.resources)
        self._sra_weights = _sra_weights(self.sra)
        self._rates = _rates(self.proportional)
        self._sra_weight = float(_number(self.sra, "weight", "sra.weight", 1))

    def open(self, session: Session) -> None:
        if not hasattr(self, "_strategies"):
            self._settle()
        self._session = session
        self._weight = float(self.weight if self.weight >= 0 else DEFAULT_WEIGHT)

    def node_capacity(self, task: Task, nodes: Nodes) -> list[tuple[FloatArray, str]]:
        return copies_beside(self._rates, self._session.dimensions, task, nodes)

    def node_order(self, task: Task, nodes: Nodes) -> FloatArray:
        score_n = self._fit(task, nodes) * self._weight
        if self._sra_weights:
            score_n += self._spare(task, nodes) * self._sra_weight
        return score_n

    def _fit(self, task: Task, nodes: Nodes) -> FloatArray:
        strategies = self._strategies_of(task)
        total_n, weights = np.zeros(len(nodes)), 0.0
        over_n = np.zeros(len(nodes), dtype=bool)
        names = self._session.dimensions.names
        for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
            found = None if amount < EPSILON else _longest(strategies, names[row])
            if found is None:
                continue
            kind, weight = found
            offered_n = nodes.allocatable(row)
            after_n = nodes.used(row) + amount
            over_n |= after_n > offered_n
            full_n = after_n / np.where(offered_n > 0, offered_n, 1.0)
            total_n += weight * (full_n if kind == MOST else 1.0 - full_n)
            weights += weight
        if weights == 0:
            return np.zeros(len(nodes))
        total_n[over_n] = 0.0
        out: FloatArray = total_n / weights * 100.0
        return out

    def _strategies_of(self, task: Task) -> Mapping[str, Strategy]:
        """Return the pod's own strategy if it names a type; none if its weights are invalid."""
        if task.klass.strategy is None:
            return self._strategies
        kind, weights = task.klass.strategy
        try:
            given = json.loads(weights)
            return {str(name): (kind, float(weight)) for name, weight in given.items()}
        except (ValueError, TypeError, AttributeError):
            return {}

    def _spare(self, task: Task, nodes: Nodes) -> FloatArray:
        """Score nodes with fewer scarce resources higher; 0 without a requested one."""
        dimensions = self._session.dimensions
        had_n, lacks_n = np.zeros(len(nodes)), np.zeros(len(nodes), dtype=bool)
        for name, weight in self._sra_weights.items():
            row = dimensions.row(name)
            if row is not None:
                had_n += weight * (nodes.allocatable(row) > 0)
        for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
            if amount >= EPSILON:
                lacks_n |= nodes.allocatable(row) <= 0
        total = sum(self._sra_weights.values())
        out: FloatArray = (1.0 - had_n / total) * 100.0 if total else np.zeros(len(nodes))
        out[lacks_n] = 0.0
        return out


def _strategies(given: Mapping[str, Any]) -> dict[str, Strategy]:
    """Return type and weight by name; invalid values are LeastAllocated and 1, as in Volcano."""
    if not given:
        return {"cpu": (LEAST, 1.0), "memory": (LEAST, 1.0)}
    found: dict[str, Strategy] = {}
    for name, one in given.items():
        if name == "*" or "*" in name[:-1]:
            continue
        if not isinstance(one, Mapping):
            raise PluginError(f"resources: {name} must be a map with type and weight")
        kind = one.get("type", LEAST)
        weight = _number(one, "weight", f"resources.{name}.weight", 1)
        found[name] = (kind if kind in (MOST, LEAST) else LEAST, float(weight if weight > 0 else 1))
    return found


def _longest(strategies: Mapping[str, Strategy], name: str) -> Strategy | None:
    """Return the entry of a resource: its own, or the longest prefix."""
    exact = strategies.get(name)
    if exact is not None:
        return exact
    fitting = [key for key in strategies if key.endswith("*") and name.startswith(key[:-1])]
    return strategies[max(fitting, key=len)] if fitting else None


def _sra_weights(given: Mapping[str, Any]) -> dict[str, float]:
    if not given.get("enable", False):
        return {}
    weights = given.get("resourceWeight") or {}
    return {
        name: float(_number(weights, name, f"sra.resourceWeight.{name}", 1))
        for name in _names(given, "sra.resources")
    }


def _rates(given: Mapping[str, Any]) -> dict[str, Rates]:
    if not given.get("enable", False):
        return {}
    each = given.get("resourceProportion") or {}
    return {
        name: Rates(
            *(
                float(_number(each, f"{name}.{part}", f"proportional.{name}.{part}", 0))
                for part in ("cpu", "memory")
            )
        )
        for name in _names(given, "proportional.resources")
    }


def _names(given: Mapping[str, Any], key: str) -> list[str]:
    text = given.get("resources", "")
    if not isinstance(text, str):
        raise PluginError(f"{key} must be text with names separated by commas, and {text!r} is not")
    return [name.strip() for name in text.split(",") if name.strip()]


def _number(given: Mapping[str, Any], key: str, shown: str, default: float) -> float:
    value = given.get(key, default)
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (ValueError, TypeError):
        raise PluginError(f"{shown} must be a number, and {value!r} is not") from None
