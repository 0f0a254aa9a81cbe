"""Phases of a job, and the conditions that `wait` accepts."""

from __future__ import annotations

import difflib
from typing import Final

from hekla.api.wellknown import JobPhase
from hekla.units.objects import Object

# `wait` accepts one of these words, or the name of a phase.
FINISHED: Final = "finished"
STARTED: Final = "started"
CONDITIONS: Final = (FINISHED, STARTED)
PHASES: Final = tuple(
    value for name, value in vars(JobPhase).items() if name.isupper() and isinstance(value, str)
)
_BEFORE_START: Final = frozenset({"", JobPhase.PENDING})


def known_phases(text: str, *more: str) -> list[str]:
    """Return the phases in `Failed,running`, as the API writes them; `more` are phases too.

    Raise ValueError with a suggestion for a word that is no phase.
    """
    known = {phase.lower(): phase for phase in (*PHASES, *more)}
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word.lower() not in known:
            close = difflib.get_close_matches(word.lower(), known, 1, 0.6)
            near = f"did you mean {known[close[0]]!r}?" if close else ""
            hint = near or f"there are: {', '.join(known.values())}"
            raise ValueError(f"{word!r} is no phase of a job; {hint}")
    return [known[word.lower()] for word in words]


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
