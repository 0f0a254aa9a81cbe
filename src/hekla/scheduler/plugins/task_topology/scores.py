"""Scores of `task-topology` for tasks of one role, placed one after the other.

The score of a node depends on where the tasks before were placed. Computing it from scratch for
each task is expensive, but a placed task changes little: the capacity of its node, the counts of
its role there, and the pending tasks. `ByBucket` and `ByTraffic` are made once for a run of equal
tasks and updated after each placement.

Most of the work is how many of the pending tasks fit on a node. Nodes with equal free resources are
in one state, and `NodeCapacities` computes the result once per state for all jobs of a cycle. A
task then only looks up the states of the nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from hekla.scheduler.framework.answers import SequentialScore
from hekla.scheduler.plugins.task_topology.buckets import Layout, Runs
from hekla.scheduler.state.dimensions import EPSILON, FloatArray, IntArray

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session
    from hekla.scheduler.state.classes import TaskClass
    from hekla.scheduler.state.model import Task

_Array = TypeVar("_Array", FloatArray, IntArray)
Key = tuple[tuple["TaskClass", int], ...]
_KEPT: Final = 256
"""The number of cached results, each as long as there are states."""
_MORE: Final = 16
"""The initial space in arrays for nodes that a job does not use yet."""


class NodeCapacities:
    """How many of some ordered tasks fit on each node."""

    def __init__(self, session: Session) -> None:
        self.count = len(session.nodes)
        self._columns = session.columns
        self._changes = session.placer.changes
        self._ids: dict[tuple[float, ...], int] = {}
        """The states of nodes by future idle amounts."""
        self._free: list[tuple[float, ...]] = []
        self._after: dict[tuple[int, TaskClass], int] = {}
        self._state_n: IntArray = np.zeros(0, dtype=np.int64)
        self._seen = -1
        self._fits: dict[Key, FloatArray] = {}
        self._most: dict[TaskClass, int] = {}

    def states(self) -> IntArray:
        """Return the state of every node; the caller may change the array."""
        changes = len(self._changes)
        changed = self._changes.since(self._seen)
        columns = self._columns
        if not self.count:
            return self._state_n
        if changed is None:
            free_rn = columns.idle_rn + columns.releasing_rn - columns.pipelined_rn
            kinds_rk, kind_n = np.unique(free_rn, axis=1, return_inverse=True)
            ids = [self._id(tuple(free)) for free in kinds_rk.T.tolist()]
            self._state_n = np.asarray(ids, dtype=np.int64)[kind_n.ravel()]
        elif changed:
            free_rn = columns.idle_rn[:, changed] + columns.releasing_rn[:, changed]
            free_rn -= columns.pipelined_rn[:, changed]
            self._state_n[changed] = [self._id(tuple(free)) for free in free_rn.T.tolist()]
        self._seen = changes
        return self._state_n.copy()

    def _id(self, free: tuple[float, ...]) -> int:
        found = self._ids.get(free)
        if found is None:
            found = self._ids[free] = len(self._free)
            self._free.append(free)
        return found

    def after(self, state: int, klass: TaskClass) -> int:
        """Return the state of a node with one more task."""
        found = self._after.get((state, klass))
        if found is None:
            free = list(self._free[state])
            for row, amount in zip(klass.rows, klass.amounts, strict=True):
                free[row] -= amount
            found = self._after[state, klass] = self._id(tuple(free))
        return found

    def fitting(self, runs: Runs) -> FloatArray:
        """Return how many of these tasks fit, by state."""
        key = tuple((klass, min(count, self._most_of(klass))) for klass, count in runs)
        fits_s = self._fits.get(key)
        if fits_s is None or len(fits_s) < len(self._free):
            known = 0 if fits_s is None else len(fits_s)
            if len(self._fits) >= _KEPT and not known:
                self._fits.clear()
            new = _fitting(key, np.asarray(self._free[known:]).T)
            fits_s = new if fits_s is None else np.concatenate((fits_s, new))
            self._fits[key] = fits_s
        return fits_s

    def _most_of(self, klass: TaskClass) -> int:
        """Return the most tasks that fit on any node; larger numbers need not be distinguished."""
        most = self._most.get(klass)
        if most is None:
            offered_rn = self._columns.allocatable_rn
            rooms = [
                float(offered_rn[row].max(initial=0.0)) // amount + 1
                for row, amount in zip(klass.rows, klass.amounts, strict=True)
            ]
            most = self._most[klass] = int(min(rooms, default=2**31))
        return most


def _fitting(key: Key, free_rs: FloatArray) -> FloatArray:
    total_s = np.zeros(free_rs.shape[1])
    room = {row: free_rs[row] + EPSILON for klass, _ in key for row in klass.rows}
    for number, (klass, most) in enumerate(key, start=1):
        pairs = list(zip(klass.rows, klass.amounts, strict=True))
        fits_s = np.full(len(total_s), float(most))
        for row, amount in pairs:
            np.minimum(fits_s, np.ceil(room[row] / amount) - 1.0, out=fits_s)
        np.maximum(fits_s, 0.0, out=fits_s)
        for row, amount in pairs if number < len(key) else ():
            room[row] -= fits_s * amount
        total_s += fits_s
    return total_s


class _ClassCapacity:
    """The capacity of nodes while equal tasks are chosen, before they are placed."""

    def __init__(self, rooms: NodeCapacities, klass: TaskClass) -> None:
        self._capacities = rooms
        self._klass = klass
        self._state_n = rooms.states()

    def fitting(self, runs: Runs) -> FloatArray:
        """Return how many of these tasks fit on every node."""
        fits_n: FloatArray = self._capacities.fitting(runs)[self._state_n]
        return fits_n

    def placed(self, node: int) -> None:
        self._state_n[node] = self._capacities.after(int(self._state_n[node]), self._klass)


class ByBucket(SequentialScore):
    """Highest where most of the bucket is or fits, minus repelled tasks."""

    def __init__(self, layout: Layout, task: Task, rooms: NodeCapacities, weight: float) -> None:
        self._layout = layout
        self._capacity = _ClassCapacity(rooms, task.klass)
        self._scale = weight * 100.0 / layout.largest
        self._foes_n = np.zeros(rooms.count)
        repelled = layout.affinity.repelled[task.role]
        for foe in repelled:
            for index, number in layout.here.get(foe, {}).items():
                self._foes_n[index] += number
        self._is_own_foe = task.role in repelled

    def score(self, task: Task) -> FloatArray:
        score_n = self._capacity.fitting(self._layout.first_and_rest(task)) - self._foes_n
        for index, number in self._layout.of[task.uid].here.items():
            score_n[index] += number
        score_n *= self._scale
        return score_n

    def placed(self, task: Task, node: int) -> None:
        self._layout.foresee(task, node)
        self._capacity.placed(node)
        if self._is_own_foe:
            self._foes_n[node] += 1.0

    def likely_nodes(self) -> list[int]:
        return self._layout.used()


class ByTraffic(SequentialScore):
    """Highest where the busiest pair of nodes has the least traffic, one for each pair of tasks
    whose roles have affinity; of equal ones, where the rest of the job fits.

    Traffic differs only between the nodes of the job, which are few. While tasks are placed it only
    grows, so the effect of one task is found in the row of its node.
    """

    def __init__(self, layout: Layout, task: Task, rooms: NodeCapacities, weight: float) -> None:
        self._layout = layout
        self._capacity = _ClassCapacity(rooms, task.klass)
        self._scale = weight * 100.0
        self._members = max(layout.members, 1)
        nodes = layout.used()
        self._position = {node: k for k, node in enumerate(nodes)}
        here_kr, together_rr, friends_r = _as_arrays(layout, task.role, nodes)
        parted_kk = traffic(here_kr, together_rr)
        self._busiest = float(parted_kk.max(initial=0.0))
        np.fill_diagonal(parted_kk, -np.inf)  # traffic within a node does not count
        self._is_own_friend = task.role in layout.affinity.attracted.get(task.role, ())
        self._size = len(nodes)
        """The number of nodes that the job uses; the arrays are larger."""
        friends_k, here_k = here_kr @ friends_r, here_kr.sum(axis=1)
        worst_k = (parted_kk + friends_k).max(axis=1, initial=0.0)
        self._node_k = _padded(np.asarray(nodes, dtype=np.int64), _MORE)
        self._parted_kk = _padded(parted_kk, _MORE)
        self._friends_k, self._here_k = _padded(friends_k, _MORE), _padded(here_k, _MORE)
        self._worst_k = _padded(worst_k, _MORE)
        """Return the largest traffic of each node with another, if the task is placed there."""
        self._friends = float(self._friends_k.sum())
        self._most_friends = float(self._friends_k.max())

    def score(self, task: Task) -> FloatArray:
        room_n = self._capacity.fitting(self._layout.first_and_all(task))
        members, size = self._members, self._size
        # On a node without tasks of the job, all attracted tasks are elsewhere.
        worst = max(self._busiest, self._most_friends)
        cost_n: FloatArray = worst * members * members + self._friends * members - room_n
        used = self._node_k[:size]
        cost_k = np.maximum(self._worst_k[:size], self._busiest) * members * members
        cost_k += (self._friends - self._friends_k[:size]) * members
        cost_k -= room_n[used]
        cost_k -= self._here_k[:size] / (members + 1)
        cost_n[used] = cost_k
        cost_n *= -self._scale
        return cost_n

    def placed(self, task: Task, node: int) -> None:
        self._layout.foresee(task, node)
        self._capacity.placed(node)
        k = self._position.get(node)
        if k is None:
            k = self._widen(node)
        self._here_k[k] += 1.0
        parted_kk, size = self._parted_kk[: self._size, : self._size], self._size
        friends_k, worst_k = self._friends_k[:size], self._worst_k[:size]
        parted_kk[k] += friends_k  # -inf stays what it is
        parted_kk[:, k] += friends_k
        self._busiest = max(self._busiest, float(parted_kk[k].max()))
        if self._is_own_friend:
            friends_k[k] += 1.0
            self._friends += 1.0
            self._most_friends = max(self._most_friends, float(friends_k[k]))
        np.maximum(worst_k, parted_kk[:, k] + friends_k[k], out=worst_k)
        worst_k[k] = (parted_kk[k] + friends_k).max(initial=0.0)

    def _widen(self, node: int) -> int:
        """Return the position of a node that the job did not use yet."""
        k = self._position[node] = self._size
        if k == len(self._node_k):
            for name in ("_node_k", "_parted_kk", "_friends_k", "_here_k", "_worst_k"):
                setattr(self, name, _padded(getattr(self, name), k))
        self._node_k[k] = node
        self._parted_kk[k, k] = -np.inf
        self._size += 1
        return k

    def likely_nodes(self) -> list[int]:
        return list(self._position)


def _as_arrays(
    layout: Layout, role: str, nodes: list[int]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return counts by role and node, the relations of roles, and those of this role."""
    affinity = layout.affinity
    roles = sorted({*layout.here, *affinity.rank})
    position = {node: k for k, node in enumerate(nodes)}
    here_kr = np.zeros((len(nodes), len(roles)))
    together_rr = np.zeros((len(roles), len(roles)))
    for r, name in enumerate(roles):
        for node, number in layout.here.get(name, {}).items():
            here_kr[position[node], r] = number
        for friend in affinity.attracted.get(name, ()):
            together_rr[r, roles.index(friend)] = 1.0
    return here_kr, together_rr, together_rr[roles.index(role)]


def _padded(array: _Array, more: int) -> _Array:
    """Return the array with more space along every axis."""
    wide = np.zeros([size + more for size in array.shape], dtype=array.dtype)
    wide[tuple(slice(size) for size in array.shape)] = array
    return wide


def traffic(here_kr: FloatArray, together_rr: FloatArray) -> FloatArray:
    """Return the number of related task pairs that each two nodes separate."""
    parted_kk: FloatArray = here_kr @ together_rr @ here_kr.T
    np.fill_diagonal(parted_kk, 0.0)
    return parted_kk
