"""Devices of one kind during a cycle: what tasks of each class would get, and what they got.

For each class and node there is a row: the devices of the next pod, of the one after it, and so on.
Placing pods of the class advances a position in the row. Any other change of a node makes its rows
stale. Undoing the last placement moves the position back; undoing another makes the node stale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from hekla.api.devices import DeviceAllocation, DeviceRequest
from hekla.scheduler.plugins.deviceshare.selection import MOST, build_score_table
from hekla.scheduler.state.devices.allocations import CORES, MEMORY, SHARES, DeviceAllocations
from hekla.scheduler.state.devices.requests import Request
from hekla.scheduler.state.dimensions import BoolArray, FloatArray, IntArray
from hekla.scheduler.state.model import Task


class _ClassScores:
    """What the next pods of a class get on each node."""

    def __init__(self, nodes: int, request: Request) -> None:
        self.capacity_n: IntArray = np.zeros(nodes, dtype=np.int64)
        self.taken_n: IntArray = np.zeros(nodes, dtype=np.int64)
        self.made_n: IntArray = np.zeros(nodes, dtype=np.int64)
        """When the row of each node was computed."""
        self.stale_n: BoolArray = np.ones(nodes, dtype=bool)
        self.is_stale = True
        self.score_kn: FloatArray = np.zeros((0, nodes))
        self.choice_kns: npt.NDArray[np.int16] = np.zeros((0, nodes, request.devices), np.int16)

    def grow(self, rungs: int) -> None:
        more = rungs - len(self.score_kn)
        if more > 0:
            nodes, slots = self.choice_kns.shape[1:]
            self.score_kn = np.concatenate([self.score_kn, np.zeros((more, nodes))])
            empty = np.zeros((more, nodes, slots), dtype=np.int16)
            self.choice_kns = np.concatenate([self.choice_kns, empty])

    def spoil(self, rows: IntArray) -> None:
        self.stale_n[rows] = True
        self.is_stale = True


@dataclass(slots=True)
class _Move:
    """Equal tasks placed in this cycle, and their devices."""

    request: Request
    task: Task
    nodes: IntArray
    choice_is: npt.NDArray[np.int16]
    is_later: bool
    scores: _ClassScores | None
    rows: IntArray
    """The distinct nodes."""
    counts: IntArray
    """The number of tasks on each of them."""
    marks: IntArray
    """The position in each row after they were placed."""
    when: int


class DeviceState:
    """The devices of one kind in one session. The cluster's allocations are only read."""

    def __init__(
        self, allocations: DeviceAllocations, policy: str, *, most: int | None = None
    ) -> None:
        self.allocations = allocations
        self._used_23nc = np.stack((allocations.now_3nc, allocations.later_3nc))
        self.now_3nc, self.later_3nc = self._used_23nc
        self._is_cut = allocations.is_cut
        self._policy = policy
        self._most = most or MOST
        self._class_scores: dict[Any, _ClassScores] = {}
        self._moves: dict[int, _Move] = {}
        self._allowed: dict[Any, tuple[BoolArray, bool]] = {}
        self._later: tuple[Any, int, IntArray] | None = None
        self._changes = 0
        self._clock = 0

    # --- reading ------------------------------------------------------------------------------

    def left(
        self, key: Any, request: Request, allowed_nc: BoolArray, *, is_apart: bool
    ) -> IntArray:
        """Return how many more pods of a class each node takes now."""
        self._allowed[key] = (allowed_nc, is_apart)
        scores = self._class_scores.get(key)
        if scores is None:
            scores = self._class_scores[key] = _ClassScores(len(self.allocations.devices), request)
        if scores.is_stale:
            self._refresh(scores, request, allowed_nc, is_apart)
        left_n: IntArray = scores.capacity_n - scores.taken_n
        return left_n

    def _refresh(
        self, scores: _ClassScores, request: Request, allowed_nc: BoolArray, is_apart: bool
    ) -> None:
        rows = np.flatnonzero(scores.stale_n)
        # Releasing and pipelined amounts are not free.
        used = np.maximum(self.now_3nc[:, rows], self.later_3nc[:, rows])
        found = build_score_table(
            self.allocations,
            rows,
            used,
            allowed_nc[rows],
            request,
            self._policy,
            is_apart=is_apart,
            most=self._most,
        )
        rungs = len(found.score_kr)
        scores.grow(rungs)
        scores.capacity_n[rows], scores.taken_n[rows] = found.copies_r, 0
        scores.score_kn[:rungs, rows] = found.score_kr
        scores.choice_kns[:rungs, rows] = found.choice_krs
        self._clock += 1
        scores.made_n[rows] = self._clock
        scores.stale_n[rows] = False
        scores.is_stale = False

    def known_later(self, key: Any) -> IntArray | None:
        """Return the last result of `later`, if it is of this class and still valid."""
        if self._later is not None and self._later[:2] == (key, self._changes):
            return self._later[2]
        return None

    def later(
        self, key: Any, request: Request, allowed_nc: BoolArray, *, is_apart: bool
    ) -> IntArray:
        """Return how many more pods each node takes once releasing pods are deleted."""
        left_n = self.left(key, request, allowed_nc, is_apart=is_apart)
        rows = np.flatnonzero((self.now_3nc != self.later_3nc).any(axis=(0, 2)))
        if len(rows):
            used = self.later_3nc[:, rows].copy()
            args = (self.allocations, rows, used, allowed_nc[rows], request, self._policy)
            left_n = left_n.copy()
            left_n[rows] = build_score_table(*args, is_apart=is_apart, most=self._most).copies_r
        self._later = (key, self._changes, left_n)
        return left_n

    def fits_after_eviction(
        self, key: Any, request: Request, node: int, options: Sequence[Sequence[Task]]
    ) -> BoolArray:
        """Tell for each set of victims whether a node takes a pod without it."""
        leaving = {task.uid: task for option in options for task in option}
        number = {uid: i for i, uid in enumerate(leaving)}
        goes_ot = np.zeros((len(options), len(leaving)), dtype=np.int64)
        for row, option in enumerate(options):
            goes_ot[row, [number[task.uid] for task in option]] = 1
        held_t3c = np.zeros((len(leaving), 3, self.allocations.width), dtype=np.int64)
        for row, task in enumerate(leaving.values()):
            held_t3c[row] = self.allocations.held_by(node, task)
        freed_o3c = np.tensordot(goes_ot, held_t3c, axes=1)
        used = self.later_3nc[:, [node]] - freed_o3c.transpose(1, 0, 2)
        allowed_nc, is_apart = self._allowed[key]
        rows = np.full(len(options), node)
        args = (self.allocations, rows, used, allowed_nc[rows], request, self._policy)
        fits: BoolArray = build_score_table(*args, is_apart=is_apart, most=1).copies_r > 0
        return fits

    def score(self, key: Any, index: IntArray | None, copies: IntArray | int) -> FloatArray:
        """Return the score of one more pod after `added` pods, on some nodes or all."""
        scores = self._class_scores[key]
        nodes = np.arange(len(scores.capacity_n)) if index is None else index
        if not len(scores.score_kn):
            return np.zeros(len(nodes))
        rung = np.minimum(scores.taken_n[nodes] + copies, len(scores.score_kn) - 1)
        score_n: FloatArray = scores.score_kn[rung, nodes]
        return score_n

    # --- placing ------------------------------------------------------------------------------

    def place(
        self, key: Any, request: Request, task: Task, nodes: IntArray, *, is_later: bool
    ) -> None:
        """Place equal tasks on nodes whose rows are up to date."""
        rows, counts = _counted(nodes)
        rank_i = _rank(nodes)
        scores = None if is_later else self._class_scores[key]
        if scores is not None:
            rung_i = scores.taken_n[nodes] + rank_i
            choice_is = scores.choice_kns[rung_i, nodes]
            marks = scores.taken_n[rows] + counts
            if np.any(marks > scores.capacity_n[rows]):
                raise RuntimeError(f"{request.kind}: a node got more pods than its devices take")
        else:
            choice_is = self._pipelined(key, request, nodes, rank_i)
            marks = counts
        self._clock += 1
        move = _Move(
            request, task, nodes, choice_is, is_later, scores, rows, counts, marks, self._clock
        )
        self._count(move, 1)
        self.changed(rows, but=scores)
        if scores is not None:
            scores.taken_n[rows] = marks
            if marks.max() >= self._most:
                scores.spoil(rows[marks >= self._most])
        self._moves[id(nodes)] = move

    def _pipelined(
        self, key: Any, request: Request, nodes: IntArray, rank_i: IntArray
    ) -> npt.NDArray[np.int16]:
        """Choose releasing devices for pipelined tasks."""
        rows, at_i = np.unique(nodes, return_inverse=True)
        allowed_nc, is_apart = self._allowed[key]
        used = self.later_3nc[:, rows].copy()
        args = (self.allocations, rows, used, allowed_nc[rows], request, self._policy)
        found = build_score_table(*args, is_apart=is_apart, most=self._most)
        if np.any(rank_i >= found.copies_r[at_i]):
            raise RuntimeError(
                f"{request.kind}: more pods were pipelined than devices will be free"
            )
        return found.choice_krs[rank_i, at_i]

    def undo(self, nodes: IntArray) -> None:
        move = self._moves.pop(id(nodes), None)
        if move is None:
            return
        self._count(move, -1)
        scores, rows = move.scores, move.rows
        self.changed(rows, but=scores)
        if scores is None:
            return
        is_other = (scores.taken_n[rows] != move.marks) | (scores.made_n[rows] > move.when)
        if is_other.any():
            scores.spoil(rows[is_other])
        scores.taken_n[rows] -= move.counts

    def changed(self, nodes: IntArray, *, but: _ClassScores | None = None) -> None:
        """Mark rows of changed nodes as stale, except those of one class."""
        self._changes += 1
        for scores in self._class_scores.values():
            if scores is not but:
                scores.spoil(nodes)

    def _count(self, move: _Move, sign: int) -> None:
        used_23f = self._used_23nc.reshape(2, 3, -1)
        since = 1 if move.is_later else 0
        slot = 0
        for request_part in move.request.requests:
            for _ in range(request_part.number):
                columns = move.choice_is[:, slot].astype(np.int64)
                devices, counts = _counted(move.nodes * self.allocations.width + columns)
                more_3i = np.empty((3, len(devices)), dtype=np.int64)
                at = (devices // self.allocations.width, devices % self.allocations.width)
                more_3i[MEMORY] = self._memory(request_part, at)
                more_3i[SHARES], more_3i[CORES] = 1, request_part.cores
                used_23f[since:, :, devices] += sign * counts * more_3i
                slot += 1

    def _memory(self, request_part: DeviceRequest, at: Any) -> IntArray | int:
        """Return the used memory of devices; all of it for a MIG instance."""
        if not request_part.percent and not self._is_cut:
            return request_part.memory
        of_card = self.allocations.memory_nc[at]
        asked = (
            of_card * request_part.percent // 100 if request_part.percent else request_part.memory
        )
        taken: IntArray = np.where(self.allocations.cut_nc[at] >= 0, of_card, asked)
        return taken

    # --- results ------------------------------------------------------------------------------

    def chosen(self, nodes: IntArray) -> list[list[int]]:
        """Return the device columns of each task that was placed with this very array."""
        columns: list[list[int]] = self._moves[id(nodes)].choice_is.tolist()
        return columns

    def given(self, request: Request, node: int, columns: Sequence[int]) -> list[DeviceAllocation]:
        """Return the allocation of a task with these devices of a node."""
        out: list[DeviceAllocation] = []
        left = iter(columns)
        for container, request_part in enumerate(request.requests):
            for column in islice(left, request_part.number):
                device = self.allocations.devices[node][column].id
                memory = int(self._memory(request_part, (node, column)))
                out.append(DeviceAllocation(device, memory, request_part.cores, container))
        return out

    def placed(self, is_alike: Callable[[Task], bool]) -> BoolArray:
        """Return the devices used by selected tasks placed in this cycle."""
        out = np.zeros(self.allocations.usable_nc.shape, dtype=bool)
        for move in self._moves.values():
            if is_alike(move.task):
                for columns in move.choice_is.T:
                    at = (move.nodes, columns.astype(np.int64))
                    whole_i = self.allocations.whole_nc[at]
                    for node, whole in zip(move.nodes.tolist(), whole_i.tolist(), strict=True):
                        out[node] |= self.allocations.whole_nc[node] == whole
        return out

    def has_placed(self) -> BoolArray:
        """Return the nodes with pods placed in this cycle."""
        out = np.zeros(len(self.allocations.devices), dtype=bool)
        for move in self._moves.values():
            out[move.nodes] = True
        return out


def _counted(numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Return distinct numbers and their counts. Faster than sorting for small gangs."""
    counts = Counter(numbers.tolist())
    each = np.fromiter(counts.keys(), dtype=np.int64, count=len(counts))
    return each, np.fromiter(counts.values(), dtype=np.int64, count=len(counts))


def _rank(nodes: IntArray) -> IntArray:
    """Return for each entry the number of equal entries before it."""
    seen: dict[int, int] = {}
    ranks = []
    for node in nodes.tolist():
        rank = seen.get(node, 0)
        ranks.append(rank)
        seen[node] = rank + 1
    return np.asarray(ranks, dtype=np.int64)
