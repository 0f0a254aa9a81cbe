"""Hierarchical dominant resource fairness: shares in a tree of queues, with jobs as leaves.

Two annotations of a queue define its position: `volcano.sh/hierarchy: root/eng/dev` and
`volcano.sh/hierarchy-weights: 1/2/8`. The share of a branch is that of its children together, where
children that can still grow are scaled down to the smallest share among them. So a branch is not
charged for what only one of its children uses. Saturated branches, which can use no more, come
last.

The tree is computed again on the first read after a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hekla.api.wellknown import HIERARCHY, HIERARCHY_WEIGHTS
from hekla.scheduler.state.dimensions import EPSILON, FloatArray, largest_share
from hekla.scheduler.state.model import Job, Queue


class Branch:
    """A branch of the tree."""

    __slots__ = ("allocated_r", "children", "is_saturated", "jobs", "share", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.children: dict[str, Branch] = {}
        self.jobs: list[Job] = []
        self.share = 0.0
        self.is_saturated = True
        self.allocated_r: FloatArray


class Hierarchy:
    """The tree of all queues, and their order."""

    def __init__(self, queues: Iterable[Queue], total_r: FloatArray, rows: Sequence[int]) -> None:
        self._total_r = total_r
        self._rows = rows
        self._root = Branch(1.0)
        self._paths: dict[str, list[Branch]] = {}
        self._requests: dict[str, FloatArray] = {}
        for queue in sorted(queues, key=lambda queue: queue.name):
            path = self._paths[queue.name] = self._path(queue)
            path[-1].jobs += [job for _, job in sorted(queue.jobs.items())]
            for job in queue.jobs.values():
                self._requests[job.key] = job.allocated_r + job.pending_r
        self._is_stale = True

    def changed(self) -> None:
        self._is_stale = True

    def key(self, queue: Queue) -> tuple[tuple[bool, float], ...]:
        """Return the sort key of a queue: from the root down, unsaturated branches first, then the
        smaller weighted share.

        If one path is a prefix of the other, the shorter path comes first.
        """
        self._refresh()
        return tuple(
            (branch.is_saturated, branch.share / branch.weight)
            for branch in self._paths.get(queue.name, ())
        )

    def _path(self, queue: Queue) -> list[Branch]:
        names = queue.annotations.get(HIERARCHY, "").split("/")
        weights = queue.annotations.get(HIERARCHY_WEIGHTS, "").split("/")
        path = [self._root]
        for depth, name in enumerate(names[1:], start=1):
            weight = _weight(weights[depth]) if depth < len(weights) else 1.0
            path.append(path[-1].children.setdefault(name, Branch(weight)))
        return path

    def _refresh(self) -> None:
        if not self._is_stale:
            return
        used_r = self._used()
        self._demanding = used_r < self._total_r
        self._add_up(self._root)
        self._is_stale = False

    def _used(self) -> FloatArray:
        used_r = np.zeros_like(self._total_r)
        stack = [self._root]
        while stack:
            branch = stack.pop()
            stack += branch.children.values()
            for job in branch.jobs:
                used_r += job.claimed_r
        return used_r

    def _add_up(self, branch: Branch) -> None:
        parts: list[tuple[FloatArray, float, bool]] = []
        for child in branch.children.values():
            self._add_up(child)
            parts.append((child.allocated_r, child.share, child.is_saturated))
        for job in branch.jobs:
            claimed_r = job.claimed_r
            share = largest_share(claimed_r, self._total_r, self._rows)
            parts.append((claimed_r, share, self._is_saturated(job, claimed_r)))
        growing = [share for _, share, is_saturated in parts if share and not is_saturated]
        smallest = min([1.0, *growing])
        branch.allocated_r = np.zeros_like(self._total_r)
        for allocated_r, share, is_saturated in parts:
            if share:
                branch.allocated_r += allocated_r * (1.0 if is_saturated else smallest / share)
        branch.share = largest_share(branch.allocated_r, self._total_r, self._rows)
        branch.is_saturated = all(is_saturated for _, _, is_saturated in parts)

    def _is_saturated(self, job: Job, claimed_r: FloatArray) -> bool:
        """Tell whether a branch has all it requests of a resource, or none is left of one."""
        request_r = self._requests.get(job.key)
        if request_r is None:
            return False
        for row in self._rows:
            if request_r[row] < EPSILON:
                continue
            if claimed_r[row] >= EPSILON and claimed_r[row] >= request_r[row]:
                return True
            if not self._demanding[row]:
                return True
        return False


def _weight(text: str) -> float:
    """Return the weight, at least one as in Volcano."""
    try:
        weight = float(text)
    except ValueError:
        return 1.0
    return weight if weight >= 1.0 else 1.0
