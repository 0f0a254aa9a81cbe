"""What queues, namespaces and users had of the cluster over time, the past counting less and less.

An account keeps a mean: what it held at each moment, weighed by half for every half-life that has
gone by since. Between two changes an account holds a fixed amount, so its mean has a closed form,

    mean(t + dt) = mean(t) * d + held * (1 - d),    d = 2 ** (-dt / half_life)

and nothing is added up step by step: an account is touched when what it holds changes, and read at
any time. A mean is an amount (cores, bytes): divided by what the cluster has it is a share, and
times `half_life / ln 2` it is the decayed resource-seconds.

What a newcomer gets wrong: time comes in only by `elapse`. Jobs that were touched since then
changed at that very moment, in whatever order; they are looked at once, when time goes on.
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
"""Of each level. Beyond it those go that hold nothing and had least."""
FORGOTTEN: Final = 1e-6
"""Who holds nothing and had less than this part of the cluster is forgotten."""

MAX_NAME: Final = 253
"""As long as a name of Kubernetes may be; of a longer one this much counts."""

Owner = tuple[str, str]
"""A level and a name."""


class Past(msgspec.Struct, frozen=True):
    """An account as it is written down."""

    level: str
    name: str
    mean: Mapping[str, float]
    """By resource: CPU and devices in thousandths, memory in bytes."""


class Account:
    """The mean at a time, and what is held since."""

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
    """A mean after some time in which nothing changes."""
    if dt_s <= 0:
        return mean_r
    kept = 2.0 ** (-dt_s / half_life_s)
    later_r: FloatArray = mean_r * kept + held_r * (1.0 - kept)
    return later_r


def owners(job: Job) -> tuple[Owner, ...]:
    """Whose share a job counts against."""
    user = job.annotations.get(wellknown.SUBMITTED_BY) or job.namespace
    named = ((QUEUE, job.queue_name), (NAMESPACE, job.namespace), (USER, user))
    return tuple((level, name[:MAX_NAME]) for level, name in named if name)


class History:
    """All accounts of a cluster, as of a time that only goes forward."""

    def __init__(self, dimensions: Dimensions, at: float, half_life_s: float) -> None:
        self.at = at
        self.half_life_s = half_life_s
        self.accounts: dict[Owner, Account] = {}
        self._dimensions = dimensions
        self._moved: dict[str, Job] = {}
        self._counted: dict[str, tuple[tuple[Owner, ...], FloatArray]] = {}

    def mark_changed(self, job: Job) -> None:
        """Something about a job changes now."""
        self._moved[job.key] = job

    def elapse(self, at: float, half_life_s: float, jobs: Mapping[str, Job]) -> None:
        """Time goes on; with another half-life from here on."""
        self.refresh(jobs)
        if half_life_s != self.half_life_s:
            self._bring_up()
            self.half_life_s = half_life_s
        self.at = max(self.at, at)

    def refresh(self, jobs: Mapping[str, Job]) -> None:
        """Look at the jobs that changed."""
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
        """An account, its mean brought up to now: what it holds may be changed."""
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
        """Every account's dominant share, by level and name."""
        for owner in sorted(self.accounts):
            yield owner, dominant(self.mean_r(owner, now), total_r)

    # --- writing down -------------------------------------------------------------------------

    def exact(self, jobs: Mapping[str, Job]) -> tuple[Past, ...]:
        """All accounts as of `at`, to the last bit: from here on, who recalls them counts alike."""
        self.refresh(jobs)
        self._bring_up()
        return tuple(self.seen_at(self.at))

    def seen_at(self, now: float) -> Iterator[Past]:
        """All accounts at a time, without touching them."""
        names = self._dimensions.names
        for level, name in sorted(self.accounts):
            mean_r = self.mean_r((level, name), now)
            rows = np.flatnonzero(mean_r[: len(names)]).tolist()
            if rows:
                yield Past(level, name, {names[row]: float(mean_r[row]) for row in rows})

    def recall(self, accounts: Iterable[Past], at: float) -> None:
        """Add what was written down at a time: means of two pasts simply add up."""
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
        """Forget who had next to nothing, and of too many those who had least."""
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
    """The largest part of any resource that the cluster has."""
    width = min(len(part_r), len(total_r))
    rows = np.flatnonzero(total_r[:width] > 0)
    return float((part_r[rows] / total_r[rows]).max()) if rows.size else 0.0
