"""Expiry of Events by age and number."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hekla.apiserver.background import tasks
from hekla.apiserver.background.tasks import expired_events
from hekla.apiserver.storage.watch_cache import Entry
from hekla.units.timestamps import format_time

NOW = 1_700_000_000.0


def event(name: str, age: float, **times: Any) -> Entry:
    body = {"metadata": {"name": name, "creationTimestamp": format_time(NOW - age)}, **times}
    return Entry(f"default/{name}", 1, json.dumps(body).encode())


def test_event_expires_an_hour_after_its_last_occurrence() -> None:
    fresh = format_time(NOW - 10)
    entries = [
        event("old", 3601),
        event("young", 3599),
        event("repeated", 9000, lastTimestamp=fresh),
        event("series", 9000, eventTime=None, series={"count": 3, "lastObservedTime": fresh}),
    ]
    assert expired_events(entries, NOW) == ["default/old"]


def test_oldest_events_beyond_the_limit_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MAX_EVENTS", 3)
    entries = [event(f"e{number}", age=number) for number in range(5)]
    assert expired_events(entries, NOW) == ["default/e4", "default/e3"]
    assert expired_events(entries[:3], NOW) == []
