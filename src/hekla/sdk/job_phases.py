"""Phases of a job, and the conditions that `wait` accepts."""

from __future__ import annotations

from typing import Final

from hekla.api.wellknown import JobPhase
from hekla.units.objects import Object

# `wait` accepts one of these words, or the name of a phase.
FINISHED: Final = "finished"
STARTED: Final = "started"
CONDITIONS: Final = (FINISHED, STARTED)
_BEFORE_START: Final = frozenset({"", JobPhase.PENDING})


def phase_of(job: Object) -> str:
    """Return the phase; Pending before a controller has set one."""
    state = (job.get("status") or {}).get("state") or {}
    return str(state.get("phase") or JobPhase.PENDING)


def is_finished(job: Object) -> bool:
    """Return whether a job has finished."""
    return phase_of(job) in JobPhase.FINISHED


def is_reached(job: Object, until: str) -> bool:
    """Return whether a job meets a condition: `finished`, `started`, or a phase."""
    phase = phase_of(job)
    if until == FINISHED:
        return phase in JobPhase.FINISHED
    if until == STARTED:
        return phase not in _BEFORE_START
    return phase == until


def is_unreachable(job: Object, until: str) -> bool:
    """Return whether a job has finished and can no longer meet the condition."""
    return is_finished(job) and not is_reached(job, until)
