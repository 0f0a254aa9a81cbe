"""Placing with scores that count only relative to the other candidates.

The candidates change when a node is full, their values as nodes fill, and the scale with them if it
was the last to set it: up to there the shortcuts of `placement` are right, from there it starts
again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hekla.scheduler import placement
from hekla.scheduler.dimensions import BoolArray, FloatArray, IntArray
from hekla.scheduler.plugin import Normalized

Scale = tuple[float, float]


def place(
    score: placement.Score,
    ok_n: BoolArray,
    copies_n: IntArray,
    parts: Sequence[Normalized],
    count: int,
    head_n: FloatArray,
) -> IntArray:
    """The nodes for up to `count` equal tasks, in the order of placing one by one.

    `head_n` is the score of every node with nothing added, without the parts.
    """
    left_n, out = copies_n.copy(), [placement.NOWHERE]
    placed_n = np.zeros(len(left_n), dtype=np.int64)
    head_n = head_n.copy()
    while count > 0:
        index = np.flatnonzero(ok_n & (left_n > 0))
        if len(index) == 0:
            break
        raws = [part.raw(index, placed_n[index]) for part in parts]
        scales = [_scale(part, raw) for part, raw in zip(parts, raws, strict=True)]

        def with_parts(
            nodes: IntArray, copies: IntArray, scales: list[Scale] = scales
        ) -> FloatArray:
            total = placed_n[nodes] + copies
            found = score(nodes, total)
            for part, scale in zip(parts, scales, strict=True):
                found = found + _scaled(part, part.raw(nodes, total), scale)
            return found

        head = head_n[index]
        for part, raw, scale in zip(parts, raws, scales, strict=True):
            head = head + _scaled(part, raw, scale)
        found = placement.place(with_parts, index, left_n[index], count, head)
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
    """A raw score on the scale 0..100 × weight, as kube-scheduler normalises."""
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
    """How many placements are made before the values of the candidates span another scale."""
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
    """The value of each node found when that task has come too; None where it does not change."""
    if part.filling is None:
        return [None] * len(found)
    copies, counts = [], dict[int, int]()
    for node in found.tolist():
        counts[node] = counts.get(node, 0) + 1
        copies.append(counts[node])
    values: list[float] = part.filling(found, placed_n[found] + np.asarray(copies)).tolist()
    return values
