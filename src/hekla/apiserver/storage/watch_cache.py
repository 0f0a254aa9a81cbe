"""What changed lately, per resource: the window that watches resume from and pages are cut from.

A watcher owns no queue. It holds a position in this log and reads on from there, so a slow one
costs no memory: when the log has moved past its position it is cut off with 410 and lists again.
The window is bounded by events and by bytes; whatever falls out of it is simply "too old".
"""

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter

import msgspec

_revision = attrgetter("revision")


class _Metadata(msgspec.Struct):
    leaves: str | None = msgspec.field(default=None, name="deletionTimestamp")


class _Object(msgspec.Struct):
    metadata: _Metadata


_meta = msgspec.json.Decoder(_Object)


class Entry:
    """One stored version of an object: its key, its revision and its encoded bytes."""

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
        """Whether it is being deleted. The word alone says nothing: schemas hold it, too."""
        return b'"deletionTimestamp"' in self.body and bool(_meta.decode(self.body).metadata.leaves)


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

    `floor` is the revision below which nothing is known: every event after it is present.
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
        # Trim in strides: deleting the head of a list one by one would cost its length each time.
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
        """The revision of the last change, or the floor when there was none."""
        return self._events[-1].revision if self._events else self.floor

    def reaches(self, revision: int) -> bool:
        """Whether every event after `revision` is still here."""
        return revision >= self.floor

    def after(self, revision: int, limit: int | None = None) -> list[Event]:
        """Events newer than `revision`, oldest first. Ask `reaches` before."""
        start = bisect_right(self._events, revision, key=_revision)
        return self._events[start : None if limit is None else start + limit]

    def undo_until(self, revision: int) -> Iterator[Event]:
        """Events newer than `revision`, newest first: undoing them gives the state back then."""
        start = bisect_right(self._events, revision, key=_revision)
        return reversed(self._events[start:])
