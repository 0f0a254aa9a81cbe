"""From what happened to what is done: lifecycle policies.

A task's policies are asked first and end the search; then the job's. A policy with a timeout
applies once its event has been true for so long, counted from a time that is stored in an object:
the deadline survives a restart, and the event is looked at again when it comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hekla.api.wellknown import Action, JobEvent
from hekla.controllers.job.events import Happening
from hekla.units.durations import DurationError, parse_duration
from hekla.units.objects import Object


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a policy wants: an action, and how long after the event."""

    action: str
    timeout_s: float = 0.0


def verdict_on(happening: Happening, job: Object, tasks: Iterable[Object]) -> Verdict | None:
    """The policy that applies to an event; None means that nothing but a sync is called for."""
    own = next((task for task in tasks if task["name"] == happening.task), None)
    for policies in ((own or {}).get("policies"), job["spec"].get("policies")):
        for policy in policies or ():
            if _applies(policy, happening):
                return Verdict(str(policy.get("action") or Action.SYNC_JOB), timeout_s(policy))
    return None


def _applies(policy: Object, happening: Happening) -> bool:
    events = {*(policy.get("events") or ()), policy.get("event")}
    if happening.event in events or JobEvent.ANY in events:
        # Every pod is pending at first: only a time limit makes that an event.
        return happening.event != JobEvent.POD_PENDING or timeout_s(policy) > 0
    code = policy.get("exitCode")
    return bool(code) and code in happening.exit_codes


def timeout_s(policy: Object) -> float:
    text = policy.get("timeout")
    if not text:
        return 0.0
    try:
        return parse_duration(text)
    except DurationError:
        return 0.0  # admission refuses it; one that slipped through acts at once
