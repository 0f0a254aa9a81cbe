"""The asynchronous transport: a connection pool, TLS, timeouts and retries.

Timeouts of a request run on the event loop's clock; back-off runs on the injected clock.

Note: only this module retries. A caller that retries `send` multiplies the delays: its errors are
final for that kind of request (see `retries`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import urlsplit

from hekla import __version__
from hekla.kube.calls import Call
from hekla.kube.credentials import Auth, ClientCertificate, tls_context
from hekla.kube.errors import (
    ApiError,
    ConfigError,
    ConnectionLost,
    Fenced,
    KubeError,
    ProtocolError,
    ResponseTooLarge,
    Timeout,
    TlsError,
    Unauthorized,
    error_from_status,
)
from hekla.kube.http1 import Connection, Dial, InvalidResponse, Pool, Response, TooLarge
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.retries import RetryPolicy
from hekla.units.clock import Clock, SystemClock

R = TypeVar("R")

MIB = 1024 * 1024
MAX_BODY_BYTES = 256 * MIB
CONNECT_TIMEOUT_S = 10.0
# Cached header lines, by authentication and content types.
MAX_HEADS = 64


class RateLimit:
    """A token bucket: on average `per_s` requests, up to `burst` at once."""

    def __init__(self, per_s: float, burst: int, clock: Clock) -> None:
        if per_s <= 0 or burst < 1:
            raise ValueError("a rate limit needs per_s > 0 and burst >= 1")
        self._per_s = per_s
        self._burst = float(burst)
        self._clock = clock
        self._tokens = self._burst
        self._filled_at = clock.monotonic()

    async def take(self) -> None:
        """Wait for a token."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._per_s)
        self._filled_at = now
        # Negative tokens are the queue: each waiter owes one more than the previous.
        self._tokens -= 1.0
        if self._tokens < 0:
            await self._clock.sleep(-self._tokens / self._per_s)


class Transport:
    """Sends calls to one API server. Use on one event loop and close at the end."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        component: str = "client",
        clock: Clock | None = None,
        random: Random | None = None,
        retry: RetryPolicy | None = None,
        timeout_s: float = 30.0,
        max_connections: int = 128,
        max_body_bytes: int = MAX_BODY_BYTES,
        rate_limit: RateLimit | None = None,
        fence: Callable[[], bool] | None = None,
        dial: Dial | None = None,
    ) -> None:
        self.config = config
        self._fence = fence
        self.clock: Clock = clock or SystemClock()
        self.random = random or Random()
        self._retry = retry or RetryPolicy()
        self.timeout_s = timeout_s
        self._max_body_bytes = max_body_bytes
        self._rate_limit = rate_limit
        address = urlsplit(config.server)
        self._is_tls = address.scheme == "https" and dial is None
        self._prefix = address.path.rstrip("/")
        self._common = (
            f"Host: {address.netloc}\r\nUser-Agent: hekla/{__version__} ({component})\r\n"
        )
        # Compression on loopback only costs CPU.
        self._common += f"Accept-Encoding: {'identity' if config.is_loopback else 'gzip'}\r\n"
        self._heads: dict[tuple[Auth, str, str], str] = {}
        self._pool = Pool(
            address.hostname or "",
            address.port or (443 if self._is_tls else 80),
            limit=max_connections,
            server_name=config.tls_server_name,
            dial=dial,
        )
        self._closed = False
        self._auth_lock = asyncio.Lock()
        self._contexts: dict[ClientCertificate | None, ssl.SSLContext] = {}

    async def send(
        self, call: Call, *, timeout_s: float | None = None, max_body_bytes: int | None = None
    ) -> bytes:
        """Send a call and return the response body; raise errors by status."""
        limit = self._max_body_bytes if max_body_bytes is None else max_body_bytes
        within_s = self.timeout_s if timeout_s is None else timeout_s

        async def once(auth: Auth) -> bytes:
            try:
                async with asyncio.timeout(within_s):
                    response = await self._exchange(call, auth, limit)
            except _HTTP_ERRORS as error:
                raise _client_error(call, error, limit) from error
            if response.status >= 300:
                raise _error_response(call, response)
            return response.body()

        return await self._with_retries(call, once)

    def stream(
        self,
        call: Call,
        *,
        open_timeout_s: float | None = None,
        idle_timeout_s: float | None = None,
    ) -> Stream:
        """Return the response as a stream: `async with transport.stream(call) as chunks: …`.

        Opening is retried like any request; a broken stream is not resumed. `open_timeout_s` limits
        the wait for the response to begin, `idle_timeout_s` the time between two chunks. Use
        neither for
        logs: a container may be silent.
        """
        return Stream(self, call, open_timeout_s, idle_timeout_s)

    async def close(self) -> None:
        """Close all connections. Pending calls fail with ConnectionLost."""
        self._closed = True
        self._pool.close()
        await asyncio.sleep(0)  # connections close on the loop's next iteration

    async def _open_stream(self, call: Call, open_timeout_s: float | None) -> OpenResponse:
        async def once(auth: Auth) -> OpenResponse:
            try:
                async with asyncio.timeout(open_timeout_s):
                    return await self._open(call, auth)
            except _HTTP_ERRORS as error:
                raise _client_error(call, error) from error

        return await self._with_retries(call, once)

    async def _with_retries(self, call: Call, once: Callable[[Auth], Awaitable[R]]) -> R:
        tries = 0
        was_rejected = False
        while True:
            if self._rate_limit is not None:
                await self._rate_limit.take()
            auth = await self._auth()
            # Checked last, before each attempt: rate limit and back-off may take long.
            if self._fence is not None and call.method != "GET" and not self._fence():
                raise Fenced(f"{call}: not sent: this process is no longer the leader")
            tries += 1
            try:
                return await once(auth)
            except Unauthorized:
                # Once per call: a token may have been replaced; the second 401 is final.
                if was_rejected or not self.config.credentials.reject(auth):
                    raise
                was_rejected = True
                continue
            except KubeError as error:
                delay_s = self._retry.delay_s(call, tries, error, self.random)
                if delay_s is None or self._closed:
                    raise
            await self.clock.sleep(delay_s)

    async def _auth(self) -> Auth:
        credentials = self.config.credentials
        if not credentials.may_block():
            return credentials.current()
        async with self._auth_lock:  # one plugin run serves all waiting calls
            if not credentials.may_block():
                return credentials.current()
            return await asyncio.to_thread(credentials.current)

    async def _exchange(self, call: Call, auth: Auth, limit: int) -> Response:
        """Send a request and read the whole response."""
        request = self._request(call, auth)
        context = self._tls(auth.certificate)
        connection = await self._connection(call, context)
        try:
            return await connection.exchange(request, limit=limit, whole=True)
        finally:
            self._pool.release(connection, context)

    async def _open(self, call: Call, auth: Auth) -> OpenResponse:
        """Send a request and read the response's head. The connection is not reused."""
        request = self._request(call, auth)
        context = self._tls(auth.certificate)
        opened = OpenResponse(await self._connection(call, context), self._pool, context)
        try:
            response = await opened.connection.exchange(request, limit=0, whole=False)
            if response.status >= 300:
                while not response.is_complete and response.size <= MIB:
                    response.chunks.append(await opened.connection.chunk())
                raise _error_response(call, response)
        except BaseException:
            opened.close()
            raise
        return opened

    async def _connection(self, call: Call, context: ssl.SSLContext | None) -> Connection:
        if self._closed:
            raise ConnectionLost("this client is closed", established=False)
        try:
            return await self._pool.acquire(context, CONNECT_TIMEOUT_S)
        except ssl.SSLError as error:
            raise TlsError(f"{call}: TLS was refused: {_short_text(error)}") from error
        except OSError as error:
            fact = (
                "no connection in time" if isinstance(error, TimeoutError) else _short_text(error)
            )
            text = f"{call}: cannot connect to {self.config.place}: {fact}"
            raise ConnectionLost(text, established=False) from error

    def _request(self, call: Call, auth: Auth) -> bytes:
        kind = call.content_type if call.body is not None else ""
        head = self._heads.get((auth, call.accept, kind))
        if head is None:
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            head = self._head(call, auth)
            self._heads[auth, call.accept, kind] = head
        first = f"{call.method} {self._prefix}{call.target} HTTP/1.1\r\n"
        if call.body is None:
            return f"{first}{head}\r\n".encode("ascii")
        return f"{first}{head}Content-Length: {len(call.body)}\r\n\r\n".encode("ascii") + call.body

    def _head(self, call: Call, auth: Auth) -> str:
        """Return the header lines that many requests share."""
        pairs = [("Accept", call.accept), *auth.headers]
        if call.body is not None:
            pairs.append(("Content-Type", call.content_type))
        for name, value in pairs:
            if not (value.isascii() and value.isprintable()):
                # A line break would inject headers.
                raise ConfigError(f"{call}: the header {name} is not printable ASCII")
        return self._common + "".join(f"{name}: {value}\r\n" for name, value in pairs)

    def _tls(self, certificate: ClientCertificate | None) -> ssl.SSLContext | None:
        if not self._is_tls:
            return None
        context = self._contexts.get(certificate)
        if context is None:
            context = tls_context(
                self.config.ca_pem, insecure=self.config.insecure, certificate=certificate
            )
            # Connections are pooled by context; plugins replace certificates, so only one is kept.
            self._contexts = {certificate: context}
        return context


class OpenResponse:
    """An open response and its connection."""

    def __init__(self, connection: Connection, pool: Pool, context: ssl.SSLContext | None) -> None:
        self.connection = connection
        self._pool = pool
        self._context = context

    def close(self) -> None:
        """Close the connection: an unfinished response cannot be reused."""
        self.connection.is_reusable = False
        self._pool.release(self.connection, self._context)


class Stream:
    """An open response: iterate over chunks; leaving the context closes the connection."""

    def __init__(
        self,
        transport: Transport,
        call: Call,
        open_timeout_s: float | None,
        idle_timeout_s: float | None,
    ) -> None:
        self._transport = transport
        self._call = call
        self._open_timeout_s = open_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._opened: OpenResponse | None = None

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise RuntimeError(f"{self._call}: the stream is already open")
        self._opened = await self._transport._open_stream(self._call, self._open_timeout_s)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; it cannot be reused."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._opened is None:
            raise RuntimeError(f"{self._call}: open the stream first, with `async with`")
        try:
            async with asyncio.timeout(self._idle_timeout_s):
                chunk = await self._opened.connection.chunk()
        except _HTTP_ERRORS as error:
            raise _client_error(self._call, error) from error
        if not chunk:
            raise StopAsyncIteration
        return chunk


_HTTP_ERRORS = (OSError, InvalidResponse, TooLarge)


def _client_error(call: Call, error: Exception, limit: int = 0) -> KubeError:
    """Return the client error for an error of the connection."""
    match error:
        case ssl.SSLError():
            return TlsError(f"{call}: TLS was refused: {_short_text(error)}")
        case TimeoutError():
            return Timeout(f"{call}: no response in time")
        case OSError():
            return ConnectionLost(f"{call}: the connection was lost: {_short_text(error)}")
        case TooLarge():
            text = f"{call}: the response is larger than {limit} bytes; use pages or selectors"
            return ResponseTooLarge(text)
        case _:
            return ProtocolError(f"{call}: not an HTTP response: {_short_text(error)}")


def _short_text(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:300]


def _error_response(call: Call, response: Response) -> ApiError:
    return error_from_status(
        response.body(),
        http_status=response.status,
        retry_after=response.headers.get("retry-after"),
        what=str(call),
    )
