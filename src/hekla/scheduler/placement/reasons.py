"""Reasons why nodes do not take a task, counted over all nodes."""

from __future__ import annotations

from typing import Final

import numpy as np

from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.placement.feasibility import PODS_EXCEEDED, Feasibility
from hekla.scheduler.state.dimensions import EPSILON, BoolArray
from hekla.scheduler.state.matrix import Columns
from hekla.scheduler.state.model import Task

OUTSIDE: Final = "node(s) are outside the HyperNodes that the job may use"
RESERVED: Final = "node(s) had capacity that is reserved for other pods"


def count_reasons(
    feasibility: Feasibility,
    columns: Columns,
    nodes: Nodes,
    resources: list[str],
    task: Task,
    *,
    filled: bool,
) -> dict[str, int]:
    """Return how many nodes do not take the task, by the first reason of each.

    With `filled`, every node counts as holding as many such tasks as fit.
    """
    left_n = np.ones(len(nodes), dtype=bool)
    counts: dict[str, int] = {}

    def rule_out(mask: BoolArray, reason: str) -> None:
        hit = int(np.count_nonzero(left_n & mask))
        if hit:
            counts[reason] = counts.get(reason, 0) + hit
            left_n[mask] = False

    allowed = feasibility.allowed_nodes(task)
    if allowed is not None:
        outside_n = np.ones(len(nodes), dtype=bool)
        outside_n[allowed] = False
        rule_out(outside_n, OUTSIDE)
    for mask, reason in feasibility.rejections(task):
        rule_out(mask, reason)
    requests = list(zip(task.klass.rows, task.klass.amounts, strict=True))
    for row, amount in requests:
        rule_out(columns.idle_rn[row] + EPSILON <= amount, f"Insufficient {resources[row]}")
    for limit_n, reason in feasibility.limits(task, nodes):
        rule_out(limit_n <= 0, reason)
    capacity_n = feasibility.capacity(task, nodes)
    rule_out(capacity_n <= 0, RESERVED)
    if filled:
        for row, amount in requests:
            after_n = columns.idle_rn[row] - capacity_n * amount
            rule_out(after_n + EPSILON <= amount, f"Insufficient {resources[row]}")
        for limit_n, reason in feasibility.limits(task, nodes):
            rule_out(limit_n <= capacity_n, reason)
        rule_out(left_n.copy(), PODS_EXCEEDED)
    return counts
