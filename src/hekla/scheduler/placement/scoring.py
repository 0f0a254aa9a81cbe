"""Scores of nodes: the sum over plugins, for the nodes as they are or with more tasks added."""

from __future__ import annotations

import numpy as np

from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.answers import Normalized, SequentialScore
from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.framework.tiers import FAILED, Tiers
from hekla.scheduler.placement import greedy
from hekla.scheduler.state.dimensions import FloatArray, IntArray
from hekla.scheduler.state.model import Task


class BatchScores:
    """The answers of `batch_node_order` for one task, by kind."""

    __slots__ = ("normalized", "plain", "sequential")

    def __init__(self) -> None:
        self.normalized: list[Normalized] = []
        self.sequential: list[tuple[Plugin, SequentialScore]] = []
        self.plain: list[FloatArray] = []
        """Plain arrays. They may depend on anything, so they hold for one task."""


class Scoring:
    """The scores of one session's nodes."""

    def __init__(self, tiers: Tiers, nodes: Nodes) -> None:
        self._tiers = tiers
        self._nodes = nodes

    def score(self, task: Task, nodes: Nodes) -> FloatArray:
        """Return the score of each node of a view, by the hooks that look at one node alone."""
        total_n = np.zeros(len(nodes))
        for call in self._tiers.calls(hooks.node_order):
            score_n = self._tiers.call(call, hooks.node_order, task, nodes)
            if score_n is FAILED:
                continue
            try:
                total_n += nodes.aligned(score_n)
            except ValueError as error:
                self._tiers.fail(call[0], hooks.node_order, error)
        return total_n

    def function(self, task: Task, extra_n: FloatArray | None = None) -> greedy.Score:
        """Return a function that scores nodes with equal tasks added; `extra_n` is added to it."""

        def score(index: IntArray, added: IntArray) -> FloatArray:
            return self.score(task, self._nodes.with_added(index, added, task.klass))

        if extra_n is None:
            return score
        return lambda index, added: score(index, added) + extra_n[index]

    def batch(self, task: Task, candidates: IntArray) -> BatchScores:
        """Return the scores that depend on the set of candidates."""
        found = BatchScores()
        for call in self._tiers.calls(hooks.batch_node_order):
            answer = self._tiers.call(call, hooks.batch_node_order, task, self._nodes, candidates)
            if answer is FAILED or answer is None:
                continue
            if isinstance(answer, Normalized | SequentialScore | np.ndarray):
                answer = [answer]
            for part in answer:
                if isinstance(part, Normalized):
                    found.normalized.append(part)
                elif isinstance(part, SequentialScore):
                    found.sequential.append((call[0], part))
                else:
                    found.plain.append(part)
        return found
