"""drf: dominant resource fairness between jobs, and optionally between namespaces or queues.

The share of a job is the largest fraction of the cluster that it uses of one resource. The job with
the smaller share comes first. With `enableNamespaceOrder: true` the share of the namespace comes
first, divided by its weight (`volcano.sh/namespace.weight` in a ResourceQuota's hard limits).
Volcano removed that, so it is off by default. With `enableHierarchy: true` queues are ordered and
reclaimed by their position in a tree (see `hierarchy`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.plugins.drf.hierarchy import Hierarchy
from hekla.scheduler.state.dimensions import BoolArray, FloatArray, IntArray, largest_share
from hekla.scheduler.state.model import Job, Queue, Task
from hekla.scheduler.state.status import ALLOCATED, PENDING, Status

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session

NAMESPACE_WEIGHT = "volcano.sh/namespace.weight"
SHARE_DELTA = 1e-6


class Drf(Plugin, name="drf"):
    """Orders jobs by dominant share, the smallest first."""

    def open(self, session: Session) -> None:
        self._total_r = session.total_r
        self._rows = tuple(r for r in range(len(session.dimensions)) if self._total_r[r] > 0)
        self._namespaces: dict[str, FloatArray] | None = None
        self._weights: dict[str, float] = {}
        self._tree: Hierarchy | None = None
        if self.switches.get("enabledNamespaceOrder", False):
            self._open_namespaces(session)
        if self.switches.get("enableHierarchy", False):
            self._tree = Hierarchy(session.cluster.queues.values(), self._total_r, self._rows)

    def _open_namespaces(self, session: Session) -> None:
        self._namespaces = {}
        for job in session.cluster.jobs.values():
            held_r = self._namespaces.setdefault(job.namespace, np.zeros_like(self._total_r))
            held_r += job.claimed_r
        for namespace, quotas in session.cluster.quotas.items():
            given = [quota.spec.hard.get(NAMESPACE_WEIGHT, "") for quota in quotas.values()]
            weights = [float(w) for w in given if str(w).isdecimal() and int(w) > 0]
            self._weights[namespace] = max(weights, default=1.0)

    def allocated(self, task: Task, nodes: IntArray) -> None:
        self._note(task, len(nodes))

    def deallocated(self, task: Task, nodes: IntArray) -> None:
        self._note(task, -len(nodes))

    def _note(self, task: Task, count: int) -> None:
        if self._tree is not None:
            self._tree.changed()
        if self._namespaces is not None and task.job is not None:
            self._namespaces[task.job.namespace] += count * task.klass.request_r

    def job_order(self, job: Job) -> tuple[float, ...]:
        own = self._share(job.claimed_r)
        if self._namespaces is None:
            return (own,)
        together = self._share(self._namespaces[job.namespace])
        return (together / self._weights.get(job.namespace, 1.0), own)

    def queue_order(self, queue: Queue) -> tuple[Any, ...]:
        return () if self._tree is None else self._tree.key(queue)

    def preemptable(self, task: Task, candidates: Sequence[Task]) -> BoolArray | None:
        if task.job is None:
            return None
        mine = self._share(task.job.claimed_r + task.klass.request_r)
        left: dict[str, FloatArray] = {}
        out = np.zeros(len(candidates), dtype=bool)
        for i, victim in enumerate(candidates):
            if victim.job is None:
                continue
            have_r = left.setdefault(victim.job.key, victim.job.allocated_r.copy())
            # Volcano counts a victim as evicted for later candidates even if it is protected.
            have_r -= victim.klass.request_r
            theirs = self._share(have_r)
            out[i] = mine < theirs or abs(mine - theirs) <= SHARE_DELTA
        return out

    def reclaimable(self, task: Task, candidates: Sequence[Task]) -> BoolArray | None:
        """With a hierarchy: return victims whose queue then comes after the preemptor's."""
        queue = task.job.queue if task.job is not None else None
        if self._tree is None or queue is None or task.status != PENDING:
            return None
        mask = self._with(
            task, ALLOCATED, lambda: [self._stays_behind(victim, queue) for victim in candidates]
        )
        return np.asarray(mask, dtype=bool)

    def _stays_behind(self, victim: Task, taker: Queue) -> bool:
        queue = victim.job.queue if victim.job is not None else None
        if queue is None:
            return False
        return bool(self._with(victim, PENDING, lambda: self._is_first(taker, queue)))

    def _is_first(self, queue: Queue, other: Queue) -> bool:
        assert self._tree is not None
        return self._tree.key(queue) < self._tree.key(other)

    def _with(self, task: Task, status: Status, look: Any) -> Any:
        """Return a result with a task in another status; the status is restored."""
        assert task.job is not None
        assert self._tree is not None
        before = task.status
        task.job.move((task,), status)
        self._tree.changed()
        try:
            return look()
        finally:
            task.job.move((task,), before)
            self._tree.changed()

    def _share(self, allocated_r: FloatArray) -> float:
        return largest_share(allocated_r, self._total_r, self._rows)
