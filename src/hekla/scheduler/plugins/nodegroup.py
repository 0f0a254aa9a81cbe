"""nodegroup: which groups of nodes a queue requires, prefers or avoids.

The group of a node is its label `volcano.sh/nodegroup-name`. A queue names groups in
`spec.affinity`: it may use groups that it requires or prefers, except groups that it must avoid.
Groups that it prefers to avoid stay allowed with a lower score. The annotation
`volcano.sh/nodegroup-resource-limits` limits what a queue uses of a group.

Note: a queue without rules may not use labelled nodes, and with `strict` (the default) no
unlabelled nodes either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np

from hekla.api.scheduling import NodeGroupAffinity, QueueAffinity
from hekla.api.wellknown import NODEGROUP_NAME, NODEGROUP_RESOURCE_LIMITS
from hekla.scheduler.framework.arguments import Key
from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.state.dimensions import EPSILON, BoolArray, FloatArray, IntArray
from hekla.scheduler.state.model import Queue, Task
from hekla.scheduler.state.status import ALLOCATED_CLASS

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session

REQUIRED, PREFERRED, AVOIDED = 100.0, 50.0, -1.0
_NO_GROUPS = NodeGroupAffinity()


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a queue; the last entry of each array is for nodes without a group."""

    allowed_g: BoolArray
    score_g: FloatArray
    limits: Mapping[int, Mapping[int, float]]
    """By group and resource row."""
    problem: str = ""


class NodeGroup(Plugin, name="nodegroup"):
    """Filters, scores and limits by the group of a node and the queue of a job."""

    strict: Annotated[bool, Key("strict")] = True
    """Whether queues without rules may not use nodes without a group."""
    preferred_order: Annotated[bool, Key("enablePreferredOrder")] = False
    """Whether groups named earlier are preferred more."""

    def open(self, session: Session) -> None:
        self._session = session
        names = sorted({name for node in session.nodes.all if (name := _group_of(node.labels))})
        self._groups = {name: number for number, name in enumerate(names)}
        none = len(names)
        self._group_n: IntArray = np.asarray(
            [self._groups.get(_group_of(node.labels), none) for node in session.nodes.all],
            dtype=np.int64,
        )
        self._rules: dict[str, Rules] = {}
        self._taken: dict[tuple[str, int], FloatArray] = {}

    def pre_predicate(self, task: Task) -> str | None:
        rules = self._rules_of(task)
        return None if rules is None or not rules.problem else rules.problem

    def predicate(self, task: Task, nodes: Nodes) -> Iterator[tuple[BoolArray, str]]:
        rules = self._rules_of(task)
        if rules is not None and task.job is not None:
            refused_n = ~rules.allowed_g[self._group_n]
            yield refused_n, f"node(s) are of groups that queue {task.job.queue_name} may not use"

    def node_capacity(self, task: Task, nodes: Nodes) -> list[tuple[FloatArray, str]]:
        rules = self._rules_of(task)
        if rules is None or not rules.limits or task.job is None:
            return []
        room_g = np.full(len(self._groups) + 1, np.inf)
        for group, limits in rules.limits.items():
            room_g[group] = self._room(task, group, limits)
        reason = f"node(s) are of groups of which queue {task.job.queue_name} has its share"
        return [(nodes.take(room_g[self._group_n]), reason)]

    def affects_other_nodes(self, task: Task) -> bool:
        """Tell whether the queue has a limit: it is shared by all nodes of a group."""
        rules = self._rules_of(task)
        return rules is not None and bool(rules.limits)

    def node_order(self, task: Task, nodes: Nodes) -> FloatArray:
        rules = self._rules_of(task)
        if rules is None:
            return nodes.take(np.zeros(len(self._group_n)))
        return nodes.take(rules.score_g[self._group_n])

    def allocated(self, task: Task, nodes: IntArray) -> None:
        self._note(task, nodes, 1.0)

    def deallocated(self, task: Task, nodes: IntArray) -> None:
        self._note(task, nodes, -1.0)

    # --- rules of queues ----------------------------------------------------------------------

    def _rules_of(self, task: Task) -> Rules | None:
        queue = None if task.job is None else task.job.queue
        if queue is None:
            return None
        found = self._rules.get(queue.name)
        if found is None:
            found = self._rules[queue.name] = self._read(queue)
        return found

    def _read(self, queue: Queue) -> Rules:
        affinity = self._speaker(queue).affinity
        count = len(self._groups)
        allowed_g, score_g = np.zeros(count + 1, dtype=bool), np.zeros(count + 1)
        if affinity is None or _names_nothing(affinity):
            allowed_g[count] = not self.strict
        else:
            wanted = affinity.node_group_affinity or _NO_GROUPS
            avoided = affinity.node_group_anti_affinity or _NO_GROUPS
            for name, group in self._groups.items():
                may = name in (*wanted.required, *wanted.preferred)
                may = may and name not in avoided.required
                allowed_g[group] = may or name in avoided.preferred
                score_g[group] = self._score(name, wanted, avoided)
        limits, problem = self._limits(queue)
        if limits:
            self._count(queue)
        return Rules(allowed_g, score_g, limits, problem)

    def _speaker(self, queue: Queue) -> Queue:
        """Return the queue whose rules apply: itself, or the nearest ancestor with rules."""
        seen = {queue.name}
        speaker = queue
        while speaker.affinity is None and self.switches.get("enableHierarchy"):
            parent = self._session.cluster.queues.get(speaker.parent)
            if parent is None or parent.name in seen:
                return queue
            seen.add(parent.name)
            speaker = parent
        return speaker

    def _score(self, name: str, wanted: NodeGroupAffinity, avoided: NodeGroupAffinity) -> float:
        if name in avoided.preferred:
            return AVOIDED
        score = REQUIRED if name in wanted.required else 0.0
        if name in wanted.preferred:
            rank = wanted.preferred.index(name) if self.preferred_order else 0
            score += PREFERRED * (len(wanted.preferred) - rank) / len(wanted.preferred)
        return score

    # --- limits -------------------------------------------------------------------------------

    def _limits(self, queue: Queue) -> tuple[dict[int, dict[int, float]], str]:
        text = queue.annotations.get(NODEGROUP_RESOURCE_LIMITS)
        if not text:
            return {}, ""
        try:
            stated = msgspec.json.decode(text, type=dict[str, dict[str, str | int | float]])
        except msgspec.DecodeError as error:
            return {}, f"queue {queue.name}: {NODEGROUP_RESOURCE_LIMITS} cannot be read: {error}"
        dimensions, limits = self._session.dimensions, dict[int, dict[int, float]]()
        for name, amounts in stated.items():
            vector_r, wrong = dimensions.vector(amounts)
            if wrong:
                return {}, f"queue {queue.name}: limit of node group {name}: {wrong[0]}"
            group = self._groups.get(name)
            if group is not None:
                rows = [row for each in amounts if (row := dimensions.row(each)) is not None]
                limits[group] = {row: float(vector_r[row]) for row in rows}
        return limits, ""

    def _count(self, queue: Queue) -> None:
        """Return what the queue's tasks use of each group."""
        cluster = self._session.cluster
        for job in queue.jobs.values():
            for status in ALLOCATED_CLASS:
                for task in job.by_status[status].values():
                    node = cluster.nodes.get(task.node_name)
                    if node is not None and node.is_known:
                        self._add(queue.name, int(self._group_n[node.index]), task, 1.0)

    def _note(self, task: Task, nodes: IntArray, sign: float) -> None:
        rules = None if task.job is None else self._rules.get(task.job.queue_name)
        if rules is not None and rules.limits and task.job is not None:
            for group in self._group_n[nodes].tolist():
                self._add(task.job.queue_name, group, task, sign)

    def _add(self, queue: str, group: int, task: Task, sign: float) -> None:
        taken_r = self._taken.get((queue, group))
        if taken_r is None:
            taken_r = self._taken[queue, group] = self._session.dimensions.zeros()
        taken_r += sign * task.klass.request_r

    def _room(self, task: Task, group: int, limits: Mapping[int, float]) -> float:
        assert task.job is not None
        taken_r = self._taken.get((task.job.queue_name, group))
        room = np.inf
        for row, limit in limits.items():
            amount = float(task.klass.request_r[row])
            if amount > 0:
                used = 0.0 if taken_r is None else float(taken_r[row])
                room = min(room, (limit - used + EPSILON) // amount)
        return max(room, 0.0)


def _names_nothing(affinity: QueueAffinity) -> bool:
    stated = (affinity.node_group_affinity, affinity.node_group_anti_affinity)
    return not any(each.required or each.preferred for each in stated if each is not None)


def _group_of(labels: Mapping[str, str]) -> str:
    return labels.get(NODEGROUP_NAME, "")
