"""Where tasks go whose scores follow each other: one by one, but with one look at the nodes.

Each task takes the best node, the first of equals, and changes what the next one sees: its own node
by the ladder of `placement` (the scores under 0, 1, 2 … copies), all others as an `InTurn` says. So
a turn costs a sum and a maximum over the nodes, and no plugin but that one is asked again.

Ladders are told in batches: asking for one node costs as much as for many. Who asks for a rung that
is not known gets the next rungs of that node, of those that are likely, and of the best at present.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from hekla.scheduler.dimensions import FloatArray, IntArray
from hekla.scheduler.placement import NOWHERE, Score

if TYPE_CHECKING:
    from hekla.scheduler.model import Task
    from hekla.scheduler.plugin import InTurn

_AT_ONCE: Final = 1024
"""So many rungs are told together, if there are so many."""
_FEW: Final = 4
"""And of one node at least so many."""
_BATCH: Final = 32
"""Of so many nodes besides those that are likely, at first; then of twice as many."""


def place(
    score: Score, copies_n: IntArray, head_n: FloatArray, tasks: Sequence[Task], turn: InTurn
) -> IntArray:
    """The nodes for these tasks in turn; fewer than there are tasks if there is no more room.

    `copies_n` is how many of them each node takes, `head_n` its score with nothing added, without
    what `turn` says.
    """
    if not copies_n.any():
        return NOWHERE
    now_n = np.where(copies_n > 0, head_n, -np.inf)
    ladders = _Ladders(score, copies_n, turn)
    out: list[int] = []
    for task in tasks:
        total_n = now_n + turn.score(task)
        best = int(total_n.argmax())
        if now_n[best] == -np.inf:
            break
        out.append(best)
        now_n[best] = ladders.step(best, total_n)
        turn.came(task, best)
    return np.asarray(out, dtype=np.int64)


class _Ladders:
    """The score of each node under the copies that it was given so far."""

    def __init__(self, score: Score, copies_n: IntArray, turn: InTurn) -> None:
        self._score = score
        self._copies_n = copies_n
        self._turn = turn
        self._known: dict[int, tuple[list[float], int, int]] = {}
        """By node a list with some of its rungs: where in it the first copy's would be, and how
        many copies they go up to."""
        self._given: dict[int, int] = {}
        self._batch = _BATCH

    def step(self, node: int, total_n: FloatArray) -> float:
        """The score of a node that gets one copy more; -inf if it is full then."""
        given = self._given[node] = self._given.get(node, 0) + 1
        if given >= self._copies_n[node]:
            return -np.inf
        if node not in self._known:
            self._tell(self._with_others(node, total_n), 0)
        elif given > self._known[node][2]:
            self._tell([node], given - 1)
        values, first, _ = self._known[node]
        return values[first + given - 1]

    def _with_others(self, node: int, total_n: FloatArray) -> list[int]:
        """A node, and those of which nothing is known that may be next."""
        batch = min(self._batch, len(total_n))
        best = np.argpartition(total_n, len(total_n) - batch)[len(total_n) - batch :]
        self._batch *= 2
        chosen = dict.fromkeys((node, *self._turn.likely(), *best.tolist()))
        return [one for one in chosen if one not in self._known]

    def _tell(self, chosen: list[int], depth: int) -> None:
        """The next rungs of some nodes that have so many copies."""
        most = max(_AT_ONCE // len(chosen), _FEW)
        counts = np.clip(self._copies_n[chosen] - 1 - depth, 0, most)
        starts = np.cumsum(counts) - counts
        nodes = np.repeat(np.asarray(chosen), counts)
        rungs = np.arange(len(nodes)) - np.repeat(starts, counts) + (depth + 1)
        values = self._score(nodes, rungs).tolist()
        for one, start, count in zip(chosen, starts.tolist(), counts.tolist(), strict=True):
            self._known[one] = (values, start - depth, depth + count)
