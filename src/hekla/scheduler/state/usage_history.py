"""The usage history: decayed usage of queues, namespaces and users over time.

An account keeps a mean of its usage, in which usage counts half for every half-life that has
passed. Between two changes the usage is constant, so the mean has a closed form,

    mean(t + dt) = mean(t) * d + held * (1 - d),    d = 2 ** (-dt / half_life)

and an account is updated only when its usage changes. A mean is an amount (cores, bytes): divided
by the cluster's amount it is a share, and times `half_life / ln 2` the decayed resource-seconds.

Note: time advances only in `elapse`. All changes of jobs since the last call count as made at that
time, in any order, and are processed in the next call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
import numpy as np

from hekla.api import wellknown
from hekla.scheduler.state.dimensions import Dimensions, FloatArray, padded
from hekla.scheduler.state.model import Job

QUEUE: Final = "queue"
NAMESPACE: Final = "namespace"
USER: Final = "user"
LEVELS: Final = (QUEUE, NAMESPACE, USER)
MAX_ACCOUNTS: Final = 1000
"""The most accounts per level. Beyond it, the smallest unused accounts are dropped."""
FORGOTTEN: Final = 1e-6
"""Unused accounts below this share of the cluster are dropped."""

MAX_NAME: Final = 253
"""The longest name in Kubernetes; longer names are cut."""

Owner = tuple[str, str]
"""A level and a name."""


class Past(msgspec.Struct, frozen=True):
    """An account in its stored form."""

    level: str
    name: str
    mean: Mapping[str, float]
    """By resource: CPU and devices in thousandths, memory in bytes."""


class Account:
    """The mean at a time, and the usage since."""

    __slots__ = ("at", "held_r", "mean_r")

    def __init__(self, at: float, width: int) -> None:
        self.at = at
        self.mean_r: FloatArray = np.zeros(width)
        self.held_r: FloatArray = np.zeros(width)

    def mean_at(self, now: float, half_life_s: float) -> FloatArray:
        return projected(self.mean_r, self.held_r, now - self.at, half_life_s)

    def widen(self, width: int) -> None:
        if len(self.mean_r) < width:
            self.mean_r, self.held_r = padded(self.mean_r, width), padded(self.held_r, width)


def projected(
    mean_r: FloatArray, held_r: FloatArray, dt_s: float, half_life_s: float
) -> FloatArray:
    """Return a mean after a time of constant usage."""
    if dt_s <= 0:
        return mean_r
    kept = 2.0 ** (-dt_s / half_life_s)
    later_r: FloatArray = mean_r * kept + held_r * (1.0 - kept)
    return later_r


def owners(job: Job) -> tuple[Owner, ...]:
    """Return the accounts that a job counts against."""
    user = job.annotations.get(wellknown.SUBMITTED_BY) or job.namespace
    named = ((QUEUE, job.queue_name), (NAMESPACE, job.namespace), (USER, user))
    return tuple((level, name[:MAX_NAME]) for level, name in named if name)


class History:
    """All accounts of a cluster at a time, which only advances."""

    def __init__(self, dimensions: Dimensions, at: float, half_life_s: float) -> None:
        self.at = at
        self.half_life_s = half_life_s
        self.accounts: dict[Owner, Account] = {}
        self._dimensions = dimensions
        self._moved: dict[str, Job] = {}
        self._counted: dict[str, tuple[tuple[Owner, ...], FloatArray]] = {}

    def mark_changed(self, job: Job) -> None:
        """Record that a job changed."""
        self._moved[job.key] = job

    def elapse(self, at: float, half_life_s: float, jobs: Mapping[str, Job]) -> None:
        """Advance the time, and set the half-life from here on."""
        self.refresh(jobs)
        if half_life_s != self.half_life_s:
            self._bring_up()
            self.half_life_s = half_life_s
        self.at = max(self.at, at)

    def refresh(self, jobs: Mapping[str, Job]) -> None:
        """Process the jobs that changed."""
        if not self._moved:
            return
        for key in self._moved:
            self._recount(key, jobs.get(key))
        self._moved = {}

    def _recount(self, key: str, job: Job | None) -> None:
        old = self._counted.pop(key, None)
        new = None
        if job is not None and job.allocated_r.any():
            new = self._counted[key] = (owners(job), job.allocated_r.copy())
        if old is not None and new is not None and old[0] == new[0]:
            width = self._dimensions.capacity
            if np.array_equal(padded(old[1], width), padded(new[1], width)):
                return
        for counted, sign in ((old, -1.0), (new, 1.0)):
            for owner in counted[0] if counted is not None else ():
                assert counted is not None
                account = self._account(owner)
                account.held_r[: len(counted[1])] += sign * counted[1]

    def _account(self, owner: Owner) -> Account:
        """Return an account with its mean at the current time, so that its usage may change."""
        width = self._dimensions.capacity
        account = self.accounts.get(owner)
        if account is None:
            account = self.accounts[owner] = Account(self.at, width)
        account.mean_r = account.mean_at(self.at, self.half_life_s)
        account.at = self.at
        account.widen(width)
        return account

    def _bring_up(self) -> None:
        for owner in self.accounts:
            self._account(owner)

    # --- reading ------------------------------------------------------------------------------

    def mean_r(self, owner: Owner, now: float) -> FloatArray:
        account = self.accounts.get(owner)
        if account is None:
            return self._dimensions.zeros()
        account.widen(self._dimensions.capacity)
        return account.mean_at(now, self.half_life_s)

    def held_r(self, owner: Owner) -> FloatArray:
        account = self.accounts.get(owner)
        if account is None:
            return self._dimensions.zeros()
        return padded(account.held_r, self._dimensions.capacity)

    def shares(self, total_r: FloatArray, now: float) -> Iterator[tuple[Owner, float]]:
        """Return the dominant share of every account, by level and name."""
        for owner in sorted(self.accounts):
            yield owner, dominant(self.mean_r(owner, now), total_r)

    # --- storing ------------------------------------------------------------------------------

    def exact(self, jobs: Mapping[str, Job]) -> tuple[Past, ...]:
        """Return all accounts at `at` exactly: a history restored from them is equal."""
        self.refresh(jobs)
        self._bring_up()
        return tuple(self.seen_at(self.at))

    def seen_at(self, now: float) -> Iterator[Past]:
        """Return all accounts at a time, without changing them."""
        names = self._dimensions.names
        for level, name in sorted(self.accounts):
            mean_r = self.mean_r((level, name), now)
            rows = np.flatnonzero(mean_r[: len(names)]).tolist()
            if rows:
                yield Past(level, name, {names[row]: float(mean_r[row]) for row in rows})

    def recall(self, accounts: Iterable[Past], at: float) -> None:
        """Add accounts stored at a time: means of two histories add up."""
        for past in accounts:
            if past.level not in LEVELS or len(past.name) > MAX_NAME:
                continue
            amounts_r, dt_s = self._dimensions.zeros(), max(self.at - at, 0.0)
            for resource, amount in past.mean.items():
                row = self._dimensions.row(resource)
                if row is not None and np.isfinite(amount) and amount > 0:
                    amounts_r[row] = amount
            account = self._account((past.level, past.name))
            if dt_s:
                amounts_r = projected(amounts_r, np.zeros_like(amounts_r), dt_s, self.half_life_s)
            account.mean_r = account.mean_r + amounts_r

    def prune(self, total_r: FloatArray) -> None:
        """Drop negligible accounts, and the smallest of too many."""
        had: dict[str, list[tuple[float, Owner]]] = {level: [] for level in LEVELS}
        count = dict.fromkeys(LEVELS, 0)
        for owner, account in self.accounts.items():
            count[owner[0]] += 1
            if not account.held_r.any():
                share = dominant(self.mean_r(owner, self.at), total_r)
                had[owner[0]].append((share, owner))
        for level, idle in had.items():
            surplus = max(count[level] - MAX_ACCOUNTS, 0)
            for number, (share, owner) in enumerate(sorted(idle)):
                if number < surplus or share < FORGOTTEN:
                    del self.accounts[owner]


def dominant(part_r: FloatArray, total_r: FloatArray) -> float:
    """Return the largest share of any resource."""
    width = min(len(part_r), len(total_r))
    rows = np.flatnonzero(total_r[:width] > 0)
    return float((part_r[rows] / total_r[rows]).max()) if rows.size else 0.0
