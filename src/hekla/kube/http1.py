"""HTTP/1.1, as much of it as an API client needs: connections, and a pool of those at rest.

A general client spends a quarter of a millisecond of CPU on every request, several times what an
answer of the API server is worth reading for; binding thousands of pods, that is most of a
scheduler's work. Here a request is one write, and an answer goes through one parser (httptools, in
C) into one future.

What a newcomer gets wrong: a connection carries one exchange at a time, and may be used again only
if the answer was read to its end. Whoever gives up half-way closes it.
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
"""Shorter than what servers in front of us keep (ours 75 s, kube-apiserver's minutes): the side
that closes an idle connection should be us, or a create may meet it half-closed."""
MAX_HEADER_BYTES: Final = 256 * 1024
MAX_REFUSAL_BYTES: Final = 1024 * 1024
"""Of the body of a refusal; the rest is not kept."""
PAUSE_ABOVE_BYTES: Final = 1024 * 1024
"""Of a stream that nobody reads, so much is held before the server is made to wait."""
_KEPT: Final = {
    name.encode(): name
    for name in ("content-encoding", "content-length", "retry-after", "transfer-encoding")
}
_GZIP: Final = 16 + zlib.MAX_WBITS


class TooLarge(Exception):
    """The body passed the bound it was read with."""


class NotHttp(Exception):
    """What came is no HTTP answer."""


class CutOff(OSError):
    """The connection ended in the middle of an exchange."""


class Answer:
    """An answer: its head, and its body as it comes."""

    __slots__ = (
        "chunks", "encoding", "headers", "held", "is_complete", "is_framed", "size", "status"
    )  # fmt: skip

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        """Those that somebody reads, in lower case."""
        self.chunks: deque[bytes] = deque()
        self.size = 0
        """Bytes of body so far, unpacked, read or not."""
        self.held = 0
        """Bytes of body that nobody has taken yet."""
        self.is_complete = False
        self.is_framed = False
        """Whether it says where it ends; otherwise it does with the connection."""
        self.encoding: zlib._Decompress | None = None

    def body(self) -> bytes:
        """Everything that has come and was not taken yet."""
        chunks = self.chunks
        found = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self.held = 0
        return found


class Connection(asyncio.Protocol):
    """One connection. `exchange`, then the answer's chunks; then again, if `is_reusable`."""

    def __init__(self, on_lost: Callable[[Connection], None]) -> None:
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: Answer | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._is_whole_wanted = False
        self._limit = 0
        self._header_bytes = 0
        self._is_paused = False
        self._is_closing = False
        self.is_reusable = True
        self.idle_since = 0.0

    # --- asking -------------------------------------------------------------------------------

    async def exchange(self, request: bytes, *, limit: int, whole: bool) -> Answer:
        """Send, and wait for the whole answer, or only for its head. TooLarge past `limit`."""
        transport = self._transport
        if transport is None or self._error is not None:
            raise self._error or CutOff("the connection is closed")
        answer = self._answer = Answer()
        self.is_reusable = False
        self._limit, self._is_whole_wanted, self._header_bytes = limit, whole, 0
        transport.write(request)
        await self._wait()
        return answer

    async def chunk(self) -> bytes:
        """The next piece of the body; empty at its end."""
        answer = self._answer
        assert answer is not None, "exchange first"
        while not answer.chunks:
            if answer.is_complete:
                return b""
            await self._wait()
        found = answer.body()
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return found

    def close(self) -> None:
        """At once; what has not been read is lost."""
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

    # --- asyncio's callbacks ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        if self._is_closing:
            self.close()

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.is_complete:
            self._fail(NotHttp("an answer that nobody asked for"))
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._fail(cause if isinstance(cause, TooLarge | NotHttp) else NotHttp(str(error)))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport, answer = None, self._answer
        is_end = answer is not None and answer.status and not answer.is_framed and error is None
        if is_end and self._error is None:
            self.is_reusable = False
            self._complete()
        elif answer is None or not answer.is_complete:
            self._fail(error or CutOff("it was closed"))
        self.is_reusable = False
        self._on_lost(self)

    # --- the parser's callbacks ---------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._answer is None or self._answer.is_complete:
            raise NotHttp("an answer that nobody asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        answer = self._answer
        assert answer is not None
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEADER_BYTES:
            raise NotHttp(f"its headers are larger than {MAX_HEADER_BYTES} bytes")
        kept = _KEPT.get(name.lower())
        if kept is not None:
            answer.headers[kept] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        answer, status = self._answer, self._parser.get_status_code()
        assert answer is not None
        if status < 200:  # "100 Continue": the answer itself is still to come
            answer.headers.clear()
            return
        answer.status = status
        headers = answer.headers
        answer.is_framed = (
            "content-length" in headers or "transfer-encoding" in headers or status in (204, 304)
        )
        encoding = headers.get("content-encoding", "identity")
        if encoding == "gzip":
            answer.encoding = zlib.decompressobj(_GZIP)
        elif encoding != "identity":
            raise NotHttp(f"its content-encoding is {encoding[:40]!r}")
        if not self._is_whole_wanted:
            self._resolve()

    def on_body(self, body: bytes) -> None:
        answer = self._answer
        assert answer is not None
        if answer.encoding is not None:
            try:
                body = answer.encoding.decompress(body)
            except zlib.error as error:
                raise NotHttp(f"it does not unpack: {error}") from error
            if not body:
                return
        answer.size += len(body)
        if answer.status >= 300 and answer.size > MAX_REFUSAL_BYTES:
            return
        if answer.size > self._limit and self._limit:
            raise TooLarge
        answer.chunks.append(body)
        answer.held += len(body)
        if not self._is_whole_wanted:
            self._resolve()
            self._pause_if_unread(answer)

    def on_message_complete(self) -> None:
        if self._answer is not None and self._answer.status:
            self.is_reusable = self._parser.should_keep_alive()
            self._complete()

    def _pause_if_unread(self, answer: Answer) -> None:
        if not self._is_paused and answer.held > PAUSE_ABOVE_BYTES:
            assert self._transport is not None
            self._is_paused = True
            self._transport.pause_reading()

    def _complete(self) -> None:
        assert self._answer is not None
        self._answer.is_complete = True
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
"""A socket whose other end is with the server already: one that runs in this process."""


class Pool:
    """Connections to one address: as many as allowed, those at rest kept for a while."""

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

    async def take(self, context: ssl.SSLContext | None, timeout_s: float) -> Connection:
        """A connection to use alone; give it back. OSError or ssl.SSLError if there is none."""
        await self._slots.acquire()
        try:
            return self._rested(context) or await self._connect(context, timeout_s)
        except BaseException:
            self._slots.release()
            raise

    def give_back(self, connection: Connection, context: ssl.SSLContext | None) -> None:
        self._slots.release()
        if connection.is_reusable:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.setdefault(context, []).append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Those at rest, those in use, and those that are being made."""
        self._is_closed = True
        for connection in tuple(self._open):
            connection.close()
        self._idle.clear()

    def _rested(self, context: ssl.SSLContext | None) -> Connection | None:
        """The one used last, so that those not needed grow old; and away with the old ones."""
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
                _watch_over(transport.get_extra_info("socket"))
        self._open.add(connection)
        if self._is_closed:
            connection.close()
            raise CutOff("the pool was closed meanwhile")
        return connection

    def _lost(self, connection: Connection) -> None:
        self._open.discard(connection)


def _watch_over(made: socket.socket) -> None:
    """Notice within about a minute that the peer vanished without a word.

    A watch may be silent for long; without keep-alives a server that lost power is never missed.
    """
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
