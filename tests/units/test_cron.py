"""Cron schedules."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from hekla.units.cron import CronError, parse_cron

START = datetime(2026, 5, 1, 12, 10, 30)
NEXT = {
    "*/15 * * * *": datetime(2026, 5, 1, 12, 15),
    "0 3 * * *": datetime(2026, 5, 2, 3, 0),
    "0 0 13 * FRI": datetime(2026, 5, 8, 0, 0),  # the day or the weekday
    "@hourly": datetime(2026, 5, 1, 13, 0),
    "@weekly": datetime(2026, 5, 3, 0, 0),
    "@every 90m": datetime(2026, 5, 1, 13, 40, 30),
}


@pytest.mark.parametrize("schedule", NEXT)
def test_next_time_of_schedule(schedule: str) -> None:
    assert parse_cron(schedule)(START) == NEXT[schedule]


def test_schedule_follows_daylight_saving_of_its_time_zone() -> None:
    oslo = ZoneInfo("Europe/Oslo")
    before = datetime(2026, 3, 28, 12, 0, tzinfo=oslo)
    first = parse_cron("0 6 * * *")(before)
    assert (first.hour, first.utcoffset()) == (6, first.replace(tzinfo=oslo).utcoffset())


@pytest.mark.parametrize(
    "text", ["", "* * * *", "61 * * * *", "@often", "@every now", "* * * * * *"]
)
def test_invalid_input_is_rejected(text: str) -> None:
    with pytest.raises(CronError):
        parse_cron(text)
