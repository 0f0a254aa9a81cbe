"""task-topology: roles of a job that communicate share nodes, and roles that compete do not.

Annotations of the PodGroup define it: groups of roles (`ps,worker;chief`) with affinity or
anti-affinity; a group of one role means that role and itself. Tasks are sorted into buckets, and a
bucket is placed on one node as far as it fits. With `mode: communication`, nodes are scored by the
traffic of the job's busiest pair of nodes instead. `scores` computes this for many tasks at once.

Note: these are preferences. A full node never keeps a job pending.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from hekla.api.wellknown import (
    TASK_TOPOLOGY_AFFINITY,
    TASK_TOPOLOGY_ANTI_AFFINITY,
    TASK_TOPOLOGY_ORDER,
)
from hekla.scheduler.errors import PluginError
from hekla.scheduler.framework.answers import SequentialScore
from hekla.scheduler.framework.arguments import Key
from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.plugins.task_topology.buckets import Layout, RoleAffinity
from hekla.scheduler.plugins.task_topology.scores import ByBucket, ByTraffic, NodeCapacities
from hekla.scheduler.state.dimensions import IntArray
from hekla.scheduler.state.model import Job, Task

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session

BUCKETS, COMMUNICATION = "buckets", "communication"
_KEYS = (TASK_TOPOLOGY_AFFINITY, TASK_TOPOLOGY_ANTI_AFFINITY, TASK_TOPOLOGY_ORDER)


class TaskTopology(Plugin, name="task-topology"):
    """Order and scores for jobs with role affinity."""

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
        self._capacities = NodeCapacities(session)
        self._layouts: dict[str, Layout | None] = {}
        self._problems: dict[str, str] = {}

    def job_notes(self, job: Job) -> tuple[str, ...]:
        """Return problems of a job's role affinity, for verdicts."""
        self._layout(job)
        return (self._problems[job.key],) if job.key in self._problems else ()

    def _layout(self, job: Job | None) -> Layout | None:
        if job is None:
            return None
        if job.key not in self._layouts:
            layout: Layout | None = None
            if any(job.annotations.get(key) for key in _KEYS):
                try:
                    layout = Layout(job, RoleAffinity(job))
                except ValueError as problem:
                    self._problems[job.key] = f"task-topology does not count: {problem}"
            self._layouts[job.key] = layout
        return self._layouts[job.key]

    def task_order(self, task: Task) -> tuple[int, ...]:
        layout = self._layout(task.job)
        bucket = None if layout is None else layout.of.get(task.uid)
        if layout is None:
            return (1, 0, 0, 0, 0)
        place = layout.affinity.order(task.role)
        if bucket is None:  # unlike in Volcano, an order alone counts too
            return (1, 0, 0, *place)
        return (0, -len(bucket.tasks), bucket.number, *place)

    def job_specific(self, task: Task) -> bool:
        return self._layout(task.job) is not None

    def allocated(self, task: Task, nodes: IntArray) -> None:
        layout = None if task.job is None else self._layouts.get(task.job.key)
        if layout is not None and layout.is_counted:
            if len(nodes) == 1:
                layout.placed(task, int(nodes[0]))
            else:
                layout.is_counted = False

    def deallocated(self, task: Task, nodes: IntArray) -> None:
        layout = None if task.job is None else self._layouts.get(task.job.key)
        if layout is not None:
            layout.is_counted = False

    def batch_node_order(
        self, task: Task, nodes: Nodes, candidates: IntArray
    ) -> SequentialScore | None:
        layout = self._layout(task.job)
        if layout is None or task.uid not in layout.of:
            return None
        if not layout.is_counted:
            layout.recount(self._session.cluster.nodes)
        kind = ByTraffic if self.mode == COMMUNICATION else ByBucket
        return kind(layout, task, self._capacities, self.weight)
