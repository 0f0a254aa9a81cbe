"""task-topology: roles of a job that talk to each other share nodes, those that compete do not.

A job says so by annotations of its PodGroup: groups of roles (`ps,worker;chief`) that should be
together, or apart; a group of one speaks of that role and itself. Tasks are sorted into buckets by
it, and a bucket goes to one node as far as there is room. With `mode: communication` nodes are
scored by what the job's busiest pair of nodes would have to send each other instead.

What a newcomer gets wrong: these are wishes, not rules. A full node never stops a job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import numpy as np

from hekla.api.wellknown import (
    TASK_TOPOLOGY_AFFINITY,
    TASK_TOPOLOGY_ANTI_AFFINITY,
    TASK_TOPOLOGY_ORDER,
)
from hekla.scheduler.dimensions import EPSILON, FloatArray, IntArray
from hekla.scheduler.model import ALLOCATED_CLASS, PENDING, PIPELINED, Job, Task
from hekla.scheduler.nodes import Nodes
from hekla.scheduler.plugin import Key, Plugin, PluginError

if TYPE_CHECKING:
    from hekla.scheduler.session import Session

SELF_ANTI, AFFINITY, SELF_AFFINITY, ANTI = 4, 3, 2, 1
BUCKETS, COMMUNICATION = "buckets", "communication"
_HERE: Final = tuple(sorted((*ALLOCATED_CLASS, PIPELINED)))


@dataclass(eq=False, slots=True)
class Bucket:
    """Tasks that want to be on one node."""

    number: int
    tasks: dict[str, Task] = field(default_factory=dict)
    node: str = ""

    def roles(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for task in self.tasks.values():
            counts[task.role] = counts.get(task.role, 0) + 1
        return counts

    @property
    def load(self) -> float:
        """As Volcano's: milli-CPUs, mebibytes and everything else, summed."""
        total = 0.0
        for task in self.tasks.values():
            for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
                total += amount / 2**20 if row == 1 else amount
        return total


class Wishes:
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
        self.place = {role: i for i, role in enumerate(order[0] if order else ())}

    def attraction(self, role: str, others: dict[str, int]) -> int:
        """How many of the others it wants to be with, less those it wants to be away from."""
        total = 0
        for other, count in others.items():
            pair = frozenset((role, other))
            total += count * ((pair in self.together) - (pair in self.apart))
        return total

    def order(self, role: str) -> tuple[int, int]:
        """Those in the user's list first, in its order; then by how much their place matters."""
        return (self.place.get(role, len(self.place)), -self.rank.get(role, 0))


class Layout:
    """The buckets of one job."""

    def __init__(self, job: Job, wishes: Wishes) -> None:
        self.wishes = wishes
        self.buckets: list[Bucket] = []
        self.of: dict[str, Bucket] = {}
        tasks = [
            task
            for status in (*_HERE, PENDING)
            for task in job.by_status[status].values()
            if task.role in wishes.rank
        ]
        tasks.sort(key=lambda t: (not t.node_name, *wishes.order(t.role), t.order, t.name))
        for task in tasks:
            self._sort_in(task)
        self.largest = max((len(bucket.tasks) for bucket in self.buckets), default=1)

    def _sort_in(self, task: Task) -> None:
        best: Bucket | None = None
        if task.node_name:
            best = next((each for each in self.buckets if each.node == task.node_name), None)
        else:
            found = [
                (-self.wishes.attraction(task.role, each.roles()), each.load, each.number)
                for each in self.buckets
            ]
            if found and min(found)[0] <= 0:
                best = self.buckets[min(found)[2]]
        if best is None:
            best = Bucket(len(self.buckets), node=task.node_name)
            self.buckets.append(best)
        best.tasks[task.uid] = task
        self.of[task.uid] = best


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
            keys = (TASK_TOPOLOGY_AFFINITY, TASK_TOPOLOGY_ANTI_AFFINITY, TASK_TOPOLOGY_ORDER)
            if any(job.annotations.get(key) for key in keys):
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

    def one_by_one(self, task: Task) -> bool:
        """Where one goes decides where those of its bucket want to go."""
        layout = self._layout(task.job)
        return layout is not None and task.uid in layout.of

    def batch_node_order(self, task: Task, nodes: Nodes, candidates: IntArray) -> FloatArray | None:
        layout = self._layout(task.job)
        bucket = None if layout is None else layout.of.get(task.uid)
        if layout is None or bucket is None or task.job is None:
            return None
        if self.mode == COMMUNICATION:
            return self._by_traffic(task, layout, len(nodes), candidates)
        return self._by_bucket(task, layout, bucket, len(nodes), candidates)

    # --- buckets ------------------------------------------------------------------------------

    def _by_bucket(
        self, task: Task, layout: Layout, bucket: Bucket, count: int, candidates: IntArray
    ) -> FloatArray:
        waiting = [t for t in bucket.tasks.values() if t.status == PENDING and t is not task]
        waiting.sort(key=lambda t: t.name)
        there, foes = self._present(task, layout, bucket)
        fitting = self._fitting([task, *waiting], candidates)
        score_n = np.zeros(count)
        score_n[candidates] = fitting
        for index, number in there.items():
            score_n[index] += number
        for index, number in foes.items():
            score_n[index] -= number
        out: FloatArray = score_n * (self.weight * 100.0 / layout.largest)
        return out

    def _present(
        self, task: Task, layout: Layout, bucket: Bucket
    ) -> tuple[dict[int, int], dict[int, int]]:
        """On which nodes are how many of its bucket, and of roles it wants to be away from."""
        assert task.job is not None
        nodes = self._session.cluster.nodes
        there: dict[int, int] = {}
        foes: dict[int, int] = {}
        for status in _HERE:
            for other in task.job.by_status[status].values():
                node = nodes.get(other.node_name)
                if node is None or not node.is_known:
                    continue
                if layout.of.get(other.uid) is bucket:
                    there[node.index] = there.get(node.index, 0) + 1
                if frozenset((task.role, other.role)) in layout.wishes.apart:
                    foes[node.index] = foes.get(node.index, 0) + 1
        return there, foes

    def _fitting(self, tasks: Sequence[Task], candidates: IntArray) -> FloatArray:
        """How many of the tasks, taken in turn, each node has room for together."""
        columns = self._session.columns
        rows = sorted({row for task in tasks for row in task.klass.rows})
        room = {row: columns.future_idle(row, candidates) for row in rows}
        count_c = np.zeros(len(candidates))
        for task in tasks:
            pairs = list(zip(task.klass.rows, task.klass.amounts, strict=True))
            fits_c = np.ones(len(candidates), dtype=bool)
            for row, amount in pairs:
                fits_c &= room[row] + EPSILON > amount
            for row, amount in pairs:
                room[row] = room[row] - np.where(fits_c, amount, 0.0)
            count_c += fits_c
        return count_c

    # --- communication ------------------------------------------------------------------------

    def _by_traffic(
        self, task: Task, layout: Layout, count: int, candidates: IntArray
    ) -> FloatArray:
        """Best where the busiest pair of nodes has least to send, counting one for each pair of
        tasks whose roles belong together; of equal ones where the rest of the job could follow."""
        assert task.job is not None
        counts = self._roles_by_node(task.job)
        friends = {
            role: 1 for role in layout.wishes.rank
            if frozenset((task.role, role)) in layout.wishes.together
        }  # fmt: skip
        pairs = traffic(counts, layout.wishes.together)
        base = max(pairs.values(), default=0)
        total = sum(counts[n].get(role, 0) for n in counts for role in friends)
        # On a node where nobody of the job is, every friend is elsewhere.
        away = max((sum(c.get(r, 0) for r in friends) for c in counts.values()), default=0)
        worst_n = np.full(count, float(max(base, away)))
        sent_n = np.full(count, float(total))
        for node, here in counts.items():
            more = {
                frozenset((node, other)): sum(counts[other].get(role, 0) for role in friends)
                for other in counts
                if other != node
            }
            after = max((pairs.get(p, 0) + extra for p, extra in more.items()), default=0)
            worst_n[node] = max(base, after)
            sent_n[node] = total - sum(here.get(role, 0) for role in friends)
        waiting = [t for t in task.job.by_status[PENDING].values() if t is not task]
        room_n = np.zeros(count)
        room_n[candidates] = self._fitting([task, *waiting], candidates)
        members = max(len(task.job.tasks), 1)
        here_n = np.zeros(count)
        for node, here in counts.items():
            here_n[node] = sum(here.values()) / (members + 1)
        cost_n = worst_n * members * members + sent_n * members - room_n - here_n
        out: FloatArray = -cost_n * (self.weight * 100.0)
        return out

    def _roles_by_node(self, job: Job) -> dict[int, dict[str, int]]:
        nodes = self._session.cluster.nodes
        counts: dict[int, dict[str, int]] = {}
        for status in _HERE:
            for task in job.by_status[status].values():
                node = nodes.get(task.node_name)
                if node is not None and node.is_known:
                    here = counts.setdefault(node.index, {})
                    here[task.role] = here.get(task.role, 0) + 1
        return counts


def traffic(
    counts: dict[int, dict[str, int]], together: set[frozenset[str]]
) -> dict[frozenset[int], int]:
    """For every two nodes how many pairs of tasks that belong together they part."""
    found: dict[frozenset[int], int] = {}
    nodes = sorted(counts)
    for i, a in enumerate(nodes):
        for b in nodes[i + 1 :]:
            total = sum(
                many * others
                for role, many in counts[a].items()
                for other, others in counts[b].items()
                if frozenset((role, other)) in together
            )
            if total:
                found[frozenset((a, b))] = total
    return found


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
