"""Event correlation: count repeated Events, aggregate similar ones, limit their rate.

Pure functions, with the order and the numbers of client-go's correlator:

1. More than 10 *different* messages about one object, with one reason, within 10 minutes become one
   Event, "(combined from similar events): …".
2. A repeated Event increases the count of the stored one.
3. Per source and object: a burst of 25, then one every 5 minutes; others are dropped.

Note: a message should not contain values that change each time (a score, a time). Such Events
cannot be counted and are aggregated.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Literal, TypeVar

import msgspec

V = TypeVar("V")

CACHE_SIZE = 4096
MAX_SIMILAR = 10
SIMILAR_WITHIN_S = 600.0
SPAM_BURST = 25.0
SPAM_REFILL_S = 300.0
COMBINED_PREFIX = "(combined from similar events): "
MAX_MESSAGE_CHARS = 1024

EventType = Literal["Normal", "Warning"]


class Reference(msgspec.Struct, frozen=True, omit_defaults=True):
    """The object of an Event."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    apiVersion: str = ""
    resourceVersion: str = ""
    fieldPath: str = ""


class Event(msgspec.Struct, frozen=True):
    """An Event to record, before correlation."""

    about: Reference
    type: EventType
    reason: str
    message: str
    at: float


class StoredEvent(msgspec.Struct):
    """The Event on the server that counts repetitions."""

    name: str
    namespace: str
    count: int
    first: float


class Record(msgspec.Struct, frozen=True):
    """A request to send: a new Event, or a higher count on `stored`."""

    event: Event
    message: str
    key: Hashable
    stored: StoredEvent | None


class _Lru(Generic[V]):
    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def put(self, key: Hashable, value: V) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)

    def drop(self, key: Hashable) -> None:
        self._values.pop(key, None)

    def __len__(self) -> int:
        return len(self._values)


class _Similar:
    __slots__ = ("last", "messages")

    def __init__(self, now: float) -> None:
        self.last = now
        self.messages: set[str] = set()


class _Bucket:
    __slots__ = ("filled_at", "tokens")

    def __init__(self, now: float) -> None:
        self.tokens = SPAM_BURST
        self.filled_at = now


class Correlator:
    """Decides what to send for each event; its memory is bounded."""

    def __init__(self, *, cache_size: int = CACHE_SIZE) -> None:
        self._similar: _Lru[_Similar] = _Lru(cache_size)
        self._stored: _Lru[StoredEvent] = _Lru(cache_size)
        self._buckets: _Lru[_Bucket] = _Lru(cache_size)

    def decide(self, event: Event) -> Record | None:
        """Return what to send for an event, or None to drop it."""
        message, key = self._aggregated(event)
        if self._is_rate_limited(event):
            return None
        return Record(event, message, key, self._stored.get(key))

    def sent(self, record: Record, stored: StoredEvent) -> None:
        """Remember that `record` is on the server as `stored`, so that repetitions increase its
        count."""
        self._stored.put(record.key, stored)

    def expired(self, record: Record) -> None:
        """Forget the stored Event of `record`: it has expired on the server."""
        self._stored.drop(record.key)

    def _aggregated(self, event: Event) -> tuple[str, Hashable]:
        about = event.about
        group = (about.kind, about.namespace, about.name, about.uid, about.apiVersion)
        group_key = (*group, about.fieldPath, event.type, event.reason)
        message = bounded(event.message)
        similar = self._similar.get(group_key)
        if similar is None or event.at - similar.last > SIMILAR_WITHIN_S:
            similar = _Similar(event.at)
            self._similar.put(group_key, similar)
        similar.last = event.at
        if len(similar.messages) < MAX_SIMILAR or message in similar.messages:
            similar.messages.add(message)
            return message, (group_key, message)
        return bounded(COMBINED_PREFIX + message), (group_key, None)

    def _is_rate_limited(self, event: Event) -> bool:
        about = event.about
        key = (about.kind, about.namespace, about.name, about.uid, about.apiVersion)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = _Bucket(event.at)
            self._buckets.put(key, bucket)
        gained = max(0.0, event.at - bucket.filled_at) / SPAM_REFILL_S
        bucket.tokens = min(SPAM_BURST, bucket.tokens + gained)
        bucket.filled_at = event.at
        if bucket.tokens < 1.0:
            return True
        bucket.tokens -= 1.0
        return False


def bounded(message: str) -> str:
    """Return a message of at most 1024 bytes, cut at a character."""
    if len(message) * 4 <= MAX_MESSAGE_CHARS:
        return message
    encoded = message.encode("utf-8", "replace")
    if len(encoded) <= MAX_MESSAGE_CHARS:
        return message
    return encoded[: MAX_MESSAGE_CHARS - 3].decode("utf-8", "ignore") + "…"
