"""Labels, taints and names of nodes as integers, so that a selector is a few array operations.

A key is built on its first use, and dropped when labels, taints or columns of nodes change.
Heartbeats change none of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from hekla.api.core import Taint
from hekla.api.pods import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration
from hekla.scheduler.state.dimensions import BoolArray, FloatArray, IntArray

ABSENT = -1
HARD_EFFECTS: Final = ("NoSchedule", "NoExecute")
"""Effects of taints that keep pods off a node."""


class LabelColumn:
    """One label key over all nodes: the value of each node as a number, ABSENT for none."""

    __slots__ = ("ids_n", "values")

    def __init__(self, texts: Iterable[str | None]) -> None:
        self.values: dict[str, int] = {}
        ids = [
            ABSENT if text is None else self.values.setdefault(text, len(self.values))
            for text in texts
        ]
        self.ids_n: IntArray = np.asarray(ids, dtype=np.int64)

    def among(self, wanted: Iterable[str]) -> BoolArray:
        """Return the mask of nodes with one of these values."""
        ids = [self.values[text] for text in wanted if text in self.values]
        if len(ids) == 1:
            return np.equal(self.ids_n, ids[0])
        return np.isin(self.ids_n, ids)

    def where(self, test_by_value: Mapping[int, bool]) -> BoolArray:
        """Return the mask of nodes whose value passes a test; ABSENT never does."""
        table = np.zeros(len(self.values) + 1, dtype=bool)
        for value, is_match in test_by_value.items():
            table[value] = is_match
        return table[self.ids_n]  # ABSENT reads the last entry: False


class NodeLabels:
    """Labels and taints of all nodes, as filters need them."""

    def __init__(
        self,
        names: Sequence[str],
        labels: Sequence[Mapping[str, str]],
        taints: Sequence[tuple[Taint, ...]],
    ) -> None:
        self.names = names
        self._labels = labels
        self._columns: dict[str, LabelColumn] = {}
        kinds: dict[tuple[tuple[str, str, str], ...], int] = {}
        ids = [
            kinds.setdefault(tuple((t.key, t.value, t.effect) for t in of_node), len(kinds))
            for of_node in taints
        ]
        self._taint_ids_n: IntArray = np.asarray(ids, dtype=np.int64)
        self._taint_kinds = [tuple(kind) for kind in kinds]

    def column(self, key: str) -> LabelColumn:
        known = self._columns.get(key)
        if known is None:
            known = LabelColumn(labels.get(key) for labels in self._labels)
            self._columns[key] = known
        return known

    def matches_selector(self, selector: Mapping[str, str]) -> BoolArray:
        """Return the mask of nodes that match a nodeSelector."""
        out = np.ones(len(self.names), dtype=bool)
        for key, value in selector.items():
            out &= self.column(key).among((value,))
        return out

    def matches_terms(self, selector: NodeSelector) -> BoolArray:
        """Return the mask of nodes that match a term of a required node affinity."""
        out = np.zeros(len(self.names), dtype=bool)
        for term in selector.node_selector_terms:
            out |= self.matches_term(term)
        return out

    def matches_term(self, term: NodeSelectorTerm) -> BoolArray:
        """Return the mask of nodes that match all requirements; none for an empty term."""
        if not term.match_expressions and not term.match_fields:
            return np.zeros(len(self.names), dtype=bool)
        out = np.ones(len(self.names), dtype=bool)
        for requirement in term.match_expressions:
            out &= _reservations(self.column(requirement.key), requirement)
        for requirement in term.match_fields:
            if requirement.key == "metadata.name":
                out &= _reservations(LabelColumn(self.names), requirement)
            else:
                out[:] = False
        return out

    def tolerated(self, tolerations: Sequence[Toleration], effects: tuple[str, ...]) -> BoolArray:
        """Return the mask of nodes whose taints with one of these effects are all tolerated."""
        return np.equal(self.intolerable(tolerations, effects), 0)

    def intolerable(
        self, tolerations: Sequence[Toleration], effects: tuple[str, ...]
    ) -> FloatArray:
        """Return the number of taints with one of these effects that are not tolerated."""
        counts = [
            sum(
                1
                for key, value, effect in kind
                if effect in effects
                and not any(tolerates(t, key, value, effect) for t in tolerations)
            )
            for kind in self._taint_kinds
        ]
        if not counts:
            return np.zeros(len(self.names))
        return np.asarray(counts, dtype=np.float64)[self._taint_ids_n]


def tolerates(toleration: Toleration, key: str, value: str, effect: str) -> bool:
    if toleration.effect and toleration.effect != effect:
        return False
    if toleration.key and toleration.key != key:
        return False
    if toleration.operator == "Exists":
        return True
    # An empty key tolerates everything only with Exists.
    return bool(toleration.key) and toleration.value == value


def _reservations(column: LabelColumn, requirement: NodeSelectorRequirement) -> BoolArray:
    match requirement.operator:
        case "In":
            return column.among(requirement.values)
        case "NotIn":
            return ~column.among(requirement.values)
        case "Exists":
            return np.not_equal(column.ids_n, ABSENT)
        case "DoesNotExist":
            return np.equal(column.ids_n, ABSENT)
        case "Gt" | "Lt" if requirement.values and _integer(requirement.values[0]) is not None:
            limit = _integer(requirement.values[0]) or 0
            is_gt = requirement.operator == "Gt"
            return column.where(
                {
                    value: (number > limit if is_gt else number < limit)
                    for text, value in column.values.items()
                    if (number := _integer(text)) is not None
                }
            )
    return np.zeros(len(column.ids_n), dtype=bool)


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
