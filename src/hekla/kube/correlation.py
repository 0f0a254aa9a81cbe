"""Which Events are worth sending: repetition counted, similar ones combined, floods cut off.

Pure, and in the order and with the numbers of client-go's correlator:

1. More than 10 *different* messages about one object, for one reason, within 10 minutes become one
   Event, "(combined from similar events): …".
2. The same Event again becomes a higher count on the stored one, not another object.
3. Per source and object: 25 at once, then one every 5 minutes; the rest is dropped.

What a newcomer gets wrong: an Event's message should not contain what changes every time (a score,
a time). Such Events defeat counting, are combined, and say less than a stable sentence would.
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
    """The object an Event is about."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    apiVersion: str = ""
    resourceVersion: str = ""
    fieldPath: str = ""


class Happening(msgspec.Struct, frozen=True):
    """Something that happened, before it is an Event."""

    about: Reference
    type: EventType
    reason: str
    message: str
    at: float


class Stored(msgspec.Struct):
    """The Event that stands for a happening on the server."""

    name: str
    namespace: str
    count: int
    first: float


class Record(msgspec.Struct, frozen=True):
    """What to send: a new Event, or a higher count on `stored`."""

    happening: Happening
    message: str
    key: Hashable
    stored: Stored | None


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
    """Decides about one happening at a time; remembers a bounded number of them."""

    def __init__(self, *, cache_size: int = CACHE_SIZE) -> None:
        self._similar: _Lru[_Similar] = _Lru(cache_size)
        self._stored: _Lru[Stored] = _Lru(cache_size)
        self._buckets: _Lru[_Bucket] = _Lru(cache_size)

    def decide(self, happening: Happening) -> Record | None:
        """What to send for `happening`, or None to drop it."""
        message, key = self._combined(happening)
        if self._is_spam(happening):
            return None
        return Record(happening, message, key, self._stored.get(key))

    def sent(self, record: Record, stored: Stored) -> None:
        """`record` is on the server as `stored`; the next of its kind raises the count."""
        self._stored.put(record.key, stored)

    def gone(self, record: Record) -> None:
        """The Event that `record` meant to count up has expired on the server."""
        self._stored.drop(record.key)

    def _combined(self, happening: Happening) -> tuple[str, Hashable]:
        about = happening.about
        group = (about.kind, about.namespace, about.name, about.uid, about.apiVersion)
        group_key = (*group, about.fieldPath, happening.type, happening.reason)
        message = bounded(happening.message)
        similar = self._similar.get(group_key)
        if similar is None or happening.at - similar.last > SIMILAR_WITHIN_S:
            similar = _Similar(happening.at)
            self._similar.put(group_key, similar)
        similar.last = happening.at
        if len(similar.messages) < MAX_SIMILAR or message in similar.messages:
            similar.messages.add(message)
            return message, (group_key, message)
        return bounded(COMBINED_PREFIX + message), (group_key, None)

    def _is_spam(self, happening: Happening) -> bool:
        about = happening.about
        key = (about.kind, about.namespace, about.name, about.uid, about.apiVersion)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = _Bucket(happening.at)
            self._buckets.put(key, bucket)
        gained = max(0.0, happening.at - bucket.filled_at) / SPAM_REFILL_S
        bucket.tokens = min(SPAM_BURST, bucket.tokens + gained)
        bucket.filled_at = happening.at
        if bucket.tokens < 1.0:
            return True
        bucket.tokens -= 1.0
        return False


def bounded(message: str) -> str:
    """`message` as the API server accepts it: at most 1024 bytes, cut at a character."""
    if len(message) * 4 <= MAX_MESSAGE_CHARS:
        return message
    encoded = message.encode("utf-8", "replace")
    if len(encoded) <= MAX_MESSAGE_CHARS:
        return message
    return encoded[: MAX_MESSAGE_CHARS - 3].decode("utf-8", "ignore") + "…"
