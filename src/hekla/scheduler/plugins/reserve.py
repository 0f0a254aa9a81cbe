"""CPU and memory reserved for idle devices, so that pods without devices do not strand them.

A node with eight idle GPUs and no idle CPU can run no GPU pod. For each listed device, pods that do
not request it must leave this many cores and gigabytes (10^9 bytes) per idle device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.state.dimensions import CPU, MEMORY, Dimensions, FloatArray
from hekla.scheduler.state.model import Task


@dataclass(frozen=True, slots=True)
class Rates:
    """The cores and gigabytes reserved for one idle device."""

    cpu: float = 0.0
    memory: float = 0.0


def copies_beside(
    rates: Mapping[str, Rates], dimensions: Dimensions, task: Task, nodes: Nodes
) -> list[tuple[FloatArray, str]]:
    """Return how many such tasks fit beside the reserved amounts, by device with the reason."""
    rows = {name: row for name in rates if (row := dimensions.row(name)) is not None}
    if any(task.klass.request_r[row] > 0 for row in rows.values()):
        return []
    found = []
    for name, row in sorted(rows.items()):
        most_n = np.full(len(nodes), np.inf)
        # Devices are counted in thousandths, as cpu is; memory in bytes.
        kept = ((CPU, rates[name].cpu), (MEMORY, rates[name].memory * 1e6))
        for resource, per_device in kept:
            amount = float(task.klass.request_r[resource])
            left_n = nodes.idle(resource) - nodes.idle(row) * per_device
            if amount > 0:
                most_n = np.minimum(most_n, np.floor(left_n / amount))
            else:
                most_n[left_n < 0] = 0.0
        most_n[nodes.allocatable(row) <= 0] = np.inf
        found.append((most_n, f"node(s) keep cpu and memory for idle {name}"))
    return found
