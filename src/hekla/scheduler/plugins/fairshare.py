"""fairshare: the queue or user with the smaller usage over time comes first.

Volcano has no such plugin: its shares count current usage only. Here every queue, namespace and
user has a share of the usage history (see `state.usage_history`), in which usage of a day ago
counts half.

Current usage counts as if it were kept for the time `fairshare.ahead`. So queues that start with
equal history on an idle cluster alternate, instead of one getting everything.

The user of a job is named by its annotation `hekla.io/submitted-by`, else it is the namespace. The
name is not verified unless an admission policy does, so it counts last. The share of a queue is
divided by its weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from hekla.scheduler.errors import PluginError
from hekla.scheduler.framework.arguments import Key, duration_s
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.state.dimensions import FloatArray, IntArray
from hekla.scheduler.state.model import Job, Queue, Task
from hekla.scheduler.state.usage_history import (
    LEVELS,
    QUEUE,
    History,
    Owner,
    dominant,
    owners,
    projected,
)

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session

GRAIN = 4
"""The significant digits of a share. Smaller differences are ties, which other plugins break."""
SHORTEST_S = 60.0


class Fairshare(Plugin, name="fairshare"):
    """Orders queues and jobs by usage over time."""

    half_life: Annotated[str, Key("fairshare.half-life")] = "24h"
    ahead: Annotated[str, Key("fairshare.ahead")] = "1h"
    levels: Annotated[str, Key("fairshare.levels")] = "queue, namespace, user"
    """The shares to compare, in order; `queue` orders queues, the others jobs within one."""

    def configure(self, raw: Mapping[str, Any], switches: Mapping[str, bool]) -> None:
        super().configure(raw, switches)
        self.half_life_s = _seconds("fairshare.half-life", self.half_life, SHORTEST_S)
        self._ahead_s = _seconds("fairshare.ahead", self.ahead, 0.0)
        self._levels = tuple(word.strip() for word in self.levels.split(","))
        for level in self._levels:
            if level not in LEVELS:
                known = ", ".join(LEVELS)
                raise PluginError(f"fairshare.levels is of {known}, and {level!r} is none of them")

    def open(self, session: Session) -> None:
        self._history: History | None = session.cluster.job_table.history
        self._total_r, self._now = session.total_r, session.now
        self._weights = {name: queue.weight for name, queue in session.cluster.queues.items()}
        self._extra: dict[Owner, FloatArray] = {}
        self._known: dict[Owner, float] = {}

    def allocated(self, task: Task, nodes: IntArray) -> None:
        self._note(task, len(nodes))

    def deallocated(self, task: Task, nodes: IntArray) -> None:
        self._note(task, -len(nodes))

    def _note(self, task: Task, count: int) -> None:
        if self._history is None or task.job is None:
            return
        more_r = count * task.klass.request_r
        for owner in owners(task.job):
            have_r = self._extra.get(owner)
            self._extra[owner] = more_r if have_r is None else have_r + more_r
            self._known.pop(owner, None)

    def queue_order(self, queue: Queue) -> float:
        return self._share((QUEUE, queue.name)) if QUEUE in self._levels else 0.0

    def job_order(self, job: Job) -> tuple[float, ...]:
        found = dict(owners(job))
        return tuple(
            self._share((level, found[level]))
            for level in self._levels
            if level != QUEUE and level in found
        )

    def _share(self, owner: Owner) -> float:
        """Return the usage after `ahead`, if current usage is kept."""
        known = self._known.get(owner)
        if known is None:
            known = self._known[owner] = self._work_out(owner)
        return known

    def _work_out(self, owner: Owner) -> float:
        history = self._history
        if history is None:
            return 0.0
        held_r = history.held_r(owner)
        extra_r = self._extra.get(owner)
        if extra_r is not None:
            held_r = held_r.copy()
            held_r[: len(extra_r)] += extra_r[: len(held_r)]
        mean_r = history.mean_r(owner, self._now)
        later_r = projected(mean_r, held_r, self._ahead_s, history.half_life_s)
        weight = self._weights.get(owner[1], 1) if owner[0] == QUEUE else 1
        return round(dominant(later_r, self._total_r) / max(weight, 1), GRAIN)


def _seconds(key: str, text: str, least_s: float) -> float:
    found_s = duration_s(key, text)
    if found_s < least_s:
        raise PluginError(f"{key} must be at least {least_s:g}s, and {text!r} is not")
    return found_s
