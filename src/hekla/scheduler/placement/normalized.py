"""Placing with scores that are normalized over the candidates.

The candidates change when a node is full, and their raw scores change as nodes fill. Either may
change the scale. The shortcuts of `greedy` hold until the scale changes; then the search restarts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hekla.scheduler.framework.answers import Normalized
from hekla.scheduler.placement import greedy
from hekla.scheduler.state.dimensions import BoolArray, FloatArray, IntArray

Scale = tuple[float, float]


def place(
    score: greedy.Score,
    feasible_n: BoolArray,
    capacity_n: IntArray,
    parts: Sequence[Normalized],
    count: int,
    head_n: FloatArray,
) -> IntArray:
    """Return nodes for up to `count` equal tasks, as placing one by one would.

    `head_n` is the score of every node without added tasks and without the normalized parts.
    """
    left_n, out = capacity_n.copy(), [greedy.NO_NODES]
    placed_n = np.zeros(len(left_n), dtype=np.int64)
    head_n = head_n.copy()
    while count > 0:
        index = np.flatnonzero(feasible_n & (left_n > 0))
        if len(index) == 0:
            break
        raws = [part.raw(index, placed_n[index]) for part in parts]
        scales = [_scale(part, raw) for part, raw in zip(parts, raws, strict=True)]

        def with_parts(
            nodes: IntArray, added: IntArray, scales: list[Scale] = scales
        ) -> FloatArray:
            total = placed_n[nodes] + added
            found = score(nodes, total)
            for part, scale in zip(parts, scales, strict=True):
                found = found + _scaled(part, part.raw(nodes, total), scale)
            return found

        head = head_n[index]
        for part, raw, scale in zip(parts, raws, scales, strict=True):
            head = head + _scaled(part, raw, scale)
        found = greedy.place(with_parts, index, left_n[index], count, head)
        for part, raw, scale in zip(parts, raws, scales, strict=True):
            found = found[: _steps_until_rescale(found, left_n, placed_n, index, part, raw, scale)]
        out.append(found)
        np.subtract.at(left_n, found, 1)
        np.add.at(placed_n, found, 1)
        count -= len(found)
        if count > 0:
            changed = np.unique(found)
            head_n[changed] = score(changed, placed_n[changed])
    return np.concatenate(out)


def _scale(part: Normalized, raw: FloatArray) -> Scale:
    return (float(raw.min()) if part.between else 0.0, float(raw.max()))


def _scaled(part: Normalized, raw: FloatArray, scale: Scale) -> FloatArray:
    """Scale raw scores to 0..100 × weight, as kube-scheduler normalizes."""
    low, high = scale
    if high == low:
        return np.full(len(raw), 100.0 * part.weight if part.reverse else 0.0)
    scaled: FloatArray = np.floor((raw - low) * 100.0 / (high - low))
    return (100.0 - scaled if part.reverse else scaled) * part.weight


def _steps_until_rescale(
    found: IntArray,
    left_n: IntArray,
    placed_n: IntArray,
    index: IntArray,
    part: Normalized,
    raw: FloatArray,
    scale: Scale,
) -> int:
    """Return how many placements keep the scale of the candidates' raw scores."""
    low, high = scale
    at_high, at_low = np.count_nonzero(raw == high), np.count_nonzero(raw == low)
    alive = len(index)
    nodes = np.unique(found)
    now = dict(zip(nodes.tolist(), raw[np.searchsorted(index, nodes)].tolist(), strict=True))
    left = dict(zip(nodes.tolist(), left_n[nodes].tolist(), strict=True))
    after = _values_after(found, placed_n, part)
    for step, (node, after_it) in enumerate(zip(found.tolist(), after, strict=True)):
        at_high -= now[node] == high
        at_low -= now[node] == low
        left[node] -= 1
        is_outside = False
        if left[node]:
            value = now[node] = now[node] if after_it is None else after_it
            at_high += value == high
            at_low += value == low
            is_outside = value > high or (part.between and value < low)
        else:
            alive -= 1
        if alive and (is_outside or not at_high or (part.between and not at_low)):
            return step + 1
    return len(found)


def _values_after(
    found: IntArray, placed_n: IntArray, part: Normalized
) -> list[float] | list[None]:
    """Return the raw score of each node after its task; None where it does not change."""
    if part.filling is None:
        return [None] * len(found)
    added, counts = [], dict[int, int]()
    for node in found.tolist():
        counts[node] = counts.get(node, 0) + 1
        added.append(counts[node])
    values: list[float] = part.filling(found, placed_n[found] + np.asarray(added)).tolist()
    return values
