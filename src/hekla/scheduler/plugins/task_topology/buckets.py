"""Buckets: the tasks of a job that want to share a node, by what its annotations say of its roles.

Sorting a job's tasks into buckets is done once in a cycle. What changes while they are placed (who
waits, who is where) is counted along, one task at a time. What a newcomer gets wrong: counts are
only followed while that is simple; after anything but a waiting task's coming to a node they are
void, and `recount` is asked for before they are read.
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
from hekla.scheduler.state.model import ALLOCATED_CLASS, PENDING, PIPELINED, Job, Node, Task

SELF_ANTI, AFFINITY, SELF_AFFINITY, ANTI = 4, 3, 2, 1
_HERE: Final = tuple(sorted((*ALLOCATED_CLASS, PIPELINED)))
Runs = list[tuple[TaskClass, int]]
"""Classes of tasks in turn, with how many of each follow one another."""


@dataclass(eq=False, slots=True)
class Run:
    """Tasks with one class that follow one another."""

    klass: TaskClass
    waiting: int = 0


@dataclass(eq=False, slots=True)
class Bucket:
    """Tasks that want to be on one node."""

    number: int
    node: str = ""
    tasks: dict[str, Task] = field(default_factory=dict)
    roles: dict[str, int] = field(default_factory=dict)
    load: float = 0.0
    """As Volcano's: milli-CPUs, mebibytes and everything else, summed."""
    runs: list[Run] = field(default_factory=list)
    here: dict[int, int] = field(default_factory=dict)
    """How many of them are on which nodes."""

    def add(self, task: Task) -> None:
        self.tasks[task.uid] = task
        self.roles[task.role] = self.roles.get(task.role, 0) + 1
        for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
            self.load += amount / 2**20 if row == 1 else amount


class RoleAffinity:
    """What a job's annotations say, role by role."""

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
        """How many of the others it wants to be with, less those it wants to be away from."""
        near = sum(others.get(other, 0) for other in self.attracted[role])
        return near - sum(others.get(other, 0) for other in self.repelled[role])

    def order(self, role: str) -> tuple[int, int]:
        """Those in the user's list first, in its order; then by how much their place matters."""
        return self._orders.get(role, self._last)


class Layout:
    """The buckets of one job, and where their tasks are."""

    def __init__(self, job: Job, affinity: RoleAffinity) -> None:
        self.affinity = affinity
        self.buckets: list[Bucket] = []
        self.of: dict[str, Bucket] = {}
        self.here: dict[str, dict[int, int]] = {}
        """How many tasks of each role are on which nodes; all of the job's."""
        self.is_counted = False
        self.members = len(job.tasks)
        self._job = job
        self._on_node: dict[str, Bucket] = {}
        self._best: dict[str, list[tuple[int, float, int, int]]] = {r: [] for r in affinity.rank}
        """By role a heap of buckets, the most attractive first; the last number tells old ones."""
        self._run_of: dict[str, Run] = {}
        """The run of each task among those of its bucket; `_runs` are all of the job's."""
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
        """Where most are that it wants to be with, of these the least loaded; None if it would
        rather be alone."""
        heap = self._best[role]
        while heap and len(self.buckets[heap[0][2]].tasks) != heap[0][3]:
            heappop(heap)
        return self.buckets[heap[0][2]] if heap and heap[0][0] <= 0 else None

    # --- who is where -------------------------------------------------------------------------

    def recount(self, nodes: Mapping[str, Node]) -> None:
        """Count those who wait and those who are on nodes, from scratch."""
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
        """A task came to a node; whoever did not wait before makes a new count necessary."""
        if task.uid in self._waiting:
            self._waiting.remove(task.uid)
            self._wait(task.uid, -1)
            self._count(task, index)
        else:
            self.is_counted = False

    def foresee(self, task: Task, index: int) -> None:
        """A task will have come to a node: for who looks ahead. A new count is necessary after."""
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
        """The nodes on which tasks of the job are."""
        return sorted({node for there in self.here.values() for node in there})

    def first_and_rest(self, task: Task) -> Runs:
        """A task, and then the others of its bucket that wait, by name."""
        return self._first(task, self.of[task.uid].runs, self._run_of[task.uid])

    def first_and_all(self, task: Task) -> Runs:
        """A task, and then all others of the job that wait, role by role."""
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
    """Tasks in order as runs, and which run each is in."""
    runs: list[Run] = []
    run_of: dict[str, Run] = {}
    for task in tasks:
        if not runs or runs[-1].klass is not task.klass:
            runs.append(Run(task.klass))
        run_of[task.uid] = runs[-1]
    return runs, run_of


def _partners(role: str, pairs: set[frozenset[str]]) -> tuple[str, ...]:
    """The roles that some pairs name with this one; itself, where it is named alone."""
    found = (next(iter(pair - {role}), role) for pair in pairs if role in pair)
    return tuple(sorted(found))


def _groups(text: str, roles: set[str], key: str) -> list[list[str]]:
    """`a,b;c` as lists; a role that is unknown or named twice in a group is refused."""
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
