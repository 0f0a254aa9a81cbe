"""Times are written in UTC as in Kubernetes, and parsed with any offset."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.units.timestamps import (
    TimestampError,
    format_micro_time,
    format_time,
    parse_datetime,
    parse_time,
)

REFUSED = {
    "nothing": "",
    "a date alone": "2026-01-02",
    "no zone": "2026-01-02T03:04:05",
    "a space for the T": "2026-01-02 03:04:05Z",
    "lower case": "2026-01-02t03:04:05z",
    "no such day": "2026-02-30T00:00:00Z",
    "no such hour": "2026-01-02T24:00:00Z",
    "a leap second": "2026-12-31T23:59:60Z",
    "no such offset": "2026-01-02T03:04:05+25:00",
    "the year nought": "0000-01-01T00:00:00Z",
    "before the calendar": "0001-01-01T00:00:00+10:00",
    "a trailing newline": "2026-01-02T03:04:05Z\n",
    "a number": 5,
}


def test_known_moments() -> None:
    assert parse_time("1970-01-01T00:00:00Z") == 0
    assert parse_time("2026-01-02T03:04:05Z") == 1767323045
    assert parse_time("2026-01-02T03:04:05.5Z") == 1767323045.5
    assert parse_time("2026-01-02T05:34:05+02:30") == 1767323045
    assert parse_time("2026-01-01T23:04:05-04:00") == 1767323045
    assert format_time(1767323045.999) == "2026-01-02T03:04:05Z"
    assert format_micro_time(1767323045.25) == "2026-01-02T03:04:05.250000Z"
    assert format_micro_time(-0.5) == "1969-12-31T23:59:59.500000Z"
    assert format_time(parse_time("0001-01-01T00:00:00Z")) == "0001-01-01T00:00:00Z"


def test_digits_finer_than_a_microsecond_are_truncated() -> None:
    assert parse_datetime("2026-01-02T03:04:05.123456789Z").microsecond == 123456


def test_datetimes_of_any_zone_are_written_in_utc() -> None:
    moment = datetime(2026, 1, 2, 5, 0, tzinfo=timezone(timedelta(hours=2)))
    assert format_time(moment) == "2026-01-02T03:00:00Z"
    assert parse_datetime("2026-01-02T05:00:00+02:00") == moment
    assert parse_datetime("2026-01-02T05:00:00+02:00").tzinfo is UTC


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_input_is_rejected(case: str) -> None:
    with pytest.raises(TimestampError, match="time"):
        parse_time(REFUSED[case])  # type: ignore[arg-type]


@pytest.mark.parametrize("moment", [1e30, float("nan"), float("inf"), -1e14, datetime(2026, 1, 2)])
def test_unrepresentable_times_are_rejected(moment: float | datetime) -> None:
    with pytest.raises(TimestampError, match="time"):
        format_time(moment)


@given(st.datetimes(timezones=st.just(UTC)))
def test_formatted_time_parses_to_the_same_value(moment: datetime) -> None:
    assert parse_datetime(format_micro_time(moment)) == moment
    assert parse_datetime(format_time(moment)) == moment.replace(microsecond=0)


@given(st.integers(-(10**10), 10**11))
def test_whole_seconds_survive_the_round_trip(seconds: int) -> None:
    assert parse_time(format_time(seconds)) == seconds
