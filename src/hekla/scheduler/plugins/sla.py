"""sla: a job that has been pending for its agreed time is enqueued and pipelined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from hekla.api.wellknown import SLA_WAITING_TIME, SLA_WAITING_TIME_LEGACY
from hekla.scheduler.framework.answers import PERMIT, Vote
from hekla.scheduler.framework.arguments import Key, duration_s
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.state.model import Job
from hekla.units.durations import DurationError, parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from hekla.scheduler.session.session import Session


class Sla(Plugin, name="sla"):
    """Orders jobs by deadline, the earliest first; jobs without a deadline come last."""

    waiting_time: Annotated[str, Key("sla-waiting-time")] = ""
    """The default for jobs without the annotation: a duration such as 1h30m."""

    def configure(self, raw: Mapping[str, Any], switches: Mapping[str, bool]) -> None:
        super().configure(raw, switches)
        if self.waiting_time:
            duration_s("sla-waiting-time", self.waiting_time)

    def open(self, session: Session) -> None:
        self._now = session.now
        self._default_s = self._seconds(self.waiting_time)
        for job in session.cluster.job_table.pending.values():
            deadline = self._deadline(job)
            if deadline is not None:
                session.wake(deadline)

    def job_order(self, job: Job) -> tuple[int, float]:
        deadline = self._deadline(job)
        return (1, 0.0) if deadline is None else (0, deadline)

    def job_enqueueable(self, job: Job) -> Vote | None:
        return self._vote(job)

    def job_pipelined(self, job: Job) -> Vote | None:
        return self._vote(job)

    def _vote(self, job: Job) -> Vote | None:
        deadline = self._deadline(job)
        return PERMIT if deadline is not None and self._now >= deadline else None

    def _deadline(self, job: Job) -> float | None:
        own = job.annotations.get(SLA_WAITING_TIME) or job.annotations.get(SLA_WAITING_TIME_LEGACY)
        waiting_s = self._seconds(own) if own else None
        if waiting_s is None:
            waiting_s = self._default_s
        return None if waiting_s is None else job.created + waiting_s

    def _seconds(self, text: str) -> float | None:
        """Parse a positive duration; None if it is invalid."""
        try:
            seconds = parse_duration(text) if text else 0.0
        except DurationError:
            return None
        return seconds if seconds > 0 else None
