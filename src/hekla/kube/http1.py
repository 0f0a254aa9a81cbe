"""HTTP/1.1 for an API client: connections and a connection pool.

A general client spends 0.25 ms of CPU on each request; when thousands of pods are bound, that is
most of a scheduler's work. Here a request is one write, and the response goes through one parser
(httptools, in C) into one future.

Note: a connection has one exchange at a time, and is reusable only after the whole response was
read. A caller that stops earlier must close it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import zlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import httptools

KEEPALIVE_S: Final = 30.0
"""Shorter than the idle timeouts of servers (hekla's 75 s, kube-apiserver's minutes): if the server
closed an idle connection first, a create could fail."""
MAX_HEADER_BYTES: Final = 256 * 1024
MAX_REFUSAL_BYTES: Final = 1024 * 1024
"""Limit of the body of an error response."""
PAUSE_ABOVE_BYTES: Final = 1024 * 1024
"""Unread bytes of a stream that are buffered before reading pauses."""
_KEPT: Final = {
    name.encode(): name
    for name in ("content-encoding", "content-length", "retry-after", "transfer-encoding")
}
_GZIP: Final = 16 + zlib.MAX_WBITS


class TooLarge(Exception):
    """The body exceeds the limit."""


class InvalidResponse(Exception):
    """The bytes are not an HTTP response."""


class ConnectionClosed(OSError):
    """The connection was closed during an exchange."""


class Response:
    """A response: its head, and its body as it arrives."""

    __slots__ = (
        "chunks", "encoding", "headers", "held", "is_complete", "is_framed", "size", "status"
    )  # fmt: skip

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        """The headers that are used, in lower case."""
        self.chunks: deque[bytes] = deque()
        self.size = 0
        """Decompressed bytes of the body so far."""
        self.held = 0
        """Bytes of the body that were not read yet."""
        self.is_complete = False
        self.is_framed = False
        """Whether the response has a length; otherwise it ends with the connection."""
        self.encoding: zlib._Decompress | None = None

    def body(self) -> bytes:
        """Return all bytes that arrived and were not read yet."""
        chunks = self.chunks
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self.held = 0
        return body


class Connection(asyncio.Protocol):
    """One connection: `exchange`, then `chunk`; reusable if `is_reusable`."""

    def __init__(self, on_lost: Callable[[Connection], None]) -> None:
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._response: Response | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._is_whole_wanted = False
        self._limit = 0
        self._header_bytes = 0
        self._is_paused = False
        self._is_closing = False
        self.is_reusable = True
        self.idle_since = 0.0

    # --- requests -----------------------------------------------------------------------------

    async def exchange(self, request: bytes, *, limit: int, whole: bool) -> Response:
        """Send a request; return the response when it is complete, or after its head."""
        transport = self._transport
        if transport is None or self._error is not None:
            raise self._error or ConnectionClosed("the connection is closed")
        response = self._response = Response()
        self.is_reusable = False
        self._limit, self._is_whole_wanted, self._header_bytes = limit, whole, 0
        transport.write(request)
        await self._wait()
        return response

    async def chunk(self) -> bytes:
        """Return the next chunk of the body; empty at the end."""
        response = self._response
        assert response is not None, "exchange first"
        while not response.chunks:
            if response.is_complete:
                return b""
            await self._wait()
        chunk = response.body()
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return chunk

    def close(self) -> None:
        """Close at once; unread bytes are lost."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    # --- asyncio callbacks --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        if self._is_closing:
            self.close()

    def data_received(self, data: bytes) -> None:
        if self._response is None or self._response.is_complete:
            self._fail(InvalidResponse("an unexpected response"))
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._fail(
                cause
                if isinstance(cause, TooLarge | InvalidResponse)
                else InvalidResponse(str(error))
            )

    def connection_lost(self, error: Exception | None) -> None:
        self._transport, response = None, self._response
        is_end = (
            response is not None and response.status and not response.is_framed and error is None
        )
        if is_end and self._error is None:
            self.is_reusable = False
            self._complete()
        elif response is None or not response.is_complete:
            self._fail(error or ConnectionClosed("it was closed"))
        self.is_reusable = False
        self._on_lost(self)

    # --- parser callbacks ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._response is None or self._response.is_complete:
            raise InvalidResponse("an unexpected response")

    def on_header(self, name: bytes, value: bytes) -> None:
        response = self._response
        assert response is not None
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEADER_BYTES:
            raise InvalidResponse(f"its headers are larger than {MAX_HEADER_BYTES} bytes")
        kept = _KEPT.get(name.lower())
        if kept is not None:
            response.headers[kept] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        response, status = self._response, self._parser.get_status_code()
        assert response is not None
        if status < 200:  # "100 Continue": the final response follows
            response.headers.clear()
            return
        response.status = status
        headers = response.headers
        response.is_framed = (
            "content-length" in headers or "transfer-encoding" in headers or status in (204, 304)
        )
        encoding = headers.get("content-encoding", "identity")
        if encoding == "gzip":
            response.encoding = zlib.decompressobj(_GZIP)
        elif encoding != "identity":
            raise InvalidResponse(f"its content-encoding is {encoding[:40]!r}")
        if not self._is_whole_wanted:
            self._resolve()

    def on_body(self, body: bytes) -> None:
        response = self._response
        assert response is not None
        if response.encoding is not None:
            try:
                body = response.encoding.decompress(body)
            except zlib.error as error:
                raise InvalidResponse(f"it does not decompress: {error}") from error
            if not body:
                return
        response.size += len(body)
        if response.status >= 300 and response.size > MAX_REFUSAL_BYTES:
            return
        if response.size > self._limit and self._limit:
            raise TooLarge
        response.chunks.append(body)
        response.held += len(body)
        if not self._is_whole_wanted:
            self._resolve()
            self._pause_if_unread(response)

    def on_message_complete(self) -> None:
        if self._response is not None and self._response.status:
            self.is_reusable = self._parser.should_keep_alive()
            self._complete()

    def _pause_if_unread(self, response: Response) -> None:
        if not self._is_paused and response.held > PAUSE_ABOVE_BYTES:
            assert self._transport is not None
            self._is_paused = True
            self._transport.pause_reading()

    def _complete(self) -> None:
        assert self._response is not None
        self._response.is_complete = True
        self._resolve()

    def _resolve(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        self.is_reusable = False
        if self._error is None:
            self._error = error
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self.close()


Dial = Callable[[], Awaitable[socket.socket]]
"""Returns a socket that is connected to an in-process server."""


class Pool:
    """A bounded pool of connections to one address."""

    def __init__(
        self, host: str, port: int, *, limit: int, server_name: str | None, dial: Dial | None = None
    ) -> None:
        self._host = host
        self._port = port
        self._dial = dial
        self._server_name = server_name
        self._slots = asyncio.Semaphore(limit)
        self._idle: dict[ssl.SSLContext | None, list[Connection]] = {}
        self._open: set[Connection] = set()
        self._is_closed = False

    async def acquire(self, context: ssl.SSLContext | None, timeout_s: float) -> Connection:
        """Return a connection for exclusive use; OSError or ssl.SSLError on failure."""
        await self._slots.acquire()
        try:
            return self._idle_connection(context) or await self._connect(context, timeout_s)
        except BaseException:
            self._slots.release()
            raise

    def release(self, connection: Connection, context: ssl.SSLContext | None) -> None:
        self._slots.release()
        if connection.is_reusable:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.setdefault(context, []).append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Connections that are idle, in use or being opened."""
        self._is_closed = True
        for connection in tuple(self._open):
            connection.close()
        self._idle.clear()

    def _idle_connection(self, context: ssl.SSLContext | None) -> Connection | None:
        """Return the most recently used idle connection; close those that are too old."""
        oldest = asyncio.get_running_loop().time() - KEEPALIVE_S
        for key in [key for key, found in self._idle.items() if found[0].idle_since < oldest]:
            for connection in self._idle.pop(key):
                if connection.idle_since < oldest:
                    connection.close()
                else:
                    self._idle.setdefault(key, []).append(connection)
        while rested := self._idle.get(context):
            connection = rested.pop()
            if not rested:
                del self._idle[context]
            if connection.is_reusable:
                return connection
        return None

    async def _connect(self, context: ssl.SSLContext | None, timeout_s: float) -> Connection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_s):
            if self._dial is not None:
                _, connection = await loop.create_unix_connection(
                    lambda: Connection(self._lost), sock=await self._dial()
                )
            else:
                transport, connection = await loop.create_connection(
                    lambda: Connection(self._lost),
                    self._host,
                    self._port,
                    ssl=context,
                    server_hostname=(self._server_name or self._host) if context else None,
                )
                _enable_keep_alives(transport.get_extra_info("socket"))
        self._open.add(connection)
        if self._is_closed:
            connection.close()
            raise ConnectionClosed("the pool is closed")
        return connection

    def _lost(self, connection: Connection) -> None:
        self._open.discard(connection)


def _enable_keep_alives(connected: socket.socket) -> None:
    """Enable TCP keep-alives to detect a lost peer within about a minute.

    A watch may be idle for long; without them a server that lost power is never noticed.
    """
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
