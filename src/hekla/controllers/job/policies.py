"""Lifecycle policies: the action for an event.

The task's policies are searched first, then the job's. A policy with a timeout applies once its
event has lasted that long, counted from a time that is stored in an object: the deadline survives a
restart of the controller.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hekla.api.wellknown import Action, JobEvent
from hekla.controllers.job.events import ObservedEvent
from hekla.units.durations import DurationError, parse_duration
from hekla.units.objects import Object


@dataclass(frozen=True, slots=True)
class PolicyMatch:
    """The action of a matching policy, and its timeout."""

    action: str
    timeout_s: float = 0.0


def matching_policy(
    event: ObservedEvent, job: Object, tasks: Iterable[Object]
) -> PolicyMatch | None:
    """Return the policy that matches an event; None means a plain sync."""
    own = next((task for task in tasks if task["name"] == event.task), None)
    for policies in ((own or {}).get("policies"), job["spec"].get("policies")):
        for policy in policies or ():
            if _applies(policy, event):
                return PolicyMatch(str(policy.get("action") or Action.SYNC_JOB), timeout_s(policy))
    return None


def _applies(policy: Object, event: ObservedEvent) -> bool:
    events = {*(policy.get("events") or ()), policy.get("event")}
    if event.name in events or JobEvent.ANY in events:
        # Every pod is pending at first, so this event needs a timeout.
        return event.name != JobEvent.POD_PENDING or timeout_s(policy) > 0
    code = policy.get("exitCode")
    return bool(code) and code in event.exit_codes


def timeout_s(policy: Object) -> float:
    """Return the timeout of a policy; 0 for none."""
    text = policy.get("timeout")
    if not text:
        return 0.0
    try:
        return parse_duration(text)
    except DurationError:
        return 0.0  # admission rejects it; if stored all the same, act at once
