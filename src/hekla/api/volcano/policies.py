"""Rules of lifecycle policies: events, exit codes and actions."""

from __future__ import annotations

from collections.abc import Iterable

from hekla.api.rules.fields import FieldErrors, duplicate, forbidden, invalid, one_of, required
from hekla.api.wellknown import Action, JobEvent
from hekla.units.objects import Object


def events_of(policy: Object) -> list[str]:
    """Return `events` and `event` combined."""
    events = list(policy.get("events") or ())
    if policy.get("event"):
        events.append(policy["event"])
    return events


def check_policies(where: str, policies: Iterable[Object]) -> FieldErrors:
    """Check one list of policies, of a job or a task."""
    seen_events: set[str] = set()
    seen_codes: set[int] = set()
    for index, policy in enumerate(policies):
        at = f"{where}[{index}]"
        events, code = events_of(policy), policy.get("exitCode")
        if events and code is not None:
            yield forbidden(
                at, "an event and an exitCode are mutually exclusive; write two policies"
            )
        elif not events and code is None:
            yield required(at, "either an event or an exitCode")
        yield from one_of(f"{at}.action", policy.get("action"), Action.IN_POLICIES)
        for event in events:
            yield from one_of(f"{at}.event", event, JobEvent.IN_POLICIES)
            if event in seen_events:
                yield duplicate(f"{at}.event", event)
            seen_events.add(event)
        if code is not None:
            if code == 0:
                yield invalid(f"{at}.exitCode", code, "0 is success and cannot trigger a policy")
            elif code in seen_codes:
                yield duplicate(f"{at}.exitCode", code)
            seen_codes.add(code)
    if JobEvent.ANY in seen_events and len(seen_events) > 1:
        yield forbidden(where, f"{JobEvent.ANY!r} stands for every event and must be the only one")
