"""Where k equal tasks go: exactly as if placed one by one, at about the cost of one.

One by one means: take the node with the best score, the first of equals; add the task; score that
node again; repeat. A node's score may depend only on that node, so its scores under 0, 1, 2 …
copies are a ladder known in advance, and three shortcuts give the same sequence:

- every ladder falls (spreading): the sequence is the k best rungs of all ladders, sorted;
- every ladder rises (packing): nodes are filled to the brim in order of their first rung;
- neither: a heap over the ladders' present rungs.

Which one holds is found out by looking at the rungs that matter, never assumed. A Hypothesis law
holds all of them equal to `one_by_one`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

import numpy as np

from hekla.scheduler.dimensions import FloatArray, IntArray

Score = Callable[[IntArray, IntArray], FloatArray]
"""Scores of nodes (first) that already got so many copies (second)."""

_PROBES: Final = 8
_AT_ONCE: Final = 1024
"""Rungs that a heap asks for at least, if there are so many."""
_GROWTH: Final = 4
"""How many more rungs of a ladder it asks for, for each that it has."""
NOWHERE: Final[IntArray] = np.zeros(0, dtype=np.int64)


class Habit:
    """What worked last for a class. A heap is always right, so a class whose ladders neither fall
    nor rise is spared finding that out again, but for one time in eight.
    """

    __slots__ = ("heaped",)

    def __init__(self) -> None:
        self.heaped = 0

    @property
    def is_heap(self) -> bool:
        return self.heaped % 8 != 0


def place(
    score: Score,
    index: IntArray,
    copies: IntArray,
    k: int,
    head: FloatArray,
    habit: Habit | None = None,
) -> IntArray:
    """The nodes that k tasks go to, in order; fewer than k if there is no more room.

    `index` are the candidates in ascending order, `copies` how many tasks each can take (at least
    one), `head` the score of each with nothing added.
    """
    if k <= 0 or len(index) == 0:
        return NOWHERE
    if k == 1:
        return index[[int(np.argmax(head))]]
    if k < len(index):
        # A node outside the k best first rungs is never reached: one of those is always left.
        kth = np.partition(head, len(head) - k)[len(head) - k]
        is_kept = head > kth
        ties = np.flatnonzero(head == kth)
        is_kept[ties[: k - np.count_nonzero(is_kept)]] = True
        kept = np.flatnonzero(is_kept)
        index, copies, head = index[kept], copies[kept], head[kept]
    copies = np.minimum(copies, k)
    first = np.argsort(-head, kind="stable")
    if habit is not None and habit.is_heap:
        habit.heaped += 1
        return _heaped(score, index, copies, k, head, first)
    probe = [p for p in first[:_PROBES].tolist() if copies[p] > 1]
    if not probe:
        rises = falls = True
    else:
        second = score(index[probe], np.ones(len(probe), dtype=np.int64))
        rises, falls = bool(np.all(second >= head[probe])), bool(np.all(second <= head[probe]))
    found: IntArray | None = None
    if rises:
        found = _packed(score, index, copies, k, first)
    if found is None and falls:
        found = _spread(score, index, copies, k, head)
    if habit is not None:
        habit.heaped = int(found is None)
    if found is None:
        found = _heaped(score, index, copies, k, head, first)
    return found


def one_by_one(
    score: Score, index: IntArray, copies: IntArray, k: int, head: FloatArray
) -> IntArray:
    """What `place` must equal. Slow and plain."""
    present, used = head.copy(), np.zeros(len(index), dtype=np.int64)
    out: list[int] = []
    while len(out) < k:
        alive = used < copies
        if not alive.any():
            break
        best = int(np.argmax(np.where(alive, present, -np.inf)))
        out.append(int(index[best]))
        used[best] += 1
        if used[best] < copies[best]:
            present[best] = score(index[[best]], used[[best]])[0]
    return np.asarray(out, dtype=np.int64)


def _rungs(counts: IntArray) -> tuple[IntArray, IntArray]:
    """Which ladder and which rung, for ladders of these lengths laid end to end."""
    ladder = np.repeat(np.arange(len(counts)), counts)
    starts = np.cumsum(counts) - counts
    return ladder, np.arange(len(ladder)) - starts[ladder]


def _packed(
    score: Score, index: IntArray, copies: IntArray, k: int, first: IntArray
) -> IntArray | None:
    room = np.cumsum(copies[first])
    last = min(int(np.searchsorted(room, k)), len(first) - 1)
    chosen = first[: last + 1]
    counts = copies[chosen].copy()
    if room[last] > k:
        counts[-1] -= room[last] - k
    ladder, rung = _rungs(counts)
    nodes = index[chosen][ladder]
    if counts.max() > 1:
        values = score(nodes, rung)
        falls = values[1:] < values[:-1]
        if np.any(falls & (ladder[1:] == ladder[:-1])):
            return None
    return nodes


def _spread(
    score: Score, index: IntArray, copies: IntArray, k: int, head: FloatArray
) -> IntArray | None:
    depth = np.ones(len(index), dtype=np.int64)  # rungs known of each ladder
    lowest = head.copy()  # the last of them
    values = [head]
    ladders = [np.arange(len(index))]
    rungs = [np.zeros(len(index), dtype=np.int64)]
    step = 1
    while True:
        known = np.concatenate(values)
        bar = -np.inf if len(known) <= k else np.partition(known, len(known) - k)[len(known) - k]
        # A ladder whose lowest known rung is among the k best may have more such rungs.
        grow = np.flatnonzero((lowest >= bar) & (depth < copies))
        if len(grow) == 0:
            break
        counts = np.minimum(copies[grow] - depth[grow], step)
        ladder, rung = _rungs(counts)
        which, level = grow[ladder], depth[grow][ladder] + rung
        new = score(index[which], level)
        before = np.empty_like(new)
        before[1:] = new[:-1]
        starts = rung == 0
        before[starts] = lowest[which[starts]]
        if np.any(new > before):
            return None
        values.append(new)
        ladders.append(which)
        rungs.append(level)
        depth[grow] += counts
        ends = np.cumsum(counts) - 1
        lowest[grow] = new[ends]
        step *= 2
    value, ladder, rung = np.concatenate(values), np.concatenate(ladders), np.concatenate(rungs)
    kept = np.flatnonzero(value >= bar)
    order = np.lexsort((rung[kept], ladder[kept], -value[kept]))[:k]
    return index[ladder[kept][order]]


class _Ladders:
    """The rungs that a heap asks for, one after the other; told in batches that grow.

    A call of the scorer costs as much for one node as for many. So who asks for more of one ladder
    is told more of others as well that are as short: the best of the beginning will be next.
    """

    def __init__(
        self, score: Score, index: IntArray, copies: IntArray, head: FloatArray, first: IntArray
    ) -> None:
        self._score = score
        self._index = index
        self._limits = copies
        self._order = first.tolist()
        self._batches: dict[int, tuple[int, int]] = {}
        """By length of ladders: where to go on in that order, and how many are told next."""
        self._known: list[list[float]] = [[value] for value in head.tolist()]
        if copies.sum() <= _AT_ONCE:
            self._tell(np.arange(len(index)), 1, _AT_ONCE)

    def rung(self, position: int, level: int) -> float:
        """The score of a node that got so many copies already."""
        known = self._known[position]
        if level >= len(known):
            depth = len(known)
            self._tell(self._with_next(position, depth), depth, _GROWTH * depth)
        return known[level]

    def _with_next(self, position: int, depth: int) -> IntArray:
        """A ladder, and some of those that are as short."""
        at, batch = self._batches.get(depth, (0, max(_AT_ONCE // (_GROWTH * depth), 1)))
        chosen = [position]
        while len(chosen) < batch and at < len(self._order):
            other = self._order[at]
            at += 1
            if other != position and len(self._known[other]) == depth < self._limits[other]:
                chosen.append(other)
        self._batches[depth] = (at, 2 * batch)
        return np.asarray(chosen, dtype=np.int64)

    def _tell(self, positions: IntArray, depth: int, more: int) -> None:
        counts = np.minimum(self._limits[positions] - depth, more)
        ladder, rung = _rungs(counts)
        values = self._score(self._index[positions][ladder], depth + rung).tolist()
        at = 0
        for position, count in zip(positions.tolist(), counts.tolist(), strict=True):
            self._known[position] += values[at : at + count]
            at += count


def _heaped(
    score: Score, index: IntArray, copies: IntArray, k: int, head: FloatArray, first: IntArray
) -> IntArray:
    ladders = _Ladders(score, index, copies, head, first)
    limits, names = copies.tolist(), index.tolist()
    heap = [(-value, position) for position, value in enumerate(head.tolist())]
    heapq.heapify(heap)
    used = [0] * len(names)
    out: list[int] = []
    while heap and len(out) < k:
        position = heap[0][1]
        out.append(names[position])
        used[position] += 1
        if used[position] < limits[position]:
            heapq.heapreplace(heap, (-ladders.rung(position, used[position]), position))
        else:
            heapq.heappop(heap)
    return np.asarray(out, dtype=np.int64)
