"""conformance: pods that are critical for the cluster are never victims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from hekla.api.wellknown import KUBE_SYSTEM
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.state.dimensions import BoolArray
from hekla.scheduler.state.model import Task

CRITICAL = frozenset({"system-cluster-critical", "system-node-critical"})


class Conformance(Plugin, name="conformance"):
    """Protects critical priority classes and the namespace kube-system."""

    victims_by_class: ClassVar[bool] = True
    protects: ClassVar[bool] = True

    def preemptable(self, task: Task, candidates: Sequence[Task]) -> BoolArray:
        return self._ordinary(candidates)

    def reclaimable(self, task: Task, candidates: Sequence[Task]) -> BoolArray:
        return self._ordinary(candidates)

    def unified_evictable(self, context: object, candidates: Sequence[Task]) -> BoolArray:
        return self._ordinary(candidates)

    def _ordinary(self, candidates: Sequence[Task]) -> BoolArray:
        return np.asarray(
            [t.priority_class not in CRITICAL and t.namespace != KUBE_SYSTEM for t in candidates],
            dtype=bool,
        )
