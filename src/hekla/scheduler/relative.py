"""Placing with scores that count only relative to the other candidates.

The candidates change when a node is full, and the scale with them if it was the one that set it: up
to there the shortcuts of `placement` are right, from there it starts again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hekla.scheduler import placement
from hekla.scheduler.dimensions import BoolArray, FloatArray, IntArray
from hekla.scheduler.plugin import Normalized


def place(
    score: placement.Score,
    ok_n: BoolArray,
    copies_n: IntArray,
    parts: Sequence[Normalized],
    count: int,
) -> IntArray:
    """The nodes for up to `count` equal tasks, in the order of placing one by one."""
    left_n, out = copies_n.copy(), [placement.NOWHERE]
    placed_n = np.zeros(len(left_n), dtype=np.int64)
    while count > 0:
        index = np.flatnonzero(ok_n & (left_n > 0))
        if len(index) == 0:
            break
        extra_n = np.zeros(len(left_n))
        for part in parts:
            extra_n[index] += scaled(part, part.raw_n[index])

        def with_extra(
            nodes: IntArray, copies: IntArray, extra_n: FloatArray = extra_n
        ) -> FloatArray:
            return score(nodes, placed_n[nodes] + copies) + extra_n[nodes]

        head = with_extra(index, np.zeros(len(index), dtype=np.int64))
        found = placement.place(with_extra, index, left_n[index], count, head)
        found = found[: _steps_until_rescale(found, left_n, index, parts)]
        out.append(found)
        np.subtract.at(left_n, found, 1)
        np.add.at(placed_n, found, 1)
        count -= len(found)
    return np.concatenate(out)


def scaled(part: Normalized, raw: FloatArray) -> FloatArray:
    """A raw score on the scale 0..100 × weight, as kube-scheduler normalises."""
    low = float(raw.min()) if part.between else 0.0
    span = float(raw.max()) - low
    if span == 0:
        return np.full(len(raw), 100.0 * part.weight if part.reverse else 0.0)
    scaled: FloatArray = np.floor((raw - low) * 100.0 / span)
    return (100.0 - scaled if part.reverse else scaled) * part.weight


def _steps_until_rescale(
    found: IntArray, left_n: IntArray, index: IntArray, parts: Sequence[Normalized]
) -> int:
    """How many placements are made before a node that sets a scale is full."""
    left = {int(i): int(left_n[i]) for i in np.unique(found)}
    alive = np.ones(len(left_n), dtype=bool)
    scales = [_scale(part, part.raw_n[index]) for part in parts]
    for step, node in enumerate(found.tolist()):
        left[node] -= 1
        if left[node]:
            continue
        alive[node] = False
        rest = index[alive[index]]
        if len(rest) == 0:
            return len(found)
        for part, scale in zip(parts, scales, strict=True):
            is_edge = part.raw_n[node] in scale
            if is_edge and _scale(part, part.raw_n[rest]) != scale:
                return step + 1
    return len(found)


def _scale(part: Normalized, raw: FloatArray) -> tuple[float, float]:
    return (float(raw.min()) if part.between else 0.0, float(raw.max()))
