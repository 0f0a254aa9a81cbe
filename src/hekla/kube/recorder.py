"""The recorder of Kubernetes Events.

    recorder = EventRecorder(client, component="volcano")
    recorder.event(reference(PODS, pod), "Warning", "Unschedulable", "0/3 nodes are available")

Note: Events are best effort. `event` neither waits nor raises: Events that do not fit into the
queue or fail to be sent are dropped and counted. State belongs in an object's status.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from hekla.kube.correlation import (
    Correlator,
    Event,
    EventType,
    Record,
    Reference,
    StoredEvent,
)
from hekla.kube.errors import KubeError, NotFound
from hekla.kube.resources import EVENTS, Obj, Resource
from hekla.units.clock import Clock, SystemClock
from hekla.units.timestamps import format_time

__all__ = ["EventRecorder", "RecorderStats", "Reference", "reference"]

logger = logging.getLogger(__name__)

MAX_REASON_CHARS = 128
QUEUE_SIZE = 1000


class EventClient(Protocol):
    """The part of `client.Client` that a recorder uses."""

    async def create(
        self, resource: Resource[Obj], body: Any, *, namespace: str | None = None
    ) -> Obj: ...

    async def patch(
        self, resource: Resource[Obj], name: str, body: Any, *, namespace: str | None = None
    ) -> Obj: ...


class RecorderStats(msgspec.Struct):
    """Counts of sent and dropped Events, for metrics."""

    created: int = 0
    counted: int = 0
    dropped_full: int = 0
    dropped_spam: int = 0
    failed: int = 0


class EventRecorder:
    """Sends Events from a bounded queue in the background, inside `async with`."""

    def __init__(
        self,
        client: EventClient,
        *,
        component: str,
        host: str | None = None,
        clock: Clock | None = None,
        queue_size: int = QUEUE_SIZE,
        throttle: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`throttle` is awaited before each Event, so that more important requests go first."""
        self.stats = RecorderStats()
        self._client = client
        self._component = component
        self._host = socket.gethostname() if host is None else host
        self._clock: Clock = clock or SystemClock()
        self._correlator = Correlator()
        self._queue: deque[Event] = deque()
        self._queue_size = queue_size
        self._throttle = throttle
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._sequence = 0
        self._task: asyncio.Task[None] | None = None

    def event(self, about: Reference, type: EventType, reason: str, message: str) -> None:
        """Record an Event about an object. Returns at once."""
        if len(self._queue) >= self._queue_size:
            self.stats.dropped_full += 1
            return
        now = self._clock.now()
        self._queue.append(Event(about, type, reason[:MAX_REASON_CHARS], message, now))
        self._idle.clear()
        self._wake.set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run(), name="event recorder")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def flushed(self) -> None:
        """Wait until all Events so far are sent or dropped."""
        await self._idle.wait()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            while self._queue:
                if self._throttle is not None:
                    await self._throttle()
                await self._handle(self._queue.popleft())
            self._idle.set()
            self._wake.clear()
            await self._wake.wait()

    async def _handle(self, event: Event) -> None:
        record = self._correlator.decide(event)
        if record is None:
            self.stats.dropped_spam += 1
            return
        try:
            await self._send(record)
        except KubeError as error:
            # A terminating namespace refuses new Events; Events are not retried for long.
            self.stats.failed += 1
            logger.debug("an event about %s was not recorded: %s", event.about.name, error)
        except Exception:  # the outermost loop of a task
            self.stats.failed += 1
            logger.exception("an event about %s was not recorded", event.about.name)

    async def _send(self, record: Record) -> None:
        if record.stored is not None:
            try:
                await self._count_up(record, record.stored)
                return
            except NotFound:
                self._correlator.expired(record)  # Events expire; create a new one
        await self._create(record)

    async def _count_up(self, record: Record, stored: StoredEvent) -> None:
        count = stored.count + 1
        body = {
            "count": count,
            "lastTimestamp": format_time(record.event.at),
            "message": record.message,
        }
        await self._client.patch(EVENTS, stored.name, body, namespace=stored.namespace)
        new = StoredEvent(stored.name, stored.namespace, count, stored.first)
        self._correlator.sent(record, new)
        self.stats.counted += 1

    async def _create(self, record: Record) -> None:
        about = record.event.about
        # Events about cluster-scoped objects are in "default".
        namespace = about.namespace or "default"
        when = format_time(record.event.at)
        self._sequence += 1
        # Named as by client-go: the object's name and a unique number.
        unique = int(record.event.at * 1_000_000_000) + self._sequence
        name = f"{about.name[:200]}.{unique:x}"
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": about,
            "reason": record.event.reason,
            "message": record.message,
            "type": record.event.type,
            "source": {"component": self._component, "host": self._host},
            "firstTimestamp": when,
            "lastTimestamp": when,
            "count": 1,
            "reportingComponent": self._component,
            "reportingInstance": self._host[:128],
        }
        await self._client.create(EVENTS, body, namespace=namespace)
        self._correlator.sent(record, StoredEvent(name, namespace, 1, record.event.at))
        self.stats.created += 1


def reference(
    resource: Resource[Any], obj: Mapping[str, Any], *, field_path: str = ""
) -> Reference:
    """Return a reference to a plain object of `resource`."""
    metadata = obj.get("metadata", {})
    return Reference(
        kind=obj.get("kind") or resource.kind,
        apiVersion=obj.get("apiVersion") or resource.api_version,
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        resourceVersion=metadata.get("resourceVersion", ""),
        fieldPath=field_path,
    )
