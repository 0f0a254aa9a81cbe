"""Unschedulable nodes, by the reason for which they were drained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from hekla.api.drain import drain_reason
from hekla.scheduler.placement.reasons import DRAINED, UNSCHEDULABLE
from hekla.scheduler.state.dimensions import BoolArray
from hekla.scheduler.state.model import Node

MAX_REASONS: Final = 5
"""Distinct reasons of drains in a verdict; further nodes are counted without theirs."""


def rejections(nodes: Sequence[Node], is_unschedulable_n: BoolArray) -> list[tuple[BoolArray, str]]:
    """Return a mask of the unschedulable nodes for each reason; rare reasons share one."""
    columns: dict[str, list[int]] = {}
    for index in np.flatnonzero(is_unschedulable_n).tolist():
        columns.setdefault(drain_reason(nodes[index].annotations), []).append(index)
    named = sorted(filter(None, columns), key=lambda reason: (-len(columns[reason]), reason))
    texts = {reason: f"{DRAINED}: {reason}" for reason in named[:MAX_REASONS]}
    masks: dict[str, BoolArray] = {}
    for reason, indices in columns.items():
        text = texts.get(reason, DRAINED) if reason else UNSCHEDULABLE
        masks.setdefault(text, np.zeros(len(is_unschedulable_n), dtype=bool))[indices] = True
    return [(mask, text) for text, mask in sorted(masks.items(), key=lambda item: item[0])]
