"""Ages as `kubectl get` shows them, with two or three significant digits.

The finer unit is shown for small values only: `119s`, `2m30s`, then `12m`; `3h12m`, then `12h`;
`2d3h`, then `30d`; `2y30d`, then `9y`.
"""

from __future__ import annotations

from hekla.units.timestamps import TimestampError, parse_time

UNKNOWN = "<unknown>"
INVALID = "<invalid>"

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400
# Below this bound: the unit, and the finer unit unless it is zero.
_STEPS = (
    (2 * _MINUTE, (1, "s"), None),
    (10 * _MINUTE, (_MINUTE, "m"), (1, "s")),
    (3 * _HOUR, (_MINUTE, "m"), None),
    (8 * _HOUR, (_HOUR, "h"), (_MINUTE, "m")),
    (2 * _DAY, (_HOUR, "h"), None),
    (8 * _DAY, (_DAY, "d"), (_HOUR, "h")),
    (2 * _YEAR, (_DAY, "d"), None),
    (8 * _YEAR, (_YEAR, "y"), (_DAY, "d")),
    (float("inf"), (_YEAR, "y"), None),
)


def human_duration(seconds: float) -> str:
    """`human_duration(150) == "2m30s"`."""
    whole = int(seconds)  # toward zero, as Go
    if whole < -1:
        return INVALID
    # Clocks of two machines may differ by a second: show zero.
    whole = max(0, whole)
    _, coarse, fine = next(step for step in _STEPS if whole < step[0])
    size, unit = coarse
    count, rest = divmod(whole, size)
    text = f"{count}{unit}"
    if fine is not None and rest // fine[0]:
        text += f"{rest // fine[0]}{fine[1]}"
    return text


def age(timestamp: str | None, now: float) -> str:
    """Return the age of a time; `<unknown>` for none, `<invalid>` for a malformed one."""
    if not timestamp:
        return UNKNOWN
    try:
        return human_duration(now - parse_time(timestamp))
    except TimestampError:
        return INVALID
