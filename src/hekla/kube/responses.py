"""Decoding of responses: objects, lists, tokens and watch streams. No I/O.

Note: an API server omits `apiVersion` and `kind` from the items of a list. `decode_list` adds them
to plain dicts, so an object looks the same from get, list and watch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec

from hekla.api import meta
from hekla.kube.calls import Identity, identity_of
from hekla.kube.errors import ProtocolError, error_from_status

T = TypeVar("T")

EventType = Literal["ADDED", "MODIFIED", "DELETED"]

# etcd limits objects to 1.5 MiB; other servers may allow more.
MAX_LINE_BYTES = 16 * 1024 * 1024


class Listing(msgspec.Struct, Generic[T]):
    """A consistent list; watch from `resource_version` to get later changes."""

    items: list[T]
    resource_version: str = ""
    continue_token: str = ""
    remaining: int | None = None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """One watch event. For DELETED, `object` is the last state."""

    type: EventType
    object: T
    identity: Identity


class Token(msgspec.Struct, frozen=True):
    """A service-account token and its expiry (RFC 3339)."""

    value: str
    expires: str

    def __repr__(self) -> str:
        return f"Token(value='…', expires={self.expires!r})"


class _ListMeta(msgspec.Struct):
    resourceVersion: str = ""
    # `continue` is a Python keyword.
    continue_token: str = msgspec.field(name="continue", default="")
    remainingItemCount: int | None = None


class _ListBody(msgspec.Struct, Generic[T]):
    apiVersion: str = ""
    kind: str = ""
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[T] | None = None  # Go writes an empty list as null


class _WatchLine(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _TokenStatus(msgspec.Struct):
    token: str
    expirationTimestamp: str = ""


class _TokenRequest(msgspec.Struct):
    status: _TokenStatus


def decode(type: type[T], body: bytes | msgspec.Raw, what: str) -> T:
    """Decode `body` as `type`, with null as absent; a ProtocolError names `what`."""
    try:
        return meta.decode(body, type)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"{what}: the response does not decode: {error}") from error


def decode_list(type: type[T], body: bytes, what: str) -> Listing[T]:
    """Decode one page of a list."""
    page = cast("_ListBody[T]", decode(_ListBody[type], body, what))  # type: ignore[valid-type]
    items = page.items or []
    if type is dict and page.kind.endswith("List"):
        kind = page.kind.removesuffix("List")
        for item in cast("list[dict[str, Any]]", items):
            item.setdefault("apiVersion", page.apiVersion)
            item.setdefault("kind", kind)
    meta = page.metadata
    return Listing(items, meta.resourceVersion, meta.continue_token, meta.remainingItemCount)


def decode_token(body: bytes, what: str) -> Token:
    """Decode the token of a TokenRequest."""
    status = decode(_TokenRequest, body, what).status
    return Token(status.token, status.expirationTimestamp)


class LineSplitter:
    """Splits a byte stream into lines; limits the length of a line."""

    def __init__(self, what: str, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._what = what
        self._max = max_line_bytes
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Return the lines that `chunk` completes, without newline."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            line = chunk[start:end]
            self._grow(len(line))
            if self._parts:
                self._parts.append(line)
                line = b"".join(self._parts)
                self._parts.clear()
            self._size = 0
            start = end + 1
            yield line
        if start < len(chunk):
            # Join once per line: joining at each chunk is quadratic.
            self._grow(len(chunk) - start)
            self._parts.append(chunk[start:])

    def rest(self) -> bytes:
        """Return the bytes after the last newline."""
        rest = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        return rest

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._max:
            raise ProtocolError(f"{self._what}: a line is longer than {self._max} bytes")


class WatchReader(Generic[T]):
    """Decodes the bytes of a watch into events; raises errors of the stream.

    `resource_version` is where a new watch resumes: the last event or bookmark.
    """

    def __init__(
        self,
        type: type[T],
        resource_version: str,
        what: str,
        *,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self.resource_version = resource_version
        self._type = type
        self._what = what
        self._lines = LineSplitter(what, max_line_bytes=max_line_bytes)

    def feed(self, chunk: bytes) -> Iterator[WatchEvent[T]]:
        """Yield the events that `chunk` completes; an error is raised after those before it."""
        for line in self._lines.feed(chunk):
            if line.strip():
                event = self._event(line)
                if event is not None:
                    yield event

    def _event(self, line: bytes) -> WatchEvent[T] | None:
        envelope = decode(_WatchLine, line, self._what)
        if envelope.type == "ERROR":
            raise error_from_status(envelope.object, what=self._what)
        try:
            identity = identity_of(envelope.object)
        except msgspec.DecodeError as error:
            raise ProtocolError(f"{self._what}: an event has no metadata: {error}") from error
        if envelope.type == "BOOKMARK":
            self.resource_version = identity.resourceVersion or self.resource_version
            return None
        if envelope.type not in ("ADDED", "MODIFIED", "DELETED"):
            raise ProtocolError(f"{self._what}: unknown event type {envelope.type[:40]!r}")
        found = (
            cast(T, envelope.object)
            if self._type is msgspec.Raw
            else decode(self._type, envelope.object, self._what)
        )
        self.resource_version = identity.resourceVersion or self.resource_version
        return WatchEvent(cast(EventType, envelope.type), found, identity)
