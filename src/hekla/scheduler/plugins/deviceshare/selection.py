"""Device selection: which devices the next pods of a class get on each node, for all nodes at once.

`build_score_table` adds one pod to every node, again and again, until no node takes another. So it
knows how many fit, the devices of each pod, and their scores. Devices are taken greedily in the
order of the policy, as in Volcano. A pod that gets only some of its devices gets none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from hekla.api.devices import DeviceRequest
from hekla.scheduler.state.devices.allocations import CORES, MEMORY, SHARES, DeviceAllocations, Used
from hekla.scheduler.state.devices.inventory import GPU, MAX_CARDS, MAX_MEMORY
from hekla.scheduler.state.devices.requests import WHOLE, Request
from hekla.scheduler.state.dimensions import BoolArray, FloatArray, IntArray

BINPACK: Final = "binpack"
SPREAD: Final = "spread"
FULL_SCORE: Final = 100.0
LINK_SCORE: Final = 10.0
MOST: Final = 256
"""The most pods of a class that are computed in advance for a node."""
_LAST: Final = (1 << 63) - 1
_MOST_USED: Final = (1 << 20) - 1
"""Used memory above this does not change the order of devices."""
_LINK_RANK: Final = 1 << 45
_MOST_FIRST: Final = (1 << 44) - 1
"""Interconnect ranks precede the order of devices: 2**17 times 2**45 is below _LAST."""


@dataclass(slots=True)
class ScoreTable:
    """The result of `build_score_table`, for the requested rows."""

    copies_r: IntArray
    score_kr: FloatArray
    """The score of adding the k-th pod to a node."""
    choice_krs: npt.NDArray[np.int16]
    """The device columns of that pod, container after container."""


class _Table:
    """Some rows of allocations, with the pods added so far."""

    def __init__(
        self, allocations: DeviceAllocations, rows: IntArray, used_3rc: Used, allowed_rc: BoolArray
    ):
        self.rows = np.arange(len(rows))
        self.memory_rc = allocations.memory_nc[rows]
        self.shares_rc = allocations.shares_nc[rows]
        self.whole_rc = allocations.whole_nc[rows]
        self.cut_rc = allocations.cut_nc[rows]
        self.group_rc = allocations.group_nc[rows]
        self.used_3rc = used_3rc
        self.allowed_rc = allowed_rc
        self.is_cut = bool((self.cut_rc >= 0).any())
        self.is_linked = bool((self.group_rc >= 0).any())
        self.wholes = range(int(self.whole_rc.max(initial=-1)) + 1) if self.is_cut else range(0)

    def keep(self, alive: BoolArray) -> None:
        """Keep only some of the rows."""
        for name in ("rows", "memory_rc", "shares_rc", "whole_rc", "cut_rc", "group_rc"):
            setattr(self, name, getattr(self, name)[alive])
        self.allowed_rc, self.used_3rc = self.allowed_rc[alive], self.used_3rc[:, alive]

    def need(self, request_part: DeviceRequest) -> IntArray | int:
        return (
            request_part.memory
            if not request_part.percent
            else self.memory_rc * request_part.percent // 100
        )

    def eligible(self, request_part: DeviceRequest) -> BoolArray:
        """Return the devices with capacity for the request of one container."""
        memory_rc, shares_rc, cores_rc = self.used_3rc
        ok_rc: BoolArray = self.allowed_rc & (shares_rc < self.shares_rc)
        ok_rc &= memory_rc + self.need(request_part) <= self.memory_rc
        if request_part.cores == WHOLE:
            ok_rc &= shares_rc == 0
        # At 100 cores nothing is left, not even for a request without cores.
        ok_rc &= cores_rc + max(request_part.cores, 1) <= WHOLE
        if self.is_cut:
            ok_rc &= ~self._cut_otherwise()
        return ok_rc

    def _cut_otherwise(self) -> BoolArray:
        """Return the instances of geometries that their device does not have now."""
        out = np.zeros(self.cut_rc.shape, dtype=bool)
        in_use_rc = self.used_3rc[SHARES] > 0
        for whole in self.wholes:
            own_rc = self.whole_rc == whole
            has_r = np.where(own_rc & in_use_rc, self.cut_rc, -1).max(axis=1, initial=-1)
            out |= own_rc & (has_r >= 0)[:, None] & (self.cut_rc != has_r[:, None])
        return out

    def by_card(self, used_rc: IntArray) -> IntArray:
        """Return the used amount of whole devices, also if they are partitioned."""
        if not self.is_cut:
            return used_rc
        out = np.zeros_like(used_rc)
        for whole in self.wholes:
            own_rc = self.whole_rc == whole
            out += own_rc * np.where(own_rc, used_rc, 0).sum(axis=1)[:, None]
        return out

    def order(self, kind: str, policy: str) -> IntArray:
        """Return the sort key of devices: the smallest comes first, then the first device."""
        if policy == BINPACK:
            first_rc = -self.by_card(self.used_3rc[MEMORY])
        elif policy == SPREAD:
            first_rc = self.by_card(self.used_3rc[SHARES])
        elif kind == GPU:
            first_rc = np.zeros_like(self.whole_rc)
        else:  # Volcano begins with the last device
            first_rc = -self.whole_rc
        if self.is_cut:  # of the instances of a device, the smallest that is sufficient
            first_rc = np.clip(first_rc, -_MOST_USED, _MOST_USED) * (MAX_MEMORY + 1)
            return first_rc + self.memory_rc
        return np.clip(first_rc, -_MOST_FIRST, _MOST_FIRST)

    def together(self, eligible_rc: BoolArray, number: int) -> IntArray:
        """Rank devices by interconnect: the group with just enough, else the largest."""
        rank_rc = np.full(eligible_rc.shape, 2 * MAX_CARDS * MAX_CARDS, dtype=np.int64)
        for group in range(int(self.group_rc.max(initial=-1)) + 1):
            own_rc = eligible_rc & (self.group_rc == group)
            size_r = np.minimum(own_rc.sum(axis=1), MAX_CARDS - 1)
            rank_r = np.where(size_r >= number, size_r - number, 2 * MAX_CARDS - 1 - size_r)
            rank_r = rank_r * MAX_CARDS + group
            rank_rc = np.where(own_rc, rank_r[:, None], rank_rc)
        return rank_rc

    def pick(
        self, request_part: DeviceRequest, kind: str, policy: str
    ) -> tuple[IntArray, BoolArray]:
        """Return the devices of one container on each row, and where there are enough."""
        ok_rc = self.eligible(request_part)
        first_rc = self.order(kind, policy)
        if request_part.number > 1 and self.is_linked:
            first_rc = first_rc + self.together(ok_rc, request_part.number) * _LINK_RANK
        if request_part.number > 1 and not self.is_cut:
            key_rc = np.where(ok_rc, first_rc, _LAST)
            chosen = np.argsort(key_rc, axis=1, kind="stable")[:, : request_part.number]
            return chosen, ok_rc.sum(axis=1) >= request_part.number
        chosen = np.zeros((len(self.rows), request_part.number), dtype=np.int64)
        enough = np.ones(len(self.rows), dtype=bool)
        for i in range(request_part.number):
            column = np.argmin(np.where(ok_rc, first_rc, _LAST), axis=1)
            chosen[:, i] = column
            at = (np.arange(len(column)), column)
            enough &= ok_rc[at]
            if request_part.number > 1:  # two instances of one device are not two devices
                ok_rc &= self.whole_rc != self.whole_rc[at][:, None]
        return chosen, enough

    def give(self, request_part: DeviceRequest, chosen: IntArray) -> None:
        at = (np.arange(len(self.rows))[:, None], chosen)
        need = self.need(request_part)
        self.used_3rc[MEMORY][at] += need if isinstance(need, int) else need[at]
        self.used_3rc[SHARES][at] += 1
        self.used_3rc[CORES][at] += request_part.cores

    def score(self, request_part: DeviceRequest, chosen: IntArray, policy: str) -> FloatArray:
        """Return the score of taking these devices, before they are taken."""
        at = (np.arange(len(self.rows))[:, None], chosen)
        out = np.zeros(len(self.rows))
        if policy == BINPACK:
            need = self.need(request_part)
            after = self.used_3rc[MEMORY][at] + (need if isinstance(need, int) else need[at])
            out += (FULL_SCORE * after / np.maximum(self.memory_rc[at], 1)).sum(axis=1)
        elif policy == SPREAD:
            untouched = self.by_card(self.used_3rc[SHARES])[at] == 0
            out += FULL_SCORE * untouched.sum(axis=1)
        if request_part.number > 1 and self.is_linked:
            groups = self.group_rc[at]
            same = (groups[:, :, None] == groups[:, None, :]) & (groups >= 0)[:, :, None]
            out += LINK_SCORE * same.sum(axis=2).max(axis=1) / request_part.number
        return out

    def close(self, chosen: IntArray) -> None:
        """Exclude these devices and their other instances for later pods."""
        taken = np.take_along_axis(self.whole_rc, chosen, axis=1)
        for i in range(taken.shape[1]):
            self.allowed_rc &= self.whole_rc != taken[:, [i]]


def build_score_table(
    allocations: DeviceAllocations,
    rows: IntArray,
    used_3rc: Used,
    allowed_rc: BoolArray,
    request: Request,
    policy: str,
    *,
    is_apart: bool = False,
    most: int = MOST,
) -> ScoreTable:
    """Compute some rows, changing the arrays; with `is_apart`, pods share no device."""
    table = _Table(allocations, rows, used_3rc, allowed_rc)
    if request.devices == 1 and not is_apart and not table.is_cut and allowed_rc.shape[1]:
        return _at_once(table, request, policy, most)
    return _one_at_a_time(table, request, policy, is_apart, most)


def _at_once(table: _Table, request: Request, policy: str, most: int) -> ScoreTable:
    """Compute pods with one device each: the capacity is a division, and the order a sort.

    A law compares it with `_one_at_a_time`.
    """
    request_part = next(request_part for request_part in request.requests if request_part.number)
    memory_rc, shares_rc, cores_rc = table.used_3rc
    need_rc = np.broadcast_to(table.need(request_part), memory_rc.shape)
    takes_rc = np.minimum(table.shares_rc - shares_rc, most)
    room_rc = (table.memory_rc - memory_rc) // np.maximum(need_rc, 1)
    np.minimum(takes_rc, room_rc, out=takes_rc, where=need_rc > 0)
    if request_part.cores:
        np.minimum(takes_rc, (WHOLE - cores_rc) // request_part.cores, out=takes_rc)
    takes_rc = np.where(table.eligible(request_part), takes_rc, 0)
    copies_r = np.minimum(takes_rc.sum(axis=1), most)
    rungs = int(copies_r.max(initial=0))
    first_rc = table.order(request.kind, policy)
    if policy == SPREAD:
        chosen_kr, nth_kr = _sequential(first_rc, takes_rc, rungs)
    else:
        chosen_kr, nth_kr = _packed(first_rc, takes_rc, rungs)
    rows = np.arange(len(copies_r))
    score_kr = np.zeros(chosen_kr.shape)
    if policy == BINPACK:
        after_kr = (memory_rc[rows, chosen_kr]) + (nth_kr + 1) * need_rc[rows, chosen_kr]
        score_kr = FULL_SCORE * after_kr / np.maximum(table.memory_rc[rows, chosen_kr], 1)
    elif policy == SPREAD:
        score_kr = FULL_SCORE * (shares_rc[rows, chosen_kr] + nth_kr == 0)
    is_there_kr = np.arange(rungs)[:, None] < copies_r
    choice_kr = np.where(is_there_kr, chosen_kr, 0)
    return ScoreTable(copies_r, score_kr * is_there_kr, choice_kr.astype(np.int16)[:, :, None])


def _packed(first_rc: IntArray, takes_rc: IntArray, rungs: int) -> tuple[IntArray, IntArray]:
    """Return the device of each pod and the pods before it there; devices are filled in order."""
    order_rc = np.argsort(first_rc, axis=1, kind="stable")
    takes_rc = np.take_along_axis(takes_rc, order_rc, axis=1)
    until_rc = np.cumsum(takes_rc, axis=1)
    place_kr = (until_rc[None] <= np.arange(rungs)[:, None, None]).sum(axis=2)
    np.minimum(place_kr, takes_rc.shape[1] - 1, out=place_kr)
    rows = np.arange(len(takes_rc))
    before_rc = until_rc - takes_rc
    return order_rc[rows, place_kr], np.arange(rungs)[:, None] - before_rc[rows, place_kr]


def _sequential(first_rc: IntArray, takes_rc: IntArray, rungs: int) -> tuple[IntArray, IntArray]:
    """The same, if the device with the fewest pods is next."""
    rows, width = takes_rc.shape
    deep = int(takes_rc.max(initial=0))
    nth = np.arange(deep)
    key_rcj = np.where(nth < takes_rc[:, :, None], first_rc[:, :, None] + nth, _LAST)
    # The device is the slower index, so a stable sort keeps the first of equal devices first.
    order = np.argsort(key_rcj.reshape(rows, width * deep), axis=1, kind="stable")[:, :rungs].T
    return order // max(deep, 1), order % max(deep, 1)


def _one_at_a_time(
    table: _Table, request: Request, policy: str, is_apart: bool, most: int
) -> ScoreTable:
    rows = table.rows
    copies_r = np.zeros(len(rows), dtype=np.int64)
    scores: list[FloatArray] = []
    choices: list[npt.NDArray[np.int16]] = []
    table.keep(np.asarray(table.allowed_rc.any(axis=1)))
    while len(table.rows) and len(scores) < most:
        chosen, enough, score = _one_more(table, request, policy)
        table.keep(enough)
        if not len(table.rows):
            break
        at = table.rows
        copies_r[at] += 1
        scores.append(np.zeros(len(rows)))
        choices.append(np.zeros((len(rows), request.devices), dtype=np.int16))
        scores[-1][at], choices[-1][at] = score[enough], chosen[enough]
        if is_apart:
            table.close(chosen[enough])
    shape = (len(scores), len(rows))
    return ScoreTable(
        copies_r,
        np.array(scores).reshape(shape),
        np.array(choices, dtype=np.int16).reshape((*shape, request.devices)),
    )


def _one_more(
    table: _Table, request: Request, policy: str
) -> tuple[IntArray, BoolArray, FloatArray]:
    """Take devices for one more pod on each row; invalid where there are not enough."""
    enough = np.ones(len(table.rows), dtype=bool)
    score = np.zeros(len(table.rows))
    parts: list[IntArray] = []
    for request_part in request.requests:
        if not request_part.number:
            continue
        if request_part.number > table.memory_rc.shape[1]:
            nothing = np.zeros((len(table.rows), request.devices), dtype=np.int64)
            return nothing, np.zeros(len(table.rows), dtype=bool), score
        chosen, fits = table.pick(request_part, request.kind, policy)
        score += table.score(request_part, chosen, policy)
        table.give(request_part, chosen)
        enough &= fits
        parts.append(chosen)
    if not parts:
        return np.zeros((len(table.rows), 0), dtype=np.int64), enough & False, score
    return np.concatenate(parts, axis=1), enough, score
