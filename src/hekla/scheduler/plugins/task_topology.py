"""task-topology: roles of a job that talk to each other share nodes, those that compete do not.

A job says so by annotations of its PodGroup: groups of roles (`ps,worker;chief`) that should be
together, or apart; a group of one speaks of that role and itself. Tasks are sorted into buckets by
it, and a bucket goes to one node as far as there is room. With `mode: communication` nodes are
scored by what the job's busiest pair of nodes would have to send each other instead.

What a newcomer gets wrong: these are wishes, not rules. A full node never stops a job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from hekla.api.wellknown import (
    TASK_TOPOLOGY_AFFINITY,
    TASK_TOPOLOGY_ANTI_AFFINITY,
    TASK_TOPOLOGY_ORDER,
)
from hekla.scheduler.buckets import Layout, Runs, Wishes
from hekla.scheduler.dimensions import EPSILON, FloatArray, IntArray
from hekla.scheduler.model import Job, Task
from hekla.scheduler.nodes import Nodes
from hekla.scheduler.plugin import Key, Plugin, PluginError

if TYPE_CHECKING:
    from hekla.scheduler.session import Session

BUCKETS, COMMUNICATION = "buckets", "communication"
_KEYS = (TASK_TOPOLOGY_AFFINITY, TASK_TOPOLOGY_ANTI_AFFINITY, TASK_TOPOLOGY_ORDER)


class TaskTopology(Plugin, name="task-topology"):
    """Order and scores for jobs that say which roles belong together."""

    by_class: ClassVar[bool] = True

    weight: Annotated[int, Key("task-topology.weight")] = 1
    mode: Annotated[str, Key("task-topology.mode")] = BUCKETS
    """`buckets` as in Volcano, or `communication` (hekla's own)."""

    def configure(self, raw: Mapping[str, Any], switches: Mapping[str, bool]) -> None:
        super().configure(raw, switches)
        if self.mode not in (BUCKETS, COMMUNICATION):
            raise PluginError(
                f"task-topology.mode is {self.mode!r}; it is buckets or communication"
            )

    def open(self, session: Session) -> None:
        self._session = session
        self._layouts: dict[str, Layout | None] = {}
        self._problems: dict[str, str] = {}

    def _notes_on(self, job: Job) -> tuple[str, ...]:
        """For verdicts: what is odd about a job's wishes."""
        self._layout(job)
        return (self._problems[job.key],) if job.key in self._problems else ()

    def _layout(self, job: Job | None) -> Layout | None:
        if job is None:
            return None
        if job.key not in self._layouts:
            layout: Layout | None = None
            if any(job.annotations.get(key) for key in _KEYS):
                try:
                    layout = Layout(job, Wishes(job))
                except ValueError as problem:
                    self._problems[job.key] = f"task-topology does not count: {problem}"
            self._layouts[job.key] = layout
        return self._layouts[job.key]

    def task_order(self, task: Task) -> tuple[int, ...]:
        layout = self._layout(task.job)
        bucket = None if layout is None else layout.of.get(task.uid)
        if layout is None:
            return (1, 0, 0, 0, 0)
        place = layout.wishes.order(task.role)
        if bucket is None:  # an order alone counts too, unlike in Volcano
            return (1, 0, 0, *place)
        return (0, -len(bucket.tasks), bucket.number, *place)

    def sets_apart(self, task: Task) -> bool:
        return self._layout(task.job) is not None

    def allocated(self, task: Task, nodes: IntArray) -> None:
        layout = None if task.job is None else self._layouts.get(task.job.key)
        if layout is not None and layout.is_counted:
            if len(nodes) == 1:
                layout.came(task, int(nodes[0]))
            else:
                layout.is_counted = False

    def deallocated(self, task: Task, nodes: IntArray) -> None:
        layout = None if task.job is None else self._layouts.get(task.job.key)
        if layout is not None:
            layout.is_counted = False

    def batch_node_order(self, task: Task, nodes: Nodes, candidates: IntArray) -> FloatArray | None:
        layout = self._layout(task.job)
        if layout is None or task.uid not in layout.of:
            return None
        if not layout.is_counted:
            layout.recount(self._session.cluster.nodes)
        score = self._by_traffic if self.mode == COMMUNICATION else self._by_bucket
        return score(task, layout, len(nodes), candidates)

    def _by_bucket(
        self, task: Task, layout: Layout, count: int, candidates: IntArray
    ) -> FloatArray:
        score_n = self._fitting(layout.first_and_rest(task), count, candidates)
        for index, number in layout.of[task.uid].here.items():
            score_n[index] += number
        for foe in layout.wishes.foes[task.role]:
            for index, number in layout.here.get(foe, {}).items():
                score_n[index] -= number
        out: FloatArray = score_n * (self.weight * 100.0 / layout.largest)
        return out

    def _by_traffic(
        self, task: Task, layout: Layout, count: int, candidates: IntArray
    ) -> FloatArray:
        """Best where the busiest pair of nodes has least to send, counting one for each pair of
        tasks whose roles belong together; of equal ones where the rest of the job could follow."""
        assert task.job is not None
        nodes_k = np.asarray(sorted({n for there in layout.here.values() for n in there}), int)
        here_kr, together_rr, friends_r = _as_arrays(layout, task.role, nodes_k)
        pairs_kk = traffic(here_kr, together_rr)
        friends_k = here_kr @ friends_r
        base, total = pairs_kk.max(initial=0.0), friends_k.sum()
        # On a node where nobody of the job is, every friend is elsewhere.
        worst_n = np.full(count, max(base, friends_k.max(initial=0.0)))
        sent_n = np.full(count, total)
        after_kk = pairs_kk + friends_k
        np.fill_diagonal(after_kk, 0.0)
        worst_n[nodes_k] = np.maximum(base, after_kk.max(axis=1, initial=0.0))
        sent_n[nodes_k] -= friends_k
        room_n = self._fitting(layout.first_and_all(task), count, candidates)
        members = max(len(task.job.tasks), 1)
        here_n = np.zeros(count)
        here_n[nodes_k] = here_kr.sum(axis=1) / (members + 1)
        cost_n = worst_n * members * members + sent_n * members - room_n - here_n
        out: FloatArray = -cost_n * (self.weight * 100.0)
        return out

    def _fitting(self, runs: Runs, count: int, candidates: IntArray) -> FloatArray:
        """How many of the tasks, taken in turn, each candidate has room for together."""
        rows = {row for klass, _ in runs for row in klass.rows}
        room = {row: self._session.columns.future_idle(row) + EPSILON for row in rows}
        total_n = np.zeros(count)
        for number, (klass, most) in enumerate(runs, start=1):
            pairs = list(zip(klass.rows, klass.amounts, strict=True))
            fits_n = np.full(count, float(most))
            for row, amount in pairs:
                np.minimum(fits_n, np.ceil(room[row] / amount) - 1.0, out=fits_n)
            np.maximum(fits_n, 0.0, out=fits_n)
            for row, amount in pairs if number < len(runs) else ():
                room[row] -= fits_n * amount
            total_n += fits_n
        fitting_n = np.zeros(count)
        fitting_n[candidates] = total_n[candidates]
        return fitting_n


def _as_arrays(
    layout: Layout, role: str, nodes_k: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """How many of each role are on nodes, which roles belong together, and which with this one."""
    wishes = layout.wishes
    roles = sorted({*layout.here, *wishes.rank})
    here_kr = np.zeros((len(nodes_k), len(roles)))
    together_rr = np.zeros((len(roles), len(roles)))
    for r, name in enumerate(roles):
        there = layout.here.get(name, {})
        if there:
            here_kr[np.searchsorted(nodes_k, list(there)), r] = list(there.values())
        for friend in wishes.friends.get(name, ()):
            together_rr[r, roles.index(friend)] = 1.0
    return here_kr, together_rr, together_rr[roles.index(role)]


def traffic(here_kr: FloatArray, together_rr: FloatArray) -> FloatArray:
    """For every two nodes how many pairs of tasks that belong together they part."""
    parted_kk: FloatArray = here_kr @ together_rr @ here_kr.T
    np.fill_diagonal(parted_kk, 0.0)
    return parted_kk
