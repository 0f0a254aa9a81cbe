"""Durations are parsed and printed as in Go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.units.durations import (
    DurationError,
    format_duration,
    format_duration_ns,
    parse_duration,
    parse_duration_ns,
)

SECOND = 10**9
READ = {
    "0": 0,
    "-0": 0,
    "5s": 5 * SECOND,
    "+5s": 5 * SECOND,
    "-5s": -5 * SECOND,
    "5m0s": 300 * SECOND,
    "1h30m": 5400 * SECOND,
    "300ms": 300 * 10**6,
    "1.5h": 5400 * SECOND,
    ".5s": SECOND // 2,
    "1.s": SECOND,
    "10us": 10_000,
    "10µs": 10_000,
    "10μs": 10_000,
    "7ns": 7,
    "1.9ns": 1,
    "1s1s": 2 * SECOND,
    "39h9m14.425s": (39 * 3600 + 9 * 60 + 14) * SECOND + 425 * 10**6,
    "9223372036854775807ns": 2**63 - 1,
    "-9223372036854775808ns": -(2**63),
}
PRINTED = {
    0: "0s",
    1: "1ns",
    1100: "1.1µs",
    2_200_000: "2.2ms",
    3_300_000_000: "3.3s",
    300 * SECOND: "5m0s",
    5400 * SECOND: "1h30m0s",
    (4 * 60 + 5) * SECOND + 10**6: "4m5.001s",
    -SECOND: "-1s",
    100 * 3600 * SECOND: "100h0m0s",
}
REFUSED = {
    "nothing": "",
    "a bare number": "3",
    "a sign alone": "-",
    "a unit alone": "s",
    "a point alone": ".s",
    "days": "1d",
    "a space": "1h 30m",
    "two signs": "--1s",
    "no unit at the end": "1h5",
    "too long for Go": "3000000h",
    "no text": 5,
    "absurdly many digits": "9" * 5000 + "s",
}


@pytest.mark.parametrize("text", READ)
def test_durations_are_parsed(text: str) -> None:
    assert parse_duration_ns(text) == READ[text]


@pytest.mark.parametrize("nanoseconds", PRINTED)
def test_durations_are_printed_as_go_prints_them(nanoseconds: int) -> None:
    assert format_duration_ns(nanoseconds) == PRINTED[nanoseconds]


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_input_is_rejected(case: str) -> None:
    with pytest.raises(DurationError, match="duration"):
        parse_duration(REFUSED[case])  # type: ignore[arg-type]


def test_durations_convert_to_seconds() -> None:
    assert parse_duration("1m30s") == 90.0
    assert format_duration(90) == "1m30s"
    assert format_duration(0.1) == "100ms"


@given(st.integers(-(2**63), 2**63 - 1))
def test_printed_duration_parses_to_the_same_value(nanoseconds: int) -> None:
    assert parse_duration_ns(format_duration_ns(nanoseconds)) == nanoseconds
