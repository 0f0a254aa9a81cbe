"""Placing tasks whose scores depend on the placement of the tasks before them.

Each task takes the node with the highest score, the first of equals. It changes the score of its
own node, as in `greedy`, and of other nodes as a `SequentialScore` computes. One task costs a sum
and a maximum over the nodes, and no other plugin is called again.

The score function costs as much for one node as for many, so scores are computed in batches: for
the node that needs one, for nodes that are likely to be chosen, and for the best nodes now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from hekla.scheduler.placement.greedy import NO_NODES, Score
from hekla.scheduler.state.dimensions import FloatArray, IntArray

if TYPE_CHECKING:
    from hekla.scheduler.framework.answers import SequentialScore
    from hekla.scheduler.state.model import Task

_AT_ONCE: Final = 1024
"""How many scores a batch computes."""
_FEW: Final = 4
"""The fewest scores that a batch computes for one node."""
_BATCH: Final = 32
"""How many of the best nodes the first batch includes; doubled with each batch."""


def place(
    score: Score,
    capacity_n: IntArray,
    head_n: FloatArray,
    tasks: Sequence[Task],
    sequential: SequentialScore,
) -> IntArray:
    """Return the nodes for these tasks in order; fewer nodes than tasks if no more fit.

    `capacity_n` is how many of them each node takes. `head_n` is the score of each node without
    added tasks and without the sequential score.
    """
    if not capacity_n.any():
        return NO_NODES
    now_n = np.where(capacity_n > 0, head_n, -np.inf)
    table = _ScoreTable(score, capacity_n, sequential)
    out: list[int] = []
    for task in tasks:
        total_n = now_n + sequential.score(task)
        best = int(total_n.argmax())
        if now_n[best] == -np.inf:
            break
        out.append(best)
        now_n[best] = table.step(best, total_n)
        sequential.placed(task, best)
    return np.asarray(out, dtype=np.int64)


class _ScoreTable:
    """The score of each node with the tasks that were added so far."""

    def __init__(self, score: Score, capacity_n: IntArray, sequential: SequentialScore) -> None:
        self._score = score
        self._copies_n = capacity_n
        self._sequential = sequential
        self._known: dict[int, tuple[list[float], int, int]] = {}
        """By node: a list with some of its scores, the position of the score with one task added,
        and the number of tasks up to which it is known."""
        self._added: dict[int, int] = {}
        self._batch = _BATCH

    def step(self, node: int, total_n: FloatArray) -> float:
        """Add a task to a node and return its next score; -inf if the node is full then."""
        added = self._added[node] = self._added.get(node, 0) + 1
        if added >= self._copies_n[node]:
            return -np.inf
        if node not in self._known:
            self._extend(self._with_others(node, total_n), 0)
        elif added > self._known[node][2]:
            self._extend([node], added - 1)
        values, first, _ = self._known[node]
        return values[first + added - 1]

    def _with_others(self, node: int, total_n: FloatArray) -> list[int]:
        """Return a node, and nodes without known scores that may be chosen next."""
        batch = min(self._batch, len(total_n))
        best = np.argpartition(total_n, len(total_n) - batch)[len(total_n) - batch :]
        self._batch *= 2
        chosen = dict.fromkeys((node, *self._sequential.likely_nodes(), *best.tolist()))
        return [one for one in chosen if one not in self._known]

    def _extend(self, chosen: list[int], depth: int) -> None:
        """Compute the next scores of nodes that have `depth` tasks added."""
        most = max(_AT_ONCE // len(chosen), _FEW)
        counts = np.clip(self._copies_n[chosen] - 1 - depth, 0, most)
        starts = np.cumsum(counts) - counts
        nodes = np.repeat(np.asarray(chosen), counts)
        counts_added = np.arange(len(nodes)) - np.repeat(starts, counts) + (depth + 1)
        values = self._score(nodes, counts_added).tolist()
        for one, start, count in zip(chosen, starts.tolist(), counts.tolist(), strict=True):
            self._known[one] = (values, start - depth, depth + count)
