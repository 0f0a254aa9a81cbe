"""Go durations ("5m0s", "1h30m", "300ms"), as in Kubernetes and Volcano configuration.

Nanoseconds as int are exact; seconds as float are for timers.

Note: a number without a unit is not a duration, except "0", and the largest unit is the hour.
"""

from __future__ import annotations

import re
from typing import Final

from hekla.units.errors import DurationError

__all__ = [
    "DurationError",
    "format_duration",
    "format_duration_ns",
    "parse_age",
    "parse_duration",
    "parse_duration_ns",
]

NANOS_PER_SECOND: Final = 1_000_000_000
_MAX_NS: Final = 2**63 - 1

_UNITS: Final[dict[str, int]] = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # micro sign
    "μs": 1_000,  # Greek mu
    "ms": 1_000_000,
    "s": NANOS_PER_SECOND,
    "m": 60 * NANOS_PER_SECOND,
    "h": 3_600 * NANOS_PER_SECOND,
}
_DAYS = re.compile(r"([0-9]{1,5})([dw])", re.ASCII)
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)", re.ASCII)


def parse_duration(text: str) -> float:
    """Return seconds: `parse_duration("1h30m") == 5400.0`."""
    return parse_duration_ns(text) / NANOS_PER_SECOND


def parse_age(text: str) -> float:
    """Return the seconds of a duration that may also be in days or weeks: `7d`, `2w`, `36h`."""
    if match := _DAYS.fullmatch(text):
        return int(match[1]) * (7 if match[2] == "w" else 1) * 86_400.0
    try:
        seconds = parse_duration(text)
    except DurationError as error:
        raise DurationError(f"{error}; or write days or weeks: 7d, 2w") from error
    if seconds < 0:
        raise DurationError(f"duration {text!r}: is negative")
    return seconds


def parse_duration_ns(text: str) -> int:
    """Return exact nanoseconds; finer fractions are truncated, as in Go."""
    if not isinstance(text, str):
        raise DurationError(f'duration {text!r}: must be text with a unit, such as "90s"')
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    if not rest:
        raise DurationError(f'duration {text!r}: is empty; write for example "1h30m" or "300ms"')
    total = 0
    position = 0
    while position < len(rest):
        match = _PART.match(rest, position)
        if match is None or not (match[1] or match[2]):
            raise DurationError(
                f'duration {text!r}: no number at {rest[position:]!r}; write for example "1h30m"'
            )
        total += _part_ns(text, match)
        position = match.end()
    negative = text[0] == "-"
    if total > _MAX_NS + negative:
        raise DurationError(f"duration {text!r}: is longer than Go can hold, about 292 years")
    return -total if negative else total


def _part_ns(text: str, match: re.Match[str]) -> int:
    whole, fraction, unit = match[1], match[2] or "", match[3]
    scale = _UNITS.get(unit)
    if scale is None:
        what = f"unknown unit {unit!r}" if unit else f"{match[0]!r} has no unit"
        raise DurationError(f"duration {text!r}: {what}; use one of ns, us, ms, s, m, h")
    if len(whole) > 19 or len(fraction) > 100:
        raise DurationError(f"duration {text!r}: has too many digits")
    part_ns = int(whole or "0") * scale
    if fraction:
        part_ns += int(fraction) * scale // 10 ** len(fraction)
    return part_ns


def format_duration(seconds: float) -> str:
    """Return seconds as Go prints them: `format_duration(300) == "5m0s"`."""
    return format_duration_ns(round(seconds * NANOS_PER_SECOND))


def format_duration_ns(nanoseconds: int) -> str:
    """Format as Go's `Duration.String()`: below a second one unit ("1.5ms"), else h, m and s."""
    if nanoseconds == 0:
        return "0s"
    sign = "-" if nanoseconds < 0 else ""
    amount = abs(nanoseconds)
    if amount < 1_000:
        return f"{sign}{amount}ns"
    if amount < 1_000_000:
        return f"{sign}{_decimal(amount, 1_000)}µs"
    if amount < NANOS_PER_SECOND:
        return f"{sign}{_decimal(amount, 1_000_000)}ms"
    minutes, below_minute = divmod(amount, 60 * NANOS_PER_SECOND)
    seconds = _decimal(below_minute, NANOS_PER_SECOND)
    if minutes == 0:
        return f"{sign}{seconds}s"
    hours, minutes = divmod(minutes, 60)
    if hours == 0:
        return f"{sign}{minutes}m{seconds}s"
    return f"{sign}{hours}h{minutes}m{seconds}s"


def _decimal(amount: int, unit: int) -> str:
    whole, part = divmod(amount, unit)
    if part == 0:
        return str(whole)
    width = len(str(unit)) - 1
    return f"{whole}.{part:0{width}d}".rstrip("0")
