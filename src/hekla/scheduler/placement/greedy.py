"""Placing k equal tasks: the result of placing them one by one, at about the cost of one search.

One by one means: take the node with the highest score, the first of equals; add the task; score
that node again; repeat. The score of a node depends on that node alone, so its scores with 0, 1,
2 … tasks added form a row of a score table. Three shortcuts give the same sequence:

- every row falls (spreading): the sequence is the k highest entries of the table, sorted;
- every row rises (packing): nodes are filled in order of their first entry;
- neither: a heap over the current entry of each row.

Which one applies is checked on the entries that matter, never assumed. A Hypothesis law compares
all of them with `one_by_one`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

import numpy as np

from hekla.scheduler.state.dimensions import FloatArray, IntArray

Score = Callable[[IntArray, IntArray], FloatArray]
"""A function from nodes and the number of tasks added to each to their scores."""

_PROBES: Final = 8
_AT_ONCE: Final = 1024
"""How many scores the heap computes at once, at least."""
_GROWTH: Final = 4
"""How many more scores of a row the heap computes, for each that it has."""
NO_NODES: Final[IntArray] = np.zeros(0, dtype=np.int64)


class HeapHint:
    """Remembers that the heap was needed for a class.

    The heap is always right. A class whose rows neither fall nor rise uses it without checking the
    rows again, seven times out of eight.
    """

    __slots__ = ("heap_runs",)

    def __init__(self) -> None:
        self.heap_runs = 0

    @property
    def is_heap(self) -> bool:
        return self.heap_runs % 8 != 0


def place(
    score: Score,
    index: IntArray,
    capacity: IntArray,
    k: int,
    head: FloatArray,
    hint: HeapHint | None = None,
) -> IntArray:
    """Return the nodes of k tasks in order; fewer than k if no more fit.

    `index` are the candidates in ascending order, `capacity` is how many tasks each takes (at least
    one), `head` the score of each without added tasks.
    """
    if k <= 0 or len(index) == 0:
        return NO_NODES
    if k == 1:
        return index[[int(np.argmax(head))]]
    if k < len(index):
        # A node outside the k highest first entries is never reached: one of those is always left.
        kth = np.partition(head, len(head) - k)[len(head) - k]
        is_kept = head > kth
        ties = np.flatnonzero(head == kth)
        is_kept[ties[: k - np.count_nonzero(is_kept)]] = True
        kept = np.flatnonzero(is_kept)
        index, capacity, head = index[kept], capacity[kept], head[kept]
    capacity = np.minimum(capacity, k)
    first = np.argsort(-head, kind="stable")
    if hint is not None and hint.is_heap:
        hint.heap_runs += 1
        return _by_heap(score, index, capacity, k, head, first)
    probe = [p for p in first[:_PROBES].tolist() if capacity[p] > 1]
    if not probe:
        rises = falls = True
    else:
        second = score(index[probe], np.ones(len(probe), dtype=np.int64))
        rises, falls = bool(np.all(second >= head[probe])), bool(np.all(second <= head[probe]))
    found: IntArray | None = None
    if rises:
        found = _by_packing(score, index, capacity, k, first)
    if found is None and falls:
        found = _by_spreading(score, index, capacity, k, head)
    if hint is not None:
        hint.heap_runs = int(found is None)
    if found is None:
        found = _by_heap(score, index, capacity, k, head, first)
    return found


def one_by_one(
    score: Score, index: IntArray, capacity: IntArray, k: int, head: FloatArray
) -> IntArray:
    """Return what `place` must equal. Slow and simple, for tests."""
    present, used = head.copy(), np.zeros(len(index), dtype=np.int64)
    out: list[int] = []
    while len(out) < k:
        alive = used < capacity
        if not alive.any():
            break
        best = int(np.argmax(np.where(alive, present, -np.inf)))
        out.append(int(index[best]))
        used[best] += 1
        if used[best] < capacity[best]:
            present[best] = score(index[[best]], used[[best]])[0]
    return np.asarray(out, dtype=np.int64)


def _table_entries(counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return row and position of each entry, for rows of these lengths laid end to end."""
    row = np.repeat(np.arange(len(counts)), counts)
    starts = np.cumsum(counts) - counts
    return row, np.arange(len(row)) - starts[row]


def _by_packing(
    score: Score, index: IntArray, capacity: IntArray, k: int, first: IntArray
) -> IntArray | None:
    total = np.cumsum(capacity[first])
    last = min(int(np.searchsorted(total, k)), len(first) - 1)
    chosen = first[: last + 1]
    counts = capacity[chosen].copy()
    if total[last] > k:
        counts[-1] -= total[last] - k
    row, position = _table_entries(counts)
    nodes = index[chosen][row]
    if counts.max() > 1:
        values = score(nodes, position)
        falls = values[1:] < values[:-1]
        if np.any(falls & (row[1:] == row[:-1])):
            return None
    return nodes


def _by_spreading(
    score: Score, index: IntArray, capacity: IntArray, k: int, head: FloatArray
) -> IntArray | None:
    depth = np.ones(len(index), dtype=np.int64)  # known entries of each row
    lowest = head.copy()  # the last of them
    values = [head]
    rows = [np.arange(len(index))]
    positions = [np.zeros(len(index), dtype=np.int64)]
    step = 1
    while True:
        known = np.concatenate(values)
        bar = -np.inf if len(known) <= k else np.partition(known, len(known) - k)[len(known) - k]
        # A row whose lowest known entry is among the k highest may have more of them.
        grow = np.flatnonzero((lowest >= bar) & (depth < capacity))
        if len(grow) == 0:
            break
        counts = np.minimum(capacity[grow] - depth[grow], step)
        row, position = _table_entries(counts)
        which, level = grow[row], depth[grow][row] + position
        new = score(index[which], level)
        before = np.empty_like(new)
        before[1:] = new[:-1]
        starts = position == 0
        before[starts] = lowest[which[starts]]
        if np.any(new > before):
            return None
        values.append(new)
        rows.append(which)
        positions.append(level)
        depth[grow] += counts
        ends = np.cumsum(counts) - 1
        lowest[grow] = new[ends]
        step *= 2
    value, row, position = np.concatenate(values), np.concatenate(rows), np.concatenate(positions)
    kept = np.flatnonzero(value >= bar)
    order = np.lexsort((position[kept], row[kept], -value[kept]))[:k]
    return index[row[kept][order]]


class _ScoreTable:
    """The entries that the heap needs, computed in growing batches.

    The score function costs as much for one node as for many. So when one row needs more entries,
    other rows of the same length get more too, those with the highest first entry first.
    """

    def __init__(
        self, score: Score, index: IntArray, capacity: IntArray, head: FloatArray, first: IntArray
    ) -> None:
        self._score = score
        self._index = index
        self._limits = capacity
        self._order = first.tolist()
        self._batches: dict[int, tuple[int, int]] = {}
        """By length of rows: the next position in that order, and the size of the next batch."""
        self._known: list[list[float]] = [[value] for value in head.tolist()]
        if capacity.sum() <= _AT_ONCE:
            self._extend(np.arange(len(index)), 1, _AT_ONCE)

    def score_at(self, position: int, added: int) -> float:
        """Return the score of a node with `added` tasks."""
        known = self._known[position]
        if added >= len(known):
            depth = len(known)
            self._extend(self._with_next(position, depth), depth, _GROWTH * depth)
        return known[added]

    def _with_next(self, position: int, depth: int) -> IntArray:
        """Return a row, and some rows of the same length."""
        at, batch = self._batches.get(depth, (0, max(_AT_ONCE // (_GROWTH * depth), 1)))
        chosen = [position]
        while len(chosen) < batch and at < len(self._order):
            other = self._order[at]
            at += 1
            if other != position and len(self._known[other]) == depth < self._limits[other]:
                chosen.append(other)
        self._batches[depth] = (at, 2 * batch)
        return np.asarray(chosen, dtype=np.int64)

    def _extend(self, positions: IntArray, depth: int, more: int) -> None:
        counts = np.minimum(self._limits[positions] - depth, more)
        row, position = _table_entries(counts)
        values = self._score(self._index[positions][row], depth + position).tolist()
        at = 0
        for position, count in zip(positions.tolist(), counts.tolist(), strict=True):
            self._known[position] += values[at : at + count]
            at += count


def _by_heap(
    score: Score, index: IntArray, capacity: IntArray, k: int, head: FloatArray, first: IntArray
) -> IntArray:
    table = _ScoreTable(score, index, capacity, head, first)
    limits, names = capacity.tolist(), index.tolist()
    heap = [(-value, position) for position, value in enumerate(head.tolist())]
    heapq.heapify(heap)
    used = [0] * len(names)
    out: list[int] = []
    while heap and len(out) < k:
        position = heap[0][1]
        out.append(names[position])
        used[position] += 1
        if used[position] < limits[position]:
            heapq.heapreplace(heap, (-table.score_at(position, used[position]), position))
        else:
            heapq.heappop(heap)
    return np.asarray(out, dtype=np.int64)
