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
UNSCHEDULABLE: Final = "node(s) were unschedulable"
DRAINED: Final = "node(s) were drained"
RESERVED: Final = "node(s) had capacity that is reserved for other pods"


class Reasons(dict[str, int]):
    """The number of nodes that do not take a task, by reason.

    A node counts by the first filter that rejects it. If filters pass, it counts for every resource
    that it lacks, as in kube-scheduler.
    """

    rejected: int = 0
    """The number of nodes that do not take the task."""


def count_reasons(
    feasibility: Feasibility,
    columns: Columns,
    nodes: Nodes,
    resources: list[str],
    task: Task,
    *,
    filled: bool,
) -> Reasons:
    """Return how many nodes do not take the task, by reason.

    With `filled`, every node counts as holding as many such tasks as fit.
    """
    left_n = np.ones(len(nodes), dtype=bool)
    counts = Reasons()

    def rule_out(mask: BoolArray, reason: str) -> None:
        hit = int(np.count_nonzero(left_n & mask))
        if hit:
            counts[reason] = counts.get(reason, 0) + hit
            left_n[mask] = False

    def rule_out_short(short_rn: list[tuple[BoolArray, str]]) -> None:
        """Count each node for every resource that it lacks."""
        among_n = left_n.copy()
        for short_n, resource in short_rn:
            hit = int(np.count_nonzero(among_n & short_n))
            if hit:
                reason = f"Insufficient {resource}"
                counts[reason] = counts.get(reason, 0) + hit
                left_n[short_n] = False

    allowed = feasibility.allowed_nodes(task)
    if allowed is not None:
        outside_n = np.ones(len(nodes), dtype=bool)
        outside_n[allowed] = False
        rule_out(outside_n, OUTSIDE)
    for mask, reason in feasibility.rejections(task):
        rule_out(mask, reason)
    requests = list(zip(task.klass.rows, task.klass.amounts, strict=True))
    rule_out_short([(columns.idle_rn[r] + EPSILON <= a, resources[r]) for r, a in requests])
    for limit_n, reason in feasibility.limits(task, nodes):
        rule_out(limit_n <= 0, reason)
    capacity_n = feasibility.capacity(task, nodes)
    rule_out(capacity_n <= 0, RESERVED)
    if filled:
        after_rn = [columns.idle_rn[r] - capacity_n * a for r, a in requests]
        rule_out_short(
            [
                (after_n + EPSILON <= amount, resources[row])
                for after_n, (row, amount) in zip(after_rn, requests, strict=True)
            ]
        )
        for limit_n, reason in feasibility.limits(task, nodes):
            rule_out(limit_n <= capacity_n, reason)
        rule_out(left_n.copy(), PODS_EXCEEDED)
    counts.rejected = len(nodes) - int(np.count_nonzero(left_n))
    return counts
