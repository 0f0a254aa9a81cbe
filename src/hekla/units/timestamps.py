"""RFC 3339 times as Kubernetes writes them, to and from unix seconds and aware datetimes.

Note: there are two formats. `metadata.creationTimestamp`, conditions and most other times have
whole seconds (`format_time`); lease and event times have six digits (`format_micro_time`). Both are
written in UTC with a "Z"; any offset can be parsed.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Final

from hekla.units.errors import TimestampError

__all__ = [
    "TimestampError",
    "format_micro_time",
    "format_time",
    "parse_datetime",
    "parse_time",
]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))",
    re.ASCII,
)


def parse_datetime(text: str) -> datetime:
    """Return an aware datetime in UTC; digits finer than a microsecond are truncated."""
    match = _RFC3339.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise TimestampError(
            f'time {text!r}: is not RFC 3339; write it like "2026-01-02T03:04:05Z"'
        )
    year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
    micros = int((match[7] or "0")[:6].ljust(6, "0"))
    try:
        moment = datetime(year, month, day, hour, minute, second, micros, _zone(match))
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise TimestampError(f"time {text!r}: {error}") from error


def _zone(match: re.Match[str]) -> timezone:
    if match[8] is None:
        return UTC
    hours, minutes = int(match[9]), int(match[10])
    if hours > 24 or minutes > 59:
        raise ValueError("the offset from UTC is out of range")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if match[8] == "-" else offset)


def parse_time(text: str) -> float:
    """Return unix seconds."""
    return (parse_datetime(text) - _EPOCH) / timedelta(seconds=1)


def format_time(moment: float | datetime) -> str:
    """Format whole seconds as `metav1.Time`: `format_time(0) == "1970-01-01T00:00:00Z"`.

    Fractions are truncated, so that an object is not created in the future.
    """
    return _second_text(_micros(moment) // 1_000_000) + "Z"


def format_micro_time(moment: float | datetime) -> str:
    """Format six digits as `metav1.MicroTime`: "1970-01-01T00:00:00.000000Z"."""
    seconds, micros = divmod(_micros(moment), 1_000_000)
    return f"{_second_text(seconds)}.{micros:06d}Z"


def _micros(moment: float | datetime) -> int:
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise TimestampError(
                f"time {moment.isoformat()}: has no time zone; use datetime.now(UTC) or similar"
            )
        return (moment - _EPOCH) // timedelta(microseconds=1)
    try:
        return round(moment * 1_000_000)
    except (ValueError, OverflowError) as error:
        raise TimestampError(f"time {moment!r}: {error}") from error


@lru_cache(maxsize=64)  # a server formats the same second many times
def _second_text(seconds: int) -> str:
    try:
        broken_down = time.gmtime(seconds)
    except (ValueError, OverflowError, OSError) as error:
        raise TimestampError(f"time {seconds} s after 1970: {error}") from error
    if not 1 <= broken_down.tm_year <= 9999:
        raise TimestampError(f"time {seconds} s after 1970: the year must be between 1 and 9999")
    return (
        f"{broken_down.tm_year:04d}-{broken_down.tm_mon:02d}-{broken_down.tm_mday:02d}"
        f"T{broken_down.tm_hour:02d}:{broken_down.tm_min:02d}:{broken_down.tm_sec:02d}"
    )
