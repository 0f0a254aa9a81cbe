"""The asynchronous way to send a Call: one aiohttp pool, TLS, time limits, bounds and retries.

What a newcomer gets wrong: retries live here and only here. A caller that loops over `send` again
multiplies the waiting; what comes out of this module as an error has been tried as often as is
safe for that kind of request (see `retries`).

Time limits of a single request run on the event loop's own clock; pauses between tries run on the
injected one.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from hekla import __version__
from hekla.kube.calls import Call
from hekla.kube.credentials import ClientCertificate, Proof, tls_context
from hekla.kube.errors import (
    ApiError,
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
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.retries import RetryPolicy
from hekla.units.clock import Clock, SystemClock

R = TypeVar("R")

MIB = 1024 * 1024
MAX_BODY_BYTES = 256 * MIB
MAX_ERROR_BYTES = 1 * MIB
CONNECT_TIMEOUT_S = 10.0
# Shorter than what servers in front of us keep (ours 75 s, kube-apiserver's minutes): the side that
# closes an idle connection should be us, or a create may meet it half-closed.
KEEPALIVE_S = 30.0


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
        """Wait for a turn."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._per_s)
        self._filled_at = now
        # Going below zero is the queue: each waiter owes one more token than the one before.
        self._tokens -= 1.0
        if self._tokens < 0:
            await self._clock.sleep(-self._tokens / self._per_s)


class Transport:
    """Sends calls to one API server. Used on one event loop, and closed at the end."""

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
    ) -> None:
        self.config = config
        self._fence = fence
        self.clock: Clock = clock or SystemClock()
        self.random = random or Random()
        self._retry = retry or RetryPolicy()
        self.timeout_s = timeout_s
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        self._max_connections = max_connections
        self._max_body_bytes = max_body_bytes
        self._rate_limit = rate_limit
        self._base = config.server.rstrip("/")
        self._is_tls = urlsplit(config.server).scheme == "https"
        self._headers = {"User-Agent": f"hekla/{__version__} ({component})"}
        if config.is_loopback:
            # Squeezing bytes that never leave the machine only burns CPU on both ends.
            self._headers["Accept-Encoding"] = "identity"
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self._proof_lock = asyncio.Lock()
        self._contexts: dict[ClientCertificate | None, ssl.SSLContext] = {}

    async def send(
        self, call: Call, *, timeout_s: float | None = None, max_body_bytes: int | None = None
    ) -> bytes:
        """The body of the answer to `call`. Refusals are raised as the errors they stand for."""
        limit = self._max_body_bytes if max_body_bytes is None else max_body_bytes
        timeout = self._timeout
        if timeout_s is not None:
            timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)

        async def once(proof: Proof) -> bytes:
            try:
                async with await self._request(call, proof, timeout) as response:
                    if response.status >= 300:
                        raise await _refusal(call, response)
                    return await _read(call, response, limit)
            except _AIOHTTP_ERRORS as error:
                raise _translated(call, error) from error

        return await self._with_retries(call, once)

    def stream(
        self,
        call: Call,
        *,
        open_timeout_s: float | None = None,
        idle_timeout_s: float | None = None,
    ) -> Stream:
        """The answer to `call` as it comes: `async with transport.stream(call) as chunks: …`.

        Opening is retried like any request; once bytes flow, a broken stream is the caller's to
        resume. `open_timeout_s` bounds the wait for the answer to begin, `idle_timeout_s` the
        silence between two chunks. Neither suits logs: a silent container is no fault.
        """
        return Stream(self, call, open_timeout_s, idle_timeout_s)

    async def close(self) -> None:
        """Close every connection. Calls under way fail with ConnectionLost."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _open_stream(
        self, call: Call, open_timeout_s: float | None, idle_timeout_s: float | None
    ) -> aiohttp.ClientResponse:
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=idle_timeout_s
        )

        async def once(proof: Proof) -> aiohttp.ClientResponse:
            try:
                async with asyncio.timeout(open_timeout_s):
                    response = await self._request(call, proof, timeout)
                    if response.status < 300:
                        return response
                    async with response:
                        raise await _refusal(call, response)
            except _AIOHTTP_ERRORS as error:
                raise _translated(call, error) from error

        return await self._with_retries(call, once)

    async def _with_retries(self, call: Call, once: Callable[[Proof], Awaitable[R]]) -> R:
        tries = 0
        was_rejected = False
        while True:
            if self._rate_limit is not None:
                await self._rate_limit.take()
            proof = await self._proof()
            # Asked last, and before every try: a turn or a pause may have taken long.
            if self._fence is not None and call.method != "GET" and not self._fence():
                raise Fenced(f"{call}: not sent, this process no longer leads")
            tries += 1
            try:
                return await once(proof)
            except Unauthorized:
                # Once per call: a token may have been replaced; a second refusal is meant.
                if was_rejected or not self.config.credentials.reject(proof):
                    raise
                was_rejected = True
                continue
            except KubeError as error:
                delay_s = self._retry.delay_s(call, tries, error, self.random)
                if delay_s is None or self._closed:
                    raise
            await self.clock.sleep(delay_s)

    async def _proof(self) -> Proof:
        credentials = self.config.credentials
        if not credentials.may_block():
            return credentials.current()
        async with self._proof_lock:  # one plugin run serves everyone who waits
            if not credentials.may_block():
                return credentials.current()
            return await asyncio.to_thread(credentials.current)

    async def _request(
        self, call: Call, proof: Proof, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        headers: list[tuple[str, str]] = [("Accept", call.accept), *proof.headers]
        if call.body is not None:
            headers.append(("Content-Type", call.content_type))
        return await self._open_session().request(
            call.method,
            URL(self._base + call.target, encoded=True),
            data=call.body,
            headers=headers,
            timeout=limits,
            ssl=self._tls(proof.certificate) if self._is_tls else True,
            server_hostname=self.config.tls_server_name,
            # A redirect would carry our token to wherever it points.
            allow_redirects=False,
        )

    def _open_session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise ConnectionLost("this client is closed", established=False)
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=self._max_connections,
                keepalive_timeout=KEEPALIVE_S,
                socket_factory=_watched_socket,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._session

    def _tls(self, certificate: ClientCertificate | None) -> ssl.SSLContext:
        context = self._contexts.get(certificate)
        if context is None:
            context = tls_context(
                self.config.ca_pem, insecure=self.config.insecure, certificate=certificate
            )
            # Connections are pooled by context; plugins replace certificates, so only one is kept.
            self._contexts = {certificate: context}
        return context


class Stream:
    """An open answer: iterate for its chunks; leaving the context closes the connection."""

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
        self._response: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> Self:
        if self._response is not None:
            raise RuntimeError(f"{self._call}: the stream is open already")
        self._response = await self._transport._open_stream(
            self._call, self._open_timeout_s, self._idle_timeout_s
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connection: its answer may be endless, so it cannot be reused."""
        response, self._response = self._response, None
        if response is not None:
            response.close()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        response = self._response
        if response is None:
            raise RuntimeError(f"{self._call}: open the stream first, with `async with`")
        try:
            chunk = await response.content.readany()
        except _AIOHTTP_ERRORS as error:
            raise _translated(self._call, error) from error
        if not chunk:
            raise StopAsyncIteration
        return chunk


_AIOHTTP_ERRORS = (aiohttp.ClientError, OSError, TimeoutError)


def _translated(call: Call, error: Exception) -> KubeError:
    """Our error for one of aiohttp's. Its own text is kept short and never holds a header."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError() | ssl.SSLError():
            return TlsError(f"{call}: TLS was refused: {_brief(error)}")
        case aiohttp.ConnectionTimeoutError():
            return ConnectionLost(f"{call}: no connection in time", established=False)
        case aiohttp.ClientConnectorError():
            return ConnectionLost(f"{call}: cannot connect: {_brief(error)}", established=False)
        case TimeoutError():
            return Timeout(f"{call}: no answer in time")
        case aiohttp.ClientOSError() | aiohttp.ServerDisconnectedError() | OSError():
            return ConnectionLost(f"{call}: the connection was lost: {_brief(error)}")
        case aiohttp.ClientPayloadError():
            return ConnectionLost(f"{call}: the answer was cut off")
        case aiohttp.ClientConnectionError():
            # What aiohttp says of a request on a session closed meanwhile.
            return ConnectionLost(f"{call}: the connection was closed")
        case _:
            return ProtocolError(f"{call}: not an HTTP answer: {type(error).__name__}")


def _brief(error: Exception) -> str:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return (str(cause) or type(cause).__name__)[:300]


async def _refusal(call: Call, response: aiohttp.ClientResponse) -> ApiError:
    body = bytearray()
    while len(body) < MAX_ERROR_BYTES and (chunk := await response.content.readany()):
        body += chunk
    if not response.content.at_eof():
        response.close()
    retry_after = response.headers.get("Retry-After")
    return error_from_status(
        bytes(body), http_status=response.status, retry_after=retry_after, what=str(call)
    )


async def _read(call: Call, response: aiohttp.ClientResponse, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = response.content_length or 0
    if size <= limit:
        size = 0
        while chunk := await response.content.readany():
            size += len(chunk)
            if size > limit:
                break
            chunks.append(chunk)
    if size > limit:
        response.close()
        raise ResponseTooLarge(f"{call}: the answer is larger than {limit} bytes; page or select")
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _watched_socket(address: Any) -> socket.socket:
    """A socket that notices within about a minute that its peer vanished without a word.

    A watch may be silent for long; without keep-alives a server that lost power is never missed.
    """
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
