"""binpack: fill nodes, so that empty nodes stay available for large tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from hekla.scheduler.framework.arguments import Key
from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.plugins.weights import by_row, read_weights
from hekla.scheduler.state.dimensions import EPSILON, FloatArray
from hekla.scheduler.state.model import Task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hekla.scheduler.session.session import Session

PREFIX = "binpack.resources."


class Binpack(Plugin, name="binpack"):
    """Scores the weighted mean of the used fraction with the task, over its resources."""

    by_class: ClassVar[bool] = True
    free_arguments: ClassVar[tuple[str, ...]] = ("binpack.resources.",)

    weight: Annotated[int, Key("binpack.weight")] = 1
    cpu: Annotated[int, Key("binpack.cpu")] = 1
    memory: Annotated[int, Key("binpack.memory")] = 1
    resources: Annotated[str, Key("binpack.resources")] = ""
    """Additional resources, separated by commas; their weights are binpack.resources.NAME."""

    def configure(self, raw: Mapping[str, Any], switches: Mapping[str, bool]) -> None:
        super().configure(raw, switches)
        self._weights = {"cpu": self.cpu, "memory": self.memory}
        self._weights |= read_weights(raw, PREFIX, self.resources)

    def open(self, session: Session) -> None:
        weights = getattr(self, "_weights", {"cpu": self.cpu, "memory": self.memory})
        self._by_row = by_row(weights, session.dimensions)

    def node_order(self, task: Task, nodes: Nodes) -> FloatArray:
        total_n, weights = np.zeros(len(nodes)), 0.0
        if self.weight == 0:
            return total_n
        over_n = np.zeros(len(nodes), dtype=bool)
        for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
            weight = self._by_row.get(row)
            if weight is None or amount < EPSILON:
                continue
            weights += weight
            after_n = nodes.used(row) + amount
            allocatable_n = nodes.allocatable(row)
            over_n |= after_n > allocatable_n
            if weight:
                with np.errstate(divide="ignore", invalid="ignore"):
                    part_n = after_n * weight / allocatable_n
                part_n[allocatable_n == 0] = 0.0
                total_n += part_n
        if weights == 0:
            return np.zeros(len(nodes))
        total_n[over_n] = 0.0
        out: FloatArray = total_n / weights * 100.0 * self.weight
        return out
