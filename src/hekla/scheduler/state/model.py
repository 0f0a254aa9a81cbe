"""Task, Job, Queue and Node of the scheduler, with Volcano's arithmetic.

A Job is a PodGroup with its pods, a Task one pod. `Job.move` is the only way in which a task
changes status; it updates all sums (`allocated_r`, counts by status and role), so a cycle sums up
nothing.

Note: BestEffort tasks count as ready while they are Pending, and Succeeded tasks count for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from hekla.api.core import ContainerImage, Taint
from hekla.api.devices import DeviceAllocation
from hekla.api.scheduling import NetworkTopology, PodGroupCondition, QueueAffinity
from hekla.api.wellknown import PodGroupPhase, QueueState
from hekla.scheduler.state.classes import HostPort, TaskClass
from hekla.scheduler.state.devices.inventory import Device
from hekla.scheduler.state.dimensions import Dimensions, FloatArray
from hekla.scheduler.state.status import (
    ALLOCATED_CLASS,
    PENDING,
    PIPELINED,
    READY_CLASS,
    VALID_CLASS,
    Status,
)
from hekla.scheduler.state.subgroups import Policy, SubGroup, subgroup_of

_ALLOCATED: Final = tuple(status in ALLOCATED_CLASS for status in Status)
_READY: Final = tuple(status in READY_CLASS for status in Status)


class LabelGroup:
    """Pods of one namespace with equal labels, and their number by node."""

    __slots__ = ("labels", "namespace", "per_node")

    def __init__(self, namespace: str, labels: Mapping[str, str]) -> None:
        self.namespace = namespace
        self.labels = labels
        self.per_node: dict[str, int] = {}


class Task:
    """One pod."""

    __slots__ = (
        "condition",
        "cooldown_end",
        "created",
        "devices",
        "group",
        "index",
        "is_gated",
        "is_preemptable",
        "is_queue_gated",
        "is_revocable",
        "job",
        "klass",
        "labels",
        "name",
        "namespace",
        "node_name",
        "nominated_node",
        "notes",
        "preemption_policy",
        "priority",
        "priority_class",
        "problem",
        "role",
        "started",
        "status",
        "subgroup",
        "uid",
    )

    def __init__(self, uid: str, namespace: str, name: str, klass: TaskClass) -> None:
        self.uid = uid
        self.namespace = namespace
        self.name = name
        self.klass = klass
        self.job: Job | None = None
        self.labels: Mapping[str, str] = {}
        self.subgroup: SubGroup | None = None
        self.role = ""
        self.priority = 1
        self.priority_class = ""
        self.status: Status = PENDING
        self.node_name = ""
        self.nominated_node = ""
        self.created = 0.0
        self.started = 0.0
        """When the node started the pod, if known."""
        self.index = -1
        self.is_gated = False
        self.is_queue_gated = False
        self.is_preemptable = True
        self.is_revocable = False
        """Whether the pod may run on revocable nodes."""
        self.cooldown_end = 0.0
        """The end of the pod's cooldown, during which it is not evicted."""
        self.preemption_policy = ""
        self.problem = ""
        """A problem of the pod that does not stop scheduling."""
        self.group: LabelGroup | None = None
        self.notes: Mapping[str, str] = {}
        """Annotations with the devices and CPUs that the pod has on its node."""
        self.devices: tuple[DeviceAllocation, ...] = ()
        """The devices that the pod has on its node."""
        self.condition: tuple[str, str, str] = ("", "", "")
        """Status, reason and message of PodScheduled as the API server has it."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_best_effort(self) -> bool:
        return self.klass.is_best_effort

    @property
    def is_schedulable(self) -> bool:
        """Whether the task is pending without gates, except Volcano's own."""
        return self.status == PENDING and not self.is_gated

    @property
    def order(self) -> tuple[int, int, float, str]:
        """Volcano's default task order: number in the name, then age, then uid."""
        return (0 if self.index >= 0 else 1, self.index, self.created, self.uid)

    def __repr__(self) -> str:
        return f"Task({self.key}, {self.status.name.capitalize()}, {self.node_name or '-'})"


class Queue:
    """A queue, with the sums of its jobs."""

    def __init__(self, name: str, dimensions: Dimensions) -> None:
        self.name = name
        self.uid = ""
        self.created = 0.0
        self.weight = 1
        self.priority = 0
        self.parent = ""
        self.state = QueueState.OPEN
        self.is_reclaimable = True
        self.annotations: Mapping[str, str] = {}
        self.affinity: QueueAffinity | None = None
        """Required, preferred and avoided node groups."""
        self.capability_r: FloatArray = dimensions.zeros()
        self.guarantee_r: FloatArray = dimensions.zeros()
        self.has_guarantee = False
        self.deserved_r: FloatArray = dimensions.zeros()
        self.problems: tuple[str, ...] = ()
        self.jobs: dict[str, Job] = {}
        self.allocated_r: FloatArray = dimensions.zeros()
        self.pending_r: FloatArray = dimensions.zeros()
        self.inqueue_r: FloatArray = dimensions.zeros()
        self.elastic_r: FloatArray = dimensions.zeros()
        self.pipelined_r: FloatArray = dimensions.zeros()
        """Requests of pipelined tasks; in a session only."""
        self.allocated_pods = 0
        self.allocated_written: Mapping[str, str | int | float] | None = None
        """`status.allocated` as the API server has it."""

    @property
    def claimed_r(self) -> FloatArray:
        """Allocated and pipelined amounts. Both count against the queue's limits."""
        claimed_r: FloatArray = self.allocated_r + self.pipelined_r
        return claimed_r

    @property
    def is_open(self) -> bool:
        """Whether its jobs are placed. A Closing queue gets no new job, and its jobs may restart:
        admission refuses the new ones.
        """
        return self.state in (QueueState.OPEN, QueueState.CLOSING)

    def __repr__(self) -> str:
        return f"Queue({self.name})"


class Node:
    """A node: its column in the matrix, and what filters need besides numbers."""

    __slots__ = (
        "annotations",
        "devices",
        "images",
        "index",
        "is_ready",
        "is_unschedulable",
        "labels",
        "name",
        "ports",
        "taints",
        "tasks",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.index = -1
        self.labels: Mapping[str, str] = {}
        self.annotations: Mapping[str, str] = {}
        self.taints: tuple[Taint, ...] = ()
        self.images: tuple[ContainerImage, ...] = ()
        self.is_unschedulable = False
        self.is_ready = True
        self.devices: Mapping[str, tuple[Device, ...]] = {}
        """Shareable devices by kind."""
        self.tasks: dict[str, Task] = {}
        self.ports: dict[HostPort, int] = {}

    @property
    def is_known(self) -> bool:
        """Whether the node object exists; pods may name a node before it does."""
        return self.index >= 0

    def __repr__(self) -> str:
        return f"Node({self.name})"


class Job:
    """A PodGroup and its pods."""

    def __init__(self, key: str, dimensions: Dimensions) -> None:
        self.key = key
        self.namespace, _, self.name = key.partition("/")
        self.uid = ""
        self.has_group = False
        self.queue_name = ""
        self.queue: Queue | None = None
        self.min_member = 0
        self.min_task_member: Mapping[str, int] = {}
        self.min_resources_r: FloatArray | None = None
        self.min_rows: tuple[int, ...] = ()
        self.phase = ""
        self.priority = 0
        self.priority_class = ""
        self.created = 0.0
        self.annotations: Mapping[str, str] = {}
        self.labels: Mapping[str, str] = {}
        self.conditions: tuple[PodGroupCondition, ...] = ()
        self.counts_written = (0, 0, 0)
        self.problems: tuple[str, ...] = ()
        self.tasks: dict[str, Task] = {}
        self.by_status: tuple[dict[str, Task], ...] = tuple({} for _ in Status)
        self.by_role: dict[str, list[int]] = {}
        """The number of tasks by role and status; the last entry is pending BestEffort tasks."""
        self.ready_count = 0
        """Tasks that count towards the minimum: allocated, bound, running or succeeded."""
        self.pending_best_effort = 0
        self.allocated_r: FloatArray = dimensions.zeros()
        self.pending_r: FloatArray = dimensions.zeros()
        self.inqueue_r: FloatArray = dimensions.zeros()
        self.elastic_r: FloatArray = dimensions.zeros()
        self.pipelined_r: FloatArray = dimensions.zeros()
        self.backoff_until = 0.0
        self.topology: NetworkTopology | None = None
        """The network topology constraint of the PodGroup."""
        self.domain = ""
        """The HyperNode of the members, as the PodGroup has it."""
        self.policies: tuple[Policy, ...] = ()
        self._subgroups: dict[tuple[Policy, tuple[str, ...]], SubGroup] = {}

    # --- tasks --------------------------------------------------------------------------------

    def add(self, task: Task) -> None:
        task.job = self
        self.tasks[task.uid] = task
        task.subgroup = self._subgroup_of(task) if self.policies else None
        self._count(task, task.status, 1)

    def remove(self, task: Task) -> None:
        del self.tasks[task.uid]
        self._count(task, task.status, -1)
        task.job = None

    def set_policies(self, policies: tuple[Policy, ...]) -> None:
        """Assign the members to sub-groups again."""
        self.policies, self._subgroups = policies, {}
        for task in self.tasks.values():
            task.subgroup = self._subgroup_of(task)

    def _subgroup_of(self, task: Task) -> SubGroup | None:
        found = subgroup_of(self.policies, task.labels)
        return None if found is None else self._subgroups.setdefault(found.key, found)

    def move(self, tasks: Iterable[Task], status: Status) -> None:
        """Change the status of tasks with equal class, role and status."""
        moved = list(tasks)
        if not moved:
            return
        first = moved[0]
        old, count = first.status, len(moved)
        if old == status:
            return
        source, target = self.by_status[old], self.by_status[status]
        for task in moved:
            task.status = status
            del source[task.uid]
            target[task.uid] = task
        if _ALLOCATED[old] and _ALLOCATED[status]:
            # From bound to running: the sums stay.
            tally = self.by_role[first.role]
            tally[old] -= count
            tally[status] += count
            self.ready_count += count * (_READY[status] - _READY[old])
        else:
            self._tally(first, old, -count)
            self._tally(first, status, count)

    def _count(self, task: Task, status: Status, sign: int) -> None:
        if sign > 0:
            self.by_status[status][task.uid] = task
        else:
            self.by_status[status].pop(task.uid, None)
        self._tally(task, status, sign)

    def _tally(self, sample: Task, status: Status, count: int) -> None:
        tally = self.by_role.get(sample.role)
        if tally is None:
            tally = self.by_role[sample.role] = [0] * (len(Status) + 1)
        tally[status] += count
        if _READY[status]:
            self.ready_count += count
        klass = sample.klass
        if status == PENDING:
            if klass.is_best_effort:
                tally[-1] += count
                self.pending_best_effort += count
            _add(self.pending_r, klass, count)
            if self.queue is not None:
                _add(self.queue.pending_r, klass, count)
        elif _ALLOCATED[status]:
            _add(self.allocated_r, klass, count)
            if self.queue is not None:
                _add(self.queue.allocated_r, klass, count)
                self.queue.allocated_pods += count
        elif status == PIPELINED:
            _add(self.pipelined_r, klass, count)
            if self.queue is not None:
                _add(self.queue.pipelined_r, klass, count)

    def count(self, *statuses: Status) -> int:
        return sum(len(self.by_status[status]) for status in statuses)

    # --- Volcano's predicates -----------------------------------------------------------------

    @property
    def waiting_count(self) -> int:
        return len(self.by_status[PIPELINED])

    @property
    def claimed_r(self) -> FloatArray:
        """Allocated and pipelined amounts."""
        claimed_r: FloatArray = self.allocated_r + self.pipelined_r
        return claimed_r

    @property
    def valid_count(self) -> int:
        return self.ready_count + self.count(PIPELINED, PENDING)

    @property
    def is_ready(self) -> bool:
        return self.ready_count + self.pending_best_effort >= self.min_member

    @property
    def is_pipelined(self) -> bool:
        return self.waiting_count + self.ready_count + self.pending_best_effort >= self.min_member

    @property
    def is_starving(self) -> bool:
        return self.waiting_count + self.ready_count < self.min_member

    @property
    def is_pending(self) -> bool:
        return self.phase in ("", PodGroupPhase.PENDING)

    @property
    def checks_roles(self) -> bool:
        """Whether role minimums count: only if their sum does not exceed the job's minimum."""
        return self.min_member >= sum(self.min_task_member.values())

    def role_count(self, role: str, *statuses: Status) -> int:
        tally = self.by_role.get(role)
        return 0 if tally is None else sum(tally[status] for status in statuses)

    def role_ready(self, role: str) -> int:
        tally = self.by_role.get(role)
        return 0 if tally is None else tally[-1] + sum(tally[status] for status in READY_CLASS)

    def short_roles(self, *, pipelined: bool = False, valid: bool = False) -> list[str]:
        """Return the roles below their minimum, by name."""
        if not self.min_task_member or not self.checks_roles:
            return []
        short = []
        for role, minimum in sorted(self.min_task_member.items()):
            if minimum <= 0:
                continue
            if valid:
                have = self.role_count(role, *VALID_CLASS)
            else:
                have = self.role_ready(role)
                have += self.role_count(role, PIPELINED) if pipelined else 0
            if have < minimum:
                short.append(role)
        return short

    def subgroup_ready(self, *, pipelined: bool = False) -> dict[SubGroup, int]:
        """Return the number of ready members by sub-group, with `pipelined` those too."""
        counts: dict[SubGroup, int] = {}
        for task in self.tasks.values():
            if task.subgroup is None:
                continue
            counts.setdefault(task.subgroup, 0)
            if (
                _READY[task.status]
                or (pipelined and task.status == PIPELINED)
                or (task.status == PENDING and task.is_best_effort)
            ):
                counts[task.subgroup] += 1
        return counts

    def short_policies(self, *, pipelined: bool = False, valid: bool = False) -> list[Policy]:
        """Return the policies with too few ready sub-groups; with `valid`, with too few at all."""
        wanted = [policy for policy in self.policies if policy.least > 0]
        if not wanted:
            return []
        enough: dict[Policy, int] = {}
        for group, count in self.subgroup_ready(pipelined=pipelined).items():
            if valid or count >= group.policy.size:
                enough[group.policy] = enough.get(group.policy, 0) + 1
        return [policy for policy in wanted if enough.get(policy, 0) < policy.least]

    @property
    def has_enough_roles(self) -> bool:
        return not self.short_roles(valid=True)

    @property
    def needs_until_ready(self) -> int:
        """How many more tasks must be placed before the job can be ready."""
        return max(self.min_member - self.ready_count - self.pending_best_effort, 0)

    # --- sums for queues ----------------------------------------------------------------------

    def refresh_sums(self, *, is_inqueue: bool | None = None) -> None:
        """Work out what the job reserves in its queue and what it holds beyond its minimum."""
        minimum = self.min_resources_r
        inqueue = self.phase == PodGroupPhase.INQUEUE if is_inqueue is None else is_inqueue
        if minimum is None:
            self.inqueue_r = np.zeros_like(self.allocated_r)
            self.elastic_r = self.allocated_r.copy()
            return
        self.elastic_r = np.maximum(self.allocated_r - minimum, 0.0)
        allocated = self.count(*ALLOCATED_CLASS)
        reserves = inqueue or (self.phase == PodGroupPhase.RUNNING and allocated >= self.min_member)
        if reserves:
            left_r = np.maximum(minimum - self.allocated_r, 0.0)
            self.inqueue_r = self.without_gated(left_r)
        else:
            self.inqueue_r = np.zeros_like(self.allocated_r)

    def without_gated(self, request_r: FloatArray) -> FloatArray:
        """A request less what gated tasks will not take yet, never below zero."""
        out = request_r.copy()
        for task in self.by_status[PENDING].values():
            if task.is_gated and not task.is_queue_gated:
                for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
                    if out[row] > 0:
                        out[row] = max(out[row] - amount, 0.0)
        return out

    def __repr__(self) -> str:
        return f"Job({self.key})"


def _add(vector_r: FloatArray, klass: TaskClass, count: int) -> None:
    for row, amount in zip(klass.rows, klass.amounts, strict=True):
        vector_r[row] += count * amount
