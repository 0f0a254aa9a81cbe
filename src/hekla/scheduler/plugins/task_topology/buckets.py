"""Buckets: tasks of a job that should share a node, by the role affinity in its annotations.

Tasks are sorted into buckets once per cycle. Counts of pending and placed tasks are then updated
task by task. Note: counts are updated only when a pending task is placed. After any other change
they are invalid, and `recount` must be called before they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from hekla.api.wellknown import (
    TASK_TOPOLOGY_AFFINITY,
    TASK_TOPOLOGY_ANTI_AFFINITY,
    TASK_TOPOLOGY_ORDER,
)
from hekla.scheduler.state.classes import TaskClass
from hekla.scheduler.state.model import Job, Node, Task
from hekla.scheduler.state.status import ALLOCATED_CLASS, PENDING, PIPELINED

SELF_ANTI, AFFINITY, SELF_AFFINITY, ANTI = 4, 3, 2, 1
_HERE: Final = tuple(sorted((*ALLOCATED_CLASS, PIPELINED)))
Runs = list[tuple[TaskClass, int]]
"""Task classes in order, with the number of consecutive tasks of each."""


@dataclass(eq=False, slots=True)
class Run:
    """Consecutive tasks of one class."""

    klass: TaskClass
    waiting: int = 0


@dataclass(eq=False, slots=True)
class Bucket:
    """Tasks that should share a node."""

    number: int
    node: str = ""
    tasks: dict[str, Task] = field(default_factory=dict)
    roles: dict[str, int] = field(default_factory=dict)
    load: float = 0.0
    """As in Volcano: milli-CPUs, mebibytes and everything else, summed."""
    runs: list[Run] = field(default_factory=list)
    here: dict[int, int] = field(default_factory=dict)
    """The number of its tasks by node."""

    def add(self, task: Task) -> None:
        self.tasks[task.uid] = task
        self.roles[task.role] = self.roles.get(task.role, 0) + 1
        for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
            self.load += amount / 2**20 if row == 1 else amount


class RoleAffinity:
    """The role affinity and anti-affinity of a job's annotations."""

    def __init__(self, job: Job) -> None:
        notes = job.annotations
        self.together: set[frozenset[str]] = set()
        self.apart: set[frozenset[str]] = set()
        self.rank: dict[str, int] = {}
        roles = {task.role for task in job.tasks.values() if task.role}
        for key, pairs, ranks in (
            (TASK_TOPOLOGY_AFFINITY, self.together, (SELF_AFFINITY, AFFINITY)),
            (TASK_TOPOLOGY_ANTI_AFFINITY, self.apart, (SELF_ANTI, ANTI)),
        ):
            for group in _groups(notes.get(key, ""), roles, key):
                for role in group:
                    rank = ranks[0] if len(group) == 1 else ranks[1]
                    self.rank[role] = max(self.rank.get(role, 0), rank)
                if len(group) == 1:
                    pairs.add(frozenset(group))
                pairs.update(frozenset((a, b)) for i, a in enumerate(group) for b in group[i + 1 :])
        order = _groups(notes.get(TASK_TOPOLOGY_ORDER, ""), roles, TASK_TOPOLOGY_ORDER)
        if len(order) > 1:
            raise ValueError(f"{TASK_TOPOLOGY_ORDER} is one list")
        place = {role: i for i, role in enumerate(order[0] if order else ())}
        self._last = (len(place), 0)
        self._orders = {r: (place.get(r, len(place)), -self.rank.get(r, 0)) for r in roles}
        self.attracted = {role: _partners(role, self.together) for role in self.rank}
        self.repelled = {role: _partners(role, self.apart) for role in self.rank}

    def attraction(self, role: str, others: Mapping[str, int]) -> int:
        """Return the number of attracted tasks minus the number of repelled ones."""
        near = sum(others.get(other, 0) for other in self.attracted[role])
        return near - sum(others.get(other, 0) for other in self.repelled[role])

    def order(self, role: str) -> tuple[int, int]:
        """Sort roles: first those of the user's list, then by their number of relations."""
        return self._orders.get(role, self._last)


class Layout:
    """The buckets of one job, and the nodes of their tasks."""

    def __init__(self, job: Job, affinity: RoleAffinity) -> None:
        self.affinity = affinity
        self.buckets: list[Bucket] = []
        self.of: dict[str, Bucket] = {}
        self.here: dict[str, dict[int, int]] = {}
        """The number of tasks by role and node, for the whole job."""
        self.is_counted = False
        self.members = len(job.tasks)
        self._job = job
        self._on_node: dict[str, Bucket] = {}
        self._best: dict[str, list[tuple[int, float, int, int]]] = {r: [] for r in affinity.rank}
        """A heap of buckets by role, the most attractive first; the last number marks old ones."""
        self._run_of: dict[str, Run] = {}
        """The run of each task in its bucket; `_runs` are those of the job."""
        self._runs, self._run_in_job = _cut(
            sorted(job.tasks.values(), key=lambda t: (*affinity.order(t.role), t.role, t.order))
        )
        self._waiting: set[str] = set()
        tasks = [
            task
            for status in (*_HERE, PENDING)
            for task in job.by_status[status].values()
            if task.role in affinity.rank
        ]
        tasks.sort(key=lambda t: (not t.node_name, *affinity.order(t.role), t.order, t.name))
        for task in tasks:
            self._sort_in(task)
        self.largest = max((len(bucket.tasks) for bucket in self.buckets), default=1)
        for bucket in self.buckets:
            bucket.runs, run_of = _cut(sorted(bucket.tasks.values(), key=lambda t: t.name))
            self._run_of.update(run_of)

    def _sort_in(self, task: Task) -> None:
        best = self._on_node.get(task.node_name) if task.node_name else self._attractive(task.role)
        if best is None:
            best = Bucket(len(self.buckets), node=task.node_name)
            self.buckets.append(best)
            if task.node_name:
                self._on_node[task.node_name] = best
        best.add(task)
        self.of[task.uid] = best
        for role, heap in self._best.items():
            rank = (-self.affinity.attraction(role, best.roles), best.load, best.number)
            heappush(heap, (*rank, len(best.tasks)))

    def _attractive(self, role: str) -> Bucket | None:
        """Return the bucket with most attracted tasks, of these the least loaded; None for a new
        bucket."""
        heap = self._best[role]
        while heap and len(self.buckets[heap[0][2]].tasks) != heap[0][3]:
            heappop(heap)
        return self.buckets[heap[0][2]] if heap and heap[0][0] <= 0 else None

    # --- counts -------------------------------------------------------------------------------

    def recount(self, nodes: Mapping[str, Node]) -> None:
        """Count pending and placed tasks from scratch."""
        self.here, self._waiting = {}, set(self._job.by_status[PENDING])
        for bucket in self.buckets:
            bucket.here = {}
        for runs in (self._runs, *(bucket.runs for bucket in self.buckets)):
            for run in runs:
                run.waiting = 0
        for uid in self._waiting:
            self._wait(uid, 1)
        for status in _HERE:
            for task in self._job.by_status[status].values():
                node = nodes.get(task.node_name)
                if node is not None and node.is_known:
                    self._count(task, node.index)
        self.is_counted = True

    def placed(self, task: Task, index: int) -> None:
        """Count a placed task; one that was not pending makes a recount necessary."""
        if task.uid in self._waiting:
            self._waiting.remove(task.uid)
            self._wait(task.uid, -1)
            self._count(task, index)
        else:
            self.is_counted = False

    def foresee(self, task: Task, index: int) -> None:
        """Count a task that will be placed. A recount is necessary afterwards."""
        self.placed(task, index)
        self.is_counted = False

    def _wait(self, uid: str, sign: int) -> None:
        self._run_in_job[uid].waiting += sign
        if uid in self._run_of:
            self._run_of[uid].waiting += sign

    def _count(self, task: Task, index: int) -> None:
        there = self.here.setdefault(task.role, {})
        there[index] = there.get(index, 0) + 1
        bucket = self.of.get(task.uid)
        if bucket is not None:
            bucket.here[index] = bucket.here.get(index, 0) + 1

    def used(self) -> list[int]:
        """Return the nodes with tasks of the job."""
        return sorted({node for there in self.here.values() for node in there})

    def first_and_rest(self, task: Task) -> Runs:
        """Return a task, and then the other pending tasks of its bucket, by name."""
        return self._first(task, self.of[task.uid].runs, self._run_of[task.uid])

    def first_and_all(self, task: Task) -> Runs:
        """Return a task, and then all other pending tasks of the job, role by role."""
        return self._first(task, self._runs, self._run_in_job[task.uid])

    def _first(self, task: Task, runs: Iterable[Run], own: Run) -> Runs:
        found: Runs = [(task.klass, 1)]
        for run in runs:
            count = run.waiting - (run is own and task.uid in self._waiting)
            last, so_far = found[-1]
            if count and run.klass is last:
                found[-1] = (last, so_far + count)
            elif count:
                found.append((run.klass, count))
        return found


def _cut(tasks: Iterable[Task]) -> tuple[list[Run], dict[str, Run]]:
    """Return ordered tasks as runs, and the run of each."""
    runs: list[Run] = []
    run_of: dict[str, Run] = {}
    for task in tasks:
        if not runs or runs[-1].klass is not task.klass:
            runs.append(Run(task.klass))
        run_of[task.uid] = runs[-1]
    return runs, run_of


def _partners(role: str, pairs: set[frozenset[str]]) -> tuple[str, ...]:
    """Return the roles that pairs name with this one; itself if it is named alone."""
    found = (next(iter(pair - {role}), role) for pair in pairs if role in pair)
    return tuple(sorted(found))


def _groups(text: str, roles: set[str], key: str) -> list[list[str]]:
    """Parse `a,b;c` as lists; an unknown or repeated role in a group is refused."""
    found = []
    for part in (part.strip() for part in text.split(";")):
        if not part:
            continue
        group = [role.strip() for role in part.split(",") if role.strip()]
        if unknown := [role for role in group if role not in roles]:
            raise ValueError(f"{key} names {unknown[0]!r}, which is no role of the job")
        if len(set(group)) < len(group):
            raise ValueError(f"{key} names a role twice in {part!r}")
        found.append(group)
    return found
