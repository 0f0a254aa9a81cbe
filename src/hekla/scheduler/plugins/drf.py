"""drf: dominant resource fairness between jobs, and if asked between namespaces.

A job's share is the largest fraction of the cluster that it has of any one resource; who has less
goes first. With `enabledNamespaceOrder: true` the share of the whole namespace comes first, divided
by its weight (`volcano.sh/namespace.weight` in a ResourceQuota's hard limits). Volcano had that
and dropped it, so it is off unless asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hekla.scheduler.dimensions import BoolArray, FloatArray, largest_share
from hekla.scheduler.model import Job, Task
from hekla.scheduler.plugin import Plugin

if TYPE_CHECKING:
    from hekla.scheduler.session import Session

NAMESPACE_WEIGHT = "volcano.sh/namespace.weight"
SHARE_DELTA = 1e-6


class Drf(Plugin, name="drf"):
    """The job with the smaller dominant share goes first."""

    def open(self, session: Session) -> None:
        self._total_r = session.total_r
        self._rows = tuple(r for r in range(len(session.dimensions)) if self._total_r[r] > 0)
        self._namespaces: dict[str, list[Job]] | None = None
        self._weights: dict[str, float] = {}
        if self.switches.get("enabledNamespaceOrder", False):
            self._namespaces = {}
            for job in session.cluster.jobs.values():
                self._namespaces.setdefault(job.namespace, []).append(job)
            for namespace, quotas in session.cluster.quotas.items():
                given = [q.spec.hard[NAMESPACE_WEIGHT] for q in quotas.values()
                         if NAMESPACE_WEIGHT in q.spec.hard]  # fmt: skip
                weights = [float(w) for w in given if str(w).isdecimal() and int(w) > 0]
                self._weights[namespace] = max(weights, default=1.0)

    def job_order(self, job: Job) -> tuple[float, ...]:
        own = self._share(job.claimed_r)
        if self._namespaces is None:
            return (own,)
        jobs = self._namespaces.get(job.namespace, ())
        together_r: FloatArray = sum((j.claimed_r for j in jobs), np.zeros_like(self._total_r))
        return (self._share(together_r) / self._weights.get(job.namespace, 1.0), own)

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
            # Volcano counts a victim as gone for those after it even when it is spared.
            have_r -= victim.klass.request_r
            theirs = self._share(have_r)
            out[i] = mine < theirs or abs(mine - theirs) <= SHARE_DELTA
        return out

    def _share(self, allocated_r: FloatArray) -> float:
        return largest_share(allocated_r, self._total_r, self._rows)
