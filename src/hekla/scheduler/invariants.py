"""The safety laws of a plan: what no cycle may decide, whatever plugins are configured.

    for breach in breaches(cluster, config, plan): ...

Property tests check every generated plan. `hekla scheduler --check-invariants` checks every cycle
in production. A law is checked only where a configured plugin guarantees it: gangs need `gang`,
queue limits need `capacity` or `proportion`.

Laws over several cycles (no eviction loops, work conservation) are property tests only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from hekla.scheduler.framework.config import Config
from hekla.scheduler.framework.plan import Bind, Evict, Plan
from hekla.scheduler.state.cluster import Cluster
from hekla.scheduler.state.dimensions import EPSILON, FloatArray
from hekla.scheduler.state.model import Job, Queue
from hekla.scheduler.state.status import PENDING, RELEASING

LAWS: Final = ("overcommit", "gang", "capability", "guarantee", "eviction", "task")
_QUEUE_PLUGINS: Final = frozenset({"capacity", "proportion"})
_RECLAIM: Final = frozenset({"reclaim", "gangreclaim"})
_PREEMPT: Final = _RECLAIM | {"preempt", "gangpreempt"}


@dataclass(frozen=True, slots=True)
class Breach:
    """One law that a plan breaks: the law's name, and the object with the numbers."""

    law: str
    message: str

    def __str__(self) -> str:
        return f"{self.law}: {self.message}"


def breaches(cluster: Cluster, config: Config, plan: Plan) -> list[Breach]:
    """Return every law that a plan breaks on the cluster that it was decided on."""
    plugins = {option.plugin.name for tier in config.tiers for option in tier}
    found = [*_tasks(cluster, plan)]
    if found:
        return found  # the other laws need tasks and nodes that exist
    found += _overcommit(cluster, plan)
    if "gang" in plugins:
        found += _gangs(cluster, plan)
    if plugins & _QUEUE_PLUGINS:
        found += _capability(cluster, plan)
        found += _guarantee(cluster, plan)
    found += _evictions(plan)
    return found


def _tasks(cluster: Cluster, plan: Plan) -> Iterator[Breach]:
    """A bind is for a pending task and a known node, once; an eviction for a task with a node."""
    effects: list[Bind | Evict] = [*plan.binds, *plan.evictions]
    counts = Counter(effect.uid for effect in effects)
    for effect in effects:
        task = cluster.tasks.get(effect.uid)
        node = cluster.nodes.get(effect.node)
        is_bind = isinstance(effect, Bind)
        where = f"{'bind' if is_bind else 'evict'} {effect.namespace}/{effect.pod} on {effect.node}"
        if task is None:
            yield Breach("task", f"{where}: the pod does not exist")
        elif node is None or not node.is_known:
            yield Breach("task", f"{where}: the node does not exist")
        elif counts[effect.uid] > 1:
            yield Breach("task", f"{where}: {counts[effect.uid]} effects for one pod")
        elif is_bind != (task.status == PENDING) or task.status == RELEASING:
            yield Breach("task", f"{where}: the task is {task.status.name}")


def _overcommit(cluster: Cluster, plan: Plan) -> Iterator[Breach]:
    """No bind takes more than a node has idle, or more pods than it allows."""
    matrix, names = cluster.matrix, cluster.dimensions.names
    need: dict[int, FloatArray] = {}
    pods: Counter[int] = Counter()
    for bind in plan.binds:
        column = cluster.nodes[bind.node].index
        klass = cluster.tasks[bind.uid].klass
        pods[column] += 1
        if column not in need:
            need[column] = cluster.dimensions.zeros()
        for row, amount in zip(klass.rows, klass.amounts, strict=True):
            need[column][row] += amount
    for column, need_r in need.items():
        idle_r = matrix.idle_rn[:, column]
        for row in np.flatnonzero((need_r > 0) & (need_r >= idle_r + EPSILON)).tolist():
            yield Breach(
                "overcommit",
                f"node {cluster.node_table.node_names[column]}: {need_r[row]:g} {names[row]} are "
                f"bound, {idle_r[row]:g} are idle",
            )
        if matrix.pods_n[column] + pods[column] > matrix.max_pods_n[column]:
            yield Breach(
                "overcommit",
                f"node {cluster.node_table.node_names[column]}: {pods[column]} pods are bound to "
                f"{matrix.pods_n[column]:g} of at most {matrix.max_pods_n[column]:g}",
            )


def _gangs(cluster: Cluster, plan: Plan) -> Iterator[Breach]:
    """A job that gets binds has at least its minimum of members afterwards."""
    bound = {bind.uid for bind in plan.binds}
    for key, count in sorted(Counter(bind.job for bind in plan.binds).items()):
        job = cluster.jobs.get(key)
        if job is None:
            continue
        members = job.ready_count + count + _pending_best_effort(job, bound)
        if members < job.min_member:
            yield Breach("gang", f"job {key}: {members} of {job.min_member} members are placed")


def _pending_best_effort(job: Job, bound: set[str]) -> int:
    """Return the BestEffort tasks that stay pending: Volcano counts them as ready."""
    return sum(
        1
        for task in job.by_status[PENDING].values()
        if task.is_best_effort and task.uid not in bound
    )


def _capability(cluster: Cluster, plan: Plan) -> Iterator[Breach]:
    """No queue allocates more than its capability by new binds."""
    for queue, change_r in _changes(cluster, plan.binds).items():
        after_r = queue.allocated_r + change_r
        limit_r = queue.capability_r
        over = (limit_r > 0) & (change_r > 0) & (after_r > limit_r + EPSILON)
        for row in np.flatnonzero(over).tolist():
            yield Breach(
                "capability",
                f"queue {queue.name}: {after_r[row]:g} {cluster.dimensions.names[row]} of at most "
                f"{limit_r[row]:g}",
            )


def _guarantee(cluster: Cluster, plan: Plan) -> Iterator[Breach]:
    """No queue falls below its guarantee by reclaim."""
    reclaimed = [effect for effect in plan.evictions if effect.reason in _RECLAIM]
    for queue, change_r in _changes(cluster, reclaimed).items():
        after_r = queue.allocated_r - change_r
        under = (change_r > 0) & (after_r + EPSILON < queue.guarantee_r)
        for row in np.flatnonzero(under).tolist():
            yield Breach(
                "guarantee",
                f"queue {queue.name}: {after_r[row]:g} {cluster.dimensions.names[row]} are left of "
                f"{queue.guarantee_r[row]:g} guaranteed",
            )


def _changes(cluster: Cluster, effects: list[Bind] | list[Evict]) -> dict[Queue, FloatArray]:
    """Return the sum of requests of effects by queue."""
    changes: dict[Queue, FloatArray] = {}
    for effect in effects:
        task = cluster.tasks[effect.uid]
        queue = None if task.job is None else task.job.queue
        if queue is not None:
            change_r = changes.setdefault(queue, cluster.dimensions.zeros())
            for row, amount in zip(task.klass.rows, task.klass.amounts, strict=True):
                change_r[row] += amount
    return changes


def _evictions(plan: Plan) -> Iterator[Breach]:
    """Preemption evicts only where a preemptor is placed in the same plan."""
    victims = [effect for effect in plan.evictions if effect.reason in _PREEMPT]
    if victims and not {effect.node for effect in victims} & set(plan.pipelined.values()):
        first = victims[0]
        yield Breach(
            "eviction",
            f"{len(victims)} pods such as {first.namespace}/{first.pod} are evicted, and no task "
            "is placed on their nodes",
        )
