"""pdb: pods that a PodDisruptionBudget protects are not victims.

The eviction API would refuse such a pod; checking here lets the plan choose another. Volcano also
protects pods without labels, which no budget covers, and offers all others to `shuffle`. Neither is
done here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.state.dimensions import BoolArray
from hekla.scheduler.state.model import Task

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session


class Pdb(Plugin, name="pdb"):
    """Candidates use up their budgets in order; a candidate beyond a budget is protected."""

    victims_by_class: ClassVar[bool] = True
    protects: ClassVar[bool] = True

    def open(self, session: Session) -> None:
        self._session = session
        self._budgets = [
            (budget, budget.spec.selector.compiled())
            for _, budget in sorted(session.cluster.budgets.items())
            if budget.spec.selector is not None
            and (budget.spec.selector.match_labels or budget.spec.selector.match_expressions)
        ]

    def preemptable(self, task: Task, candidates: Sequence[Task]) -> BoolArray:
        return self._within_budgets(candidates)

    def reclaimable(self, task: Task, candidates: Sequence[Task]) -> BoolArray:
        return self._within_budgets(candidates)

    def unified_evictable(self, context: object, candidates: Sequence[Task]) -> BoolArray:
        return self._within_budgets(candidates)

    def _within_budgets(self, candidates: Sequence[Task]) -> BoolArray:
        left = self._left()
        out = np.ones(len(candidates), dtype=bool)
        for i, victim in enumerate(candidates):
            own = self._covering(victim)
            out[i] = all(left[number] > 0 for number in own)
            if out[i]:
                for number in own:
                    left[number] -= 1
        return out

    def _left(self) -> list[int]:
        """Return what the budgets allow, less the pods evicted in this cycle or just before."""
        left = [budget.status.disruptions_allowed for budget, _ in self._budgets]
        session = self._session
        told = [*session.evicted(), *(session.cluster.tasks[u] for u in session.cluster.leaving)]
        for task in told if self._budgets else ():
            for number in self._covering(task):
                left[number] -= 1
        return left

    def _covering(self, task: Task) -> list[int]:
        labels = {} if task.group is None else task.group.labels
        return [
            number
            for number, (budget, selector) in enumerate(self._budgets)
            if budget.namespace == task.namespace
            and task.name not in budget.status.disrupted_pods
            and selector.matches(labels)
        ]
