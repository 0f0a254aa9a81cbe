"""Watch: events of a resource's watch cache, sent as lines of JSON.

A watcher takes some new events, sends them in one chunk and waits for the socket before it renders
more. A slow client falls behind in the cache; when the cache has dropped its position, the watch
ends with 410. Memory does not grow with slow watchers.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec

from hekla.apiserver import errors
from hekla.apiserver.storage.selection import Matcher
from hekla.apiserver.storage.store import Store, Table
from hekla.apiserver.storage.watch_cache import Entry, Event

MAX_EVENTS_PER_CHUNK = 500
CHUNK = 128 * 1024
"""Lines are rendered up to about so many bytes before the socket is awaited."""
BOOKMARK_INTERVAL_S = 30.0
LAST_BOOKMARK_S = 2.0
"""So long before a watch ends it sends a bookmark, from which the next watch continues."""

Shaper = Callable[[bytes], bytes]
Convert = Callable[[list[bytes]], Awaitable[None]]


class Watch:
    """One client's watch of one resource."""

    def __init__(
        self,
        store: Store,
        resource: str,
        *,
        prefix: str = "",
        name_key: str = "",
        matches: Matcher | None = None,
        shape: Shaper | None = None,
        bookmark: Callable[[int, bool], bytes] | None = None,
        convert: Convert | None = None,
    ) -> None:
        """`convert` prepares stored bytes for `shape` if that needs a webhook."""
        self._store = store
        self._table: Table = store.table(resource)
        self._prefix = prefix
        self._name_key = name_key
        self._matches = matches
        self._shape = shape
        self._bookmark = bookmark
        self._convert = convert

    def covers(self, entry: Entry) -> bool:
        if self._name_key:
            return entry.key == self._name_key
        return entry.key.startswith(self._prefix)

    def initial(self) -> Iterator[bytes]:
        """Yield ADDED lines for all existing objects, in the state of now."""
        entries = self._table.entries
        keys = [self._name_key] if self._name_key else self._table.range(self._prefix)
        found = [entries[key] for key in keys if key in entries]
        return (
            self._line(b"ADDED", entry.body)
            for entry in found
            if self._matches is None or self._matches(entry)
        )

    async def lines(
        self,
        since: int | None,
        *,
        closing: asyncio.Event,
        timeout_s: float,
        initial_events_end: bool = False,
    ) -> AsyncIterator[bytes]:
        """Yield chunks of lines: existing objects first if `since` is None, then events."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout_s
        last_bookmark = ends - LAST_BOOKMARK_S
        next_bookmark = _bookmark_time(loop.time(), last_bookmark)
        if since is None:
            position = self._store.revision
            if self._convert is not None and (failure := await self._convert_all(self._existing())):
                yield failure
                return
            first = self.initial()
            if initial_events_end and self._bookmark is not None:
                first = chain(first, [self._line(b"BOOKMARK", self._bookmark(position, True))])
            for chunk in _chunks(first):
                yield chunk
        else:
            position = since
        while not closing.is_set():
            if not self._table.watch_cache.reaches(position):
                yield self._error(
                    errors.expired(
                        f"too old resource version: {position} ({self._table.watch_cache.floor})"
                    )
                )
                return
            events = self._table.watch_cache.after(position, MAX_EVENTS_PER_CHUNK)
            if events:
                position = events[-1].revision
                if self._convert is not None and (
                    failure := await self._convert_all(_bodies(events))
                ):
                    yield failure
                    return
                for chunk in _chunks(line for event in events if (line := self._render(event))):
                    yield chunk
                continue
            now = loop.time()
            if self._bookmark is not None and now >= next_bookmark:
                next_bookmark = _bookmark_time(now, last_bookmark)
                position = max(position, self._store.revision)
                yield self._line(b"BOOKMARK", self._bookmark(position, False))
                continue
            if now >= ends:
                return
            wake_at = min(ends, next_bookmark) if self._bookmark is not None else ends
            await self._wait(wake_at - now, closing)

    def _existing(self) -> list[bytes]:
        keys = [self._name_key] if self._name_key else self._table.range(self._prefix)
        entries = self._table.entries
        return [entries[key].body for key in keys if key in entries]

    async def _convert_all(self, bodies: list[bytes]) -> bytes | None:
        """Convert events; return the line that ends the watch if conversion fails."""
        assert self._convert is not None
        try:
            await self._convert(bodies)
        except errors.StatusError as error:
            return self._error(error)
        return None

    async def _wait(self, seconds: float, closing: asyncio.Event) -> None:
        """Wait for an event, the server's shutdown or the timeout."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._table.waiters.add(waiter)
        timer = loop.call_later(max(0.0, seconds), _finish, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._table.waiters.discard(waiter)

    def _render(self, event: Event) -> bytes | None:
        entry, previous = event.entry, event.previous
        if not self.covers(entry):
            return None
        if self._matches is None:
            now, before = not event.removed, previous is not None
        else:
            now = not event.removed and self._matches(entry)
            before = previous is not None and self._matches(previous)
        if now:
            return self._line(b"MODIFIED" if before else b"ADDED", entry.body)
        if not before:
            return None
        if event.removed:
            return self._line(b"DELETED", entry.body)
        # It no longer matches: the client gets its last known version at the new revision.
        assert previous is not None
        body = previous.body
        if self._convert is not None and self._shape is not None:
            body = self._shape(body)
        last: dict[str, Any] = msgspec.json.decode(body)
        last["metadata"]["resourceVersion"] = str(event.revision)
        return self._line(b"DELETED", msgspec.json.encode(last))

    def _line(self, kind: bytes, body: bytes) -> bytes:
        if self._shape is not None and kind != b"BOOKMARK":
            body = self._shape(body)
        return b'{"type":"' + kind + b'","object":' + body + b"}\n"

    def _error(self, error: errors.StatusError) -> bytes:
        return b'{"type":"ERROR","object":' + msgspec.json.encode(error.body()) + b"}\n"


def _chunks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines to chunks; a line is rendered when its chunk is sent."""
    pieces: list[bytes] = []
    size = 0
    for line in lines:
        pieces.append(line)
        size += len(line)
        if size >= CHUNK or len(pieces) >= MAX_EVENTS_PER_CHUNK:
            yield b"".join(pieces)
            pieces, size = [], 0
    if pieces:
        yield b"".join(pieces)


def _bookmark_time(now: float, last: float) -> float:
    """Return when the next bookmark is due: at the interval, or shortly before the end."""
    due = now + BOOKMARK_INTERVAL_S
    return min(due, last) if now < last else math.inf


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _bodies(events: list[Event]) -> list[bytes]:
    bodies = [event.entry.body for event in events]
    return bodies + [event.previous.body for event in events if event.previous is not None]
