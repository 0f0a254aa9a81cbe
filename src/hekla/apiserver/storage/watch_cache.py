"""The watch cache: recent events per resource, for watches and consistent pages.

A watcher has no queue: it holds a position in this cache and reads on from there, so a slow one
costs no memory. When the cache has dropped its position, the watch ends with 410 and the client
lists again. The cache is bounded by events and by bytes.
"""

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter

import msgspec

_revision = attrgetter("revision")


class _Metadata(msgspec.Struct):
    deletion_timestamp: str | None = msgspec.field(default=None, name="deletionTimestamp")


class _Object(msgspec.Struct):
    metadata: _Metadata


_meta = msgspec.json.Decoder(_Object)


class Entry:
    """A stored version of an object: key, revision and encoded bytes."""

    __slots__ = ("_fields", "_labels", "body", "key", "revision")

    def __init__(self, key: str, revision: int, body: bytes) -> None:
        self.key = key
        self.revision = revision
        self.body = body
        # Decoded on first use by `selection` and cached: many watchers select alike.
        self._labels: dict[str, str] | None = None
        self._fields: tuple[object, dict[str, str]] | None = None

    @property
    def is_terminating(self) -> bool:
        """Whether it is being deleted. Schemas contain the same word, so the bytes alone are not
        enough."""
        return b'"deletionTimestamp"' in self.body and bool(
            _meta.decode(self.body).metadata.deletion_timestamp
        )


class Event:
    """A change: `previous` is None for a creation, `removed` is set for a deletion."""

    __slots__ = ("entry", "previous", "removed", "revision")

    def __init__(self, entry: Entry, previous: Entry | None, removed: bool) -> None:
        self.revision = entry.revision
        self.entry = entry
        self.previous = previous
        self.removed = removed


class WatchCache:
    """The last events of one resource, oldest first.

    All events after the revision `floor` are present.
    """

    def __init__(self, floor: int, *, max_events: int, max_bytes: int) -> None:
        self.floor = floor
        self.max_events = max_events
        self.max_bytes = max_bytes
        self._events: list[Event] = []
        self._bytes = 0

    def append(self, event: Event) -> None:
        self._events.append(event)
        self._bytes += len(event.entry.body)
        # Trim in strides: removing the head of a list costs its length each time.
        if len(self._events) > self.max_events + 1024 or self._bytes > self.max_bytes * 1.25:
            self._trim()

    def _trim(self) -> None:
        drop = max(0, len(self._events) - self.max_events)
        size = self._bytes - sum(len(event.entry.body) for event in self._events[:drop])
        while size > self.max_bytes and drop < len(self._events):
            size -= len(self._events[drop].entry.body)
            drop += 1
        if drop:
            self.floor = self._events[drop - 1].revision
            del self._events[:drop]
            self._bytes = size

    @property
    def newest(self) -> int:
        """The revision of the last event, or the floor."""
        return self._events[-1].revision if self._events else self.floor

    def reaches(self, revision: int) -> bool:
        """Return whether all events after `revision` are present."""
        return revision >= self.floor

    def after(self, revision: int, limit: int | None = None) -> list[Event]:
        """Return events newer than `revision`, oldest first. Call `reaches` before."""
        start = bisect_right(self._events, revision, key=_revision)
        return self._events[start : None if limit is None else start + limit]

    def undo_until(self, revision: int) -> Iterator[Event]:
        """Yield events newer than `revision`, newest first; undoing them restores that state."""
        start = bisect_right(self._events, revision, key=_revision)
        return reversed(self._events[start:])
