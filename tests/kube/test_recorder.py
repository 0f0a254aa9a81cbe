"""Event recording: counting, aggregation, rate limit, and no effect on the caller."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from hekla.kube.client import Client
from hekla.kube.correlation import COMBINED_PREFIX, Correlator, Event, Record, Reference, bounded
from hekla.kube.errors import Forbidden, NotFound
from hekla.kube.recorder import EventRecorder, reference
from hekla.kube.resources import NODES, PODS
from hekla.units.clock import ManualClock
from tests.kube.fake_server import FakeServer

POD = Reference(kind="Pod", namespace="ml", name="a", uid="u1", apiVersion="v1")


class EventLog:
    """The Events that were created and patched on the server."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.fail: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def create(self, resource: Any, body: Any, *, namespace: str | None = None) -> Any:
        await self.gate.wait()
        if self.fail:
            raise self.fail
        assert body["metadata"]["name"] not in self.events
        self.events[body["metadata"]["name"]] = dict(body)
        return body

    async def patch(
        self, resource: Any, name: str, body: Any, *, namespace: str | None = None
    ) -> Any:
        await self.gate.wait()
        if name not in self.events:
            raise NotFound(404, "NotFound")
        self.events[name].update(body)
        return self.events[name]


@pytest.fixture
def log() -> EventLog:
    return EventLog()


def recorder(log: Any, clock: Any, **options: Any) -> EventRecorder:
    return EventRecorder(log, component="volcano", host="h1", clock=clock, **options)


async def test_event_has_source_object_reason_and_time(log: Any, clock: ManualClock) -> None:
    async with recorder(log, clock) as events:
        events.event(POD, "Warning", "Unschedulable", "0/3 nodes are available")
        await events.flushed()
    (event,) = log.events.values()
    assert event["involvedObject"] == POD
    assert event["metadata"]["name"].startswith("a.")
    assert event["metadata"]["namespace"] == "ml"
    assert event["reason"] == "Unschedulable"
    assert event["type"] == "Warning"
    assert event["source"] == {"component": "volcano", "host": "h1"}
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2023-11-14T22:13:20Z"
    assert event["count"] == 1


async def test_repeated_event_increments_the_count(log: Any, clock: ManualClock) -> None:
    async with recorder(log, clock) as events:
        for _ in range(3):
            events.event(POD, "Normal", "Started", "it started")
            await events.flushed()
            clock.skip(10)
    (event,) = log.events.values()
    assert event["count"] == 3
    assert event["firstTimestamp"] == "2023-11-14T22:13:20Z"
    assert event["lastTimestamp"] == "2023-11-14T22:13:40Z"


async def test_expired_event_is_created_again(log: Any, clock: ManualClock) -> None:
    async with recorder(log, clock) as events:
        events.event(POD, "Normal", "Started", "it started")
        await events.flushed()
        log.events.clear()
        clock.skip(1)
        events.event(POD, "Normal", "Started", "it started")
        await events.flushed()
    (event,) = log.events.values()
    assert event["count"] == 1


async def test_events_about_cluster_scoped_objects_are_in_default(
    log: Any, clock: ManualClock
) -> None:
    node = reference(NODES, {"metadata": {"name": "n1", "uid": "u9"}})
    async with recorder(log, clock) as events:
        events.event(node, "Normal", "Ready", "ready")
        await events.flushed()
    (event,) = log.events.values()
    assert event["metadata"]["namespace"] == "default"
    assert event["involvedObject"].kind == "Node"


async def test_the_caller_never_waits_and_a_full_queue_drops(log: Any, clock: ManualClock) -> None:
    log.gate.clear()
    async with recorder(log, clock, queue_size=2) as events:
        for number in range(10):
            events.event(POD, "Normal", "R", f"message {number}")
        assert events.stats.dropped_full == 8
        log.gate.set()
        await events.flushed()
    assert len(log.events) == 2


async def test_refused_event_is_counted_and_the_next_is_sent(log: Any, clock: ManualClock) -> None:
    async with recorder(log, clock) as events:
        log.fail = Forbidden(403, "Forbidden")
        events.event(POD, "Normal", "R", "first")
        await events.flushed()
        log.fail = None
        events.event(POD, "Normal", "R", "second")
        await events.flushed()
        assert (events.stats.failed, events.stats.created) == (1, 1)


async def test_reference_has_the_kind_of_the_resource() -> None:
    made = reference(PODS, {"metadata": {"name": "a", "namespace": "ml", "resourceVersion": "5"}})
    assert (made.kind, made.apiVersion, made.resourceVersion) == ("Pod", "v1", "5")


async def test_works_with_the_real_client(
    client: Client, server: FakeServer, clock: ManualClock
) -> None:
    async with recorder(client, clock) as events:
        events.event(POD, "Normal", "R", "m")
        events.event(POD, "Normal", "R", "m")
        async with asyncio.timeout(60):
            await events.flushed()
    (event,) = server.kind("/api/v1/events").objects.values()
    assert event["count"] == 2
    assert event["involvedObject"]["uid"] == "u1"
    assert "fieldPath" not in event["involvedObject"]


def decided(correlator: Correlator, event: Event) -> Record:
    record = correlator.decide(event)
    assert record is not None
    return record


def an_event(message: str, at: float = 0.0, about: Reference = POD) -> Event:
    return Event(about, "Normal", "Reason", message, at)


def test_many_different_messages_for_one_reason_are_combined() -> None:
    correlator = Correlator()
    messages = [decided(correlator, an_event(f"score {n}")).message for n in range(15)]
    assert messages[9] == "score 9"
    assert messages[10] == f"{COMBINED_PREFIX}score 10"
    keys = [decided(correlator, an_event(f"score {n}", 1.0)).key for n in (20, 21)]
    assert keys[0] == keys[1]


def test_aggregation_ends_after_ten_quiet_minutes() -> None:
    correlator = Correlator()
    for number in range(12):
        correlator.decide(an_event(f"score {number}"))
    record = decided(correlator, an_event("score 99", at=601.0))
    assert record.message == "score 99"


def test_events_about_one_object_are_rate_limited() -> None:
    correlator = Correlator()
    sent = Counter(correlator.decide(an_event("m", at=0.0)) is not None for _ in range(100))
    assert sent[True] == 25
    assert correlator.decide(an_event("m", at=299.0)) is None
    assert correlator.decide(an_event("m", at=301.0)) is not None
    other = Reference(kind="Pod", namespace="ml", name="b", uid="u2")
    assert correlator.decide(an_event("m", about=other)) is not None


def test_correlator_memory_is_bounded() -> None:
    correlator = Correlator(cache_size=5)
    for number in range(50):
        about = Reference(kind="Pod", name=f"p{number}")
        correlator.decide(an_event("m", about=about))
    assert len(correlator._buckets) == len(correlator._similar) == 5


def test_long_message_is_truncated_to_the_servers_limit() -> None:
    cut = bounded("ä" * 2000)
    assert len(cut.encode()) <= 1024
    assert cut.endswith("ä…")
    assert bounded("short") == "short"
    assert bounded("x" * 1024) == "x" * 1024
