"""Rules of lifecycle policies: events, exit codes and actions.

Messages begin with Volcano's sentence, which scripts and tests look for.
"""

from __future__ import annotations

from collections.abc import Iterable

from hekla.api.rules.fields import FieldErrors, duplicate, forbidden, invalid, one_of, required
from hekla.api.wellknown import Action, JobEvent
from hekla.units.objects import Object


def events_of(policy: Object) -> list[str]:
    """Return `events` and `event` combined, each once: a policy may name an event twice."""
    events = list(policy.get("events") or ())
    if policy.get("event"):
        events.append(policy["event"])
    return list(dict.fromkeys(events))


def check_policies(where: str, policies: Iterable[Object]) -> FieldErrors:
    """Check one list of policies, of a job or a task."""
    seen_events: set[str] = set()
    seen_codes: set[int] = set()
    for index, policy in enumerate(policies):
        at = f"{where}[{index}]"
        events, code = events_of(policy), policy.get("exitCode")
        if events and code is not None:
            yield forbidden(
                at,
                "must not specify event and exitCode simultaneously: they are mutually exclusive; "
                "write two policies",
            )
        elif not events and code is None:
            yield required(
                at, "either event and exitCode should be specified: either an event or an exitCode"
            )
        yield from one_of(
            f"{at}.action", policy.get("action"), Action.IN_POLICIES, "invalid policy action; "
        )
        for event in events:
            yield from one_of(f"{at}.event", event, JobEvent.IN_POLICIES, "invalid policy event; ")
            if event in seen_events:
                yield duplicate(
                    f"{at}.event",
                    event,
                    f"duplicate event {event} across different policies; keep one of them",
                )
            seen_events.add(event)
        if code is not None:
            if code == 0:
                yield invalid(
                    f"{at}.exitCode",
                    code,
                    "0 is not a valid error code: 0 is success and cannot trigger a policy",
                )
            elif code in seen_codes:
                yield duplicate(
                    f"{at}.exitCode", code, f"duplicate exitCode {code}; keep one of the policies"
                )
            seen_codes.add(code)
    if JobEvent.ANY in seen_events and len(seen_events) > 1:
        yield forbidden(
            where,
            f"if there's {JobEvent.ANY} here, no other policy should be here: it stands for every "
            "event and must be the only one",
        )
