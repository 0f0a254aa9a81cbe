"""Pods placed in this cycle, indexed as pod affinity and host ports need them."""

from __future__ import annotations

from hekla.scheduler.state.classes import HostPort, TaskClass
from hekla.scheduler.state.model import LabelGroup
from hekla.scheduler.state.operation import Operation


class PlacedPods:
    """Counts of pods placed in this cycle, by what filters look at and by column."""

    def __init__(self, *, is_affinity_used: bool) -> None:
        self._is_affinity_used = is_affinity_used
        self.groups: dict[LabelGroup, dict[int, int]] = {}
        """By labels; empty in a cluster without pod affinity, like `terms`."""
        self.terms: dict[TaskClass, dict[int, int]] = {}
        """By class, for classes with pod affinity of their own."""
        self.ports: dict[int, dict[HostPort, int]] = {}
        """Host ports by column."""

    def add(self, operation: Operation, sign: int) -> None:
        """Count the tasks of an operation, or with sign -1 take them back."""
        klass = operation.tasks[0].klass
        if klass.ports:
            for column in operation.index.tolist():
                taken = self.ports.setdefault(column, {})
                for port in klass.ports:
                    taken[port] = taken.get(port, 0) + sign
                    if not taken[port]:
                        del taken[port]
        if not self._is_affinity_used:
            return
        for task, column in zip(operation.tasks, operation.index.tolist(), strict=True):
            if task.group is not None:
                counts = self.groups.setdefault(task.group, {})
                counts[column] = counts.get(column, 0) + sign
            if klass.has_pod_terms:
                counts = self.terms.setdefault(klass, {})
                counts[column] = counts.get(column, 0) + sign
