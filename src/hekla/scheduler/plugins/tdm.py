"""tdm: time division multiplexing. Revocable nodes belong to this cluster for some hours of the
day.

A node with the label `volcano.sh/revocable-zone: night` is usable while the window of zone `night`
is open, and only for pods that can be evicted (`volcano.sh/revocable-zone: "*"`, or
`volcano.sh/preemptable: "true"`). When the window closes, their pods are evicted (with the action
`shuffle`), no faster than their job's disruption budget allows; pods that do not run yet are
evicted at once. Nodes of a zone without a window keep their pods: removing an argument must not
empty them.

Unlike in Volcano, a window over midnight is open on both sides of it, and evictions are paced by
the pods that are terminating, not by a clock: equal state and time give equal decisions.
`tdm.evict.period` is the longest time between two cycles with pods left to evict.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from hekla.api.wellknown import (
    JDB_MAX_UNAVAILABLE,
    JDB_MIN_AVAILABLE,
    PREEMPTABLE,
    REVOCABLE_ZONE,
)
from hekla.scheduler.errors import PluginError
from hekla.scheduler.framework.answers import PERMIT, REJECT, Vote
from hekla.scheduler.framework.arguments import Key, duration_s
from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.state.dimensions import BoolArray, FloatArray
from hekla.scheduler.state.fields import truth
from hekla.scheduler.state.model import Job, Task
from hekla.scheduler.state.status import COMPLETED_CLASS, PENDING, RELEASING, RUNNING

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session

SCORE = 100.0
_ZONE = "tdm.revocable-zone."
_WINDOW = re.compile(r"\s*(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})\s*")
_DAY_S = 24 * 3600
_LOOK_S = 2 * _DAY_S


@dataclass(frozen=True, slots=True)
class Window:
    """A window in minutes of the day; it ends on the next day if the end is not after the start."""

    begins: int
    ends: int

    @classmethod
    def parse(cls, text: str) -> Window:
        found = _WINDOW.fullmatch(text)
        numbers = [int(number) for number in found.groups()] if found else [99] * 4
        if numbers[0] > 23 or numbers[2] > 23 or numbers[1] > 59 or numbers[3] > 59:
            raise ValueError(text)
        return cls(numbers[0] * 60 + numbers[1], numbers[2] * 60 + numbers[3])

    def is_open(self, moment: datetime) -> bool:
        minute = moment.hour * 60 + moment.minute
        if self.begins < self.ends:
            return self.begins <= minute < self.ends
        return minute >= self.begins or minute < self.ends

    def next_change(self, now: float, zone: tzinfo | None) -> float:
        """Return when the window opens or closes next, across daylight saving changes."""
        before_s, after_s = _ahead_s(now, zone), _ahead_s(now + _LOOK_S, zone)
        edges = {
            (now + ahead_s) // _DAY_S * _DAY_S + day * _DAY_S + edge * 60 - ahead_s
            for ahead_s in (before_s, after_s)
            for day in range(3)
            for edge in (self.begins, self.ends)
        }
        if before_s != after_s:
            edges.add(_clocks_are_set(now, zone))
        later = sorted(edge for edge in edges if edge > now)
        is_open = self.is_open(datetime.fromtimestamp(now, zone))
        return next(
            (at for at in later if self.is_open(datetime.fromtimestamp(at, zone)) != is_open),
            later[0],
        )


def _ahead_s(at: float, zone: tzinfo | None) -> float:
    """Return the UTC offset of a time zone."""
    return round(datetime.fromtimestamp(at, zone).replace(tzinfo=UTC).timestamp() - at)


def _clocks_are_set(now: float, zone: tzinfo | None) -> float:
    """Return when the UTC offset changes, if it does soon."""
    low, high = math.floor(now), math.floor(now) + _LOOK_S
    before_s = _ahead_s(low, zone)
    while high - low > 1:
        middle = (low + high) // 2
        if _ahead_s(middle, zone) == before_s:
            low = middle
        else:
            high = middle
    return float(high)


class Tdm(Plugin, name="tdm"):
    """Filters and scores revocable nodes, and evicts pods when windows close."""

    free_arguments: ClassVar[tuple[str, ...]] = (_ZONE,)
    evict_period: Annotated[str, Key("tdm.evict.period")] = "1m"
    timezone: Annotated[str, Key("tdm.timezone")] = ""
    """The time zone of the windows, as `Europe/Reykjavik`; by default the scheduler's own."""

    def configure(self, raw: Mapping[str, Any], switches: Mapping[str, bool]) -> None:
        super().configure(raw, switches)
        self._windows: dict[str, Window] = {}
        for key, value in raw.items():
            if key.startswith(_ZONE):
                try:
                    self._windows[key.removeprefix(_ZONE)] = Window.parse(str(value))
                except ValueError:
                    raise PluginError(f"{key} must be HH:MM-HH:MM, and {value!r} is not") from None
        self._period_s = duration_s("tdm.evict.period", self.evict_period)
        try:
            self._timezone: tzinfo | None = ZoneInfo(self.timezone) if self.timezone else None
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise PluginError(f"tdm.timezone {self.timezone!r} is no time zone") from None

    def open(self, session: Session) -> None:
        self._session = session
        moment = datetime.fromtimestamp(session.now, self._timezone)
        opened = {zone for zone, window in self._windows.items() if window.is_open(moment)}
        zones = [node.labels.get(REVOCABLE_ZONE, "") for node in session.nodes.all]
        self._lent_n: BoolArray = np.asarray([bool(zone) for zone in zones], dtype=bool)
        self._open_n: BoolArray = np.asarray([zone in opened for zone in zones], dtype=bool)
        self._ours_n: BoolArray = np.asarray([zone in self._windows for zone in zones], dtype=bool)
        if self._lent_n.any():
            for window in self._windows.values():
                session.wake(window.next_change(session.now, self._timezone))

    # --- filters and scores -------------------------------------------------------------------

    def predicate(self, task: Task, nodes: Nodes) -> Iterator[tuple[BoolArray, str]]:
        if task.is_revocable:
            yield self._lent_n & ~self._open_n, "node(s) are lent, and not at this hour"
        else:
            yield self._lent_n, "node(s) are lent, and the pod is not revocable"

    def node_order(self, task: Task, nodes: Nodes) -> FloatArray:
        weight = SCORE if task.is_revocable else 0.0
        return nodes.take(self._open_n.astype(np.float64) * weight)

    # --- order --------------------------------------------------------------------------------

    def job_order(self, job: Job) -> bool:
        return _is_preemptable(job)

    def job_pipelined(self, job: Job) -> Vote:
        return PERMIT if job.is_pipelined else REJECT

    def job_starving(self, job: Job) -> bool:
        return not _is_preemptable(job) and bool(job.by_status[PENDING])

    # --- victims ------------------------------------------------------------------------------

    def preemptable(self, task: Task, candidates: Sequence[Task]) -> BoolArray:
        if task.is_preemptable or task.is_revocable:
            return np.zeros(len(candidates), dtype=bool)
        goes = [
            each.status == RUNNING and each.is_preemptable and not self._is_in(self._lent_n, each)
            for each in candidates
        ]
        return self._within_budgets(candidates, goes)

    def victim_tasks(self, tasks: Sequence[Task]) -> BoolArray:
        closed_n = self._ours_n & ~self._open_n
        goes = [task.is_preemptable and self._is_in(closed_n, task) for task in tasks]
        if any(goes):
            self._session.wake(self._session.now + self._period_s)
        return self._within_budgets(tasks, goes)

    def _is_in(self, places_n: BoolArray, task: Task) -> bool:
        node = self._session.cluster.nodes.get(task.node_name)
        return node is not None and node.is_known and bool(places_n[node.index])

    def _within_budgets(self, tasks: Sequence[Task], goes: Sequence[bool]) -> BoolArray:
        out = np.zeros(len(tasks), dtype=bool)
        gone: Counter[str] = Counter()
        for number, (task, wanted) in enumerate(zip(tasks, goes, strict=True)):
            job = task.job
            if wanted and task.status != RUNNING:
                out[number] = True  # the task does not run yet
            elif wanted and job is not None and gone[job.key] < budget(job):
                gone[job.key] += 1
                out[number] = True
        return out


def budget(job: Job) -> int:
    """Return how many pods of a job may be evicted now, less those that are terminating."""
    living = len(job.tasks) - job.count(*COMPLETED_CLASS)
    running = len(job.by_status[RUNNING])
    least = _amount(job.annotations.get(JDB_MIN_AVAILABLE), living)
    if least is not None:
        return max(running - least, 0)
    most = _amount(job.annotations.get(JDB_MAX_UNAVAILABLE), living)
    if most is not None:
        return max(most - (living - running), 0)
    return max(1 - len(job.by_status[RELEASING]), 0)


def _amount(text: str | None, of: int) -> int | None:
    """Parse a number or a percentage, rounded up; None if it is invalid."""
    if text is None:
        return None
    try:
        return -(-int(text[:-1]) * of // 100) if text.endswith("%") else int(text)
    except ValueError:
        return None


def _is_preemptable(job: Job) -> bool:
    return truth(job.annotations.get(PREEMPTABLE, job.labels.get(PREEMPTABLE)))
