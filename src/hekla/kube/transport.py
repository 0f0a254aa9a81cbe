"""The asynchronous way to send a Call: one pool of connections, TLS, time limits and retries.

What a newcomer gets wrong: retries live here and only here. A caller that loops over `send` again
multiplies the waiting; what comes out of this module as an error has been tried as often as is
safe for that kind of request (see `retries`).

Time limits of a single request run on the event loop's own clock; pauses between tries run on the
injected one.
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
from hekla.kube.credentials import ClientCertificate, Proof, tls_context
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
from hekla.kube.http1 import Answer, Connection, Dial, NotHttp, Pool, TooLarge
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.retries import RetryPolicy
from hekla.units.clock import Clock, SystemClock

R = TypeVar("R")

MIB = 1024 * 1024
MAX_BODY_BYTES = 256 * MIB
CONNECT_TIMEOUT_S = 10.0
# Combinations of credentials and content types whose header lines are kept ready.
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
        # Squeezing bytes that never leave the machine only burns CPU on both ends.
        self._common += f"Accept-Encoding: {'identity' if config.is_loopback else 'gzip'}\r\n"
        self._heads: dict[tuple[Proof, str, str], str] = {}
        self._pool = Pool(
            address.hostname or "",
            address.port or (443 if self._is_tls else 80),
            limit=max_connections,
            server_name=config.tls_server_name,
            dial=dial,
        )
        self._closed = False
        self._proof_lock = asyncio.Lock()
        self._contexts: dict[ClientCertificate | None, ssl.SSLContext] = {}

    async def send(
        self, call: Call, *, timeout_s: float | None = None, max_body_bytes: int | None = None
    ) -> bytes:
        """The body of the answer to `call`. Refusals are raised as the errors they stand for."""
        limit = self._max_body_bytes if max_body_bytes is None else max_body_bytes
        within_s = self.timeout_s if timeout_s is None else timeout_s

        async def once(proof: Proof) -> bytes:
            try:
                async with asyncio.timeout(within_s):
                    answer = await self._exchange(call, proof, limit)
            except _HTTP_ERRORS as error:
                raise _translated(call, error, limit) from error
            if answer.status >= 300:
                raise _refusal(call, answer)
            return answer.body()

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
        self._pool.close()
        await asyncio.sleep(0)  # they say goodbye on the loop's next turn

    async def _open_stream(self, call: Call, open_timeout_s: float | None) -> Opened:
        async def once(proof: Proof) -> Opened:
            try:
                async with asyncio.timeout(open_timeout_s):
                    return await self._open(call, proof)
            except _HTTP_ERRORS as error:
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

    async def _exchange(self, call: Call, proof: Proof, limit: int) -> Answer:
        """Ask, and read the answer to its end."""
        request = self._request(call, proof)
        context = self._tls(proof.certificate)
        connection = await self._connection(call, context)
        try:
            return await connection.exchange(request, limit=limit, whole=True)
        finally:
            self._pool.give_back(connection, context)

    async def _open(self, call: Call, proof: Proof) -> Opened:
        """Ask, and read no further than to the answer's head. Its connection is not used again."""
        request = self._request(call, proof)
        context = self._tls(proof.certificate)
        opened = Opened(await self._connection(call, context), self._pool, context)
        try:
            answer = await opened.connection.exchange(request, limit=0, whole=False)
            if answer.status >= 300:
                while not answer.is_complete and answer.size <= MIB:
                    answer.chunks.append(await opened.connection.chunk())
                raise _refusal(call, answer)
        except BaseException:
            opened.close()
            raise
        return opened

    async def _connection(self, call: Call, context: ssl.SSLContext | None) -> Connection:
        if self._closed:
            raise ConnectionLost("this client is closed", established=False)
        try:
            return await self._pool.take(context, CONNECT_TIMEOUT_S)
        except ssl.SSLError as error:
            raise TlsError(f"{call}: TLS was refused: {_brief(error)}") from error
        except OSError as error:
            fact = "no connection in time" if isinstance(error, TimeoutError) else _brief(error)
            text = f"{call}: cannot connect: {fact}"
            raise ConnectionLost(text, established=False) from error

    def _request(self, call: Call, proof: Proof) -> bytes:
        kind = call.content_type if call.body is not None else ""
        head = self._heads.get((proof, call.accept, kind))
        if head is None:
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            head = self._head(call, proof)
            self._heads[proof, call.accept, kind] = head
        first = f"{call.method} {self._prefix}{call.target} HTTP/1.1\r\n"
        if call.body is None:
            return f"{first}{head}\r\n".encode("ascii")
        return f"{first}{head}Content-Length: {len(call.body)}\r\n\r\n".encode("ascii") + call.body

    def _head(self, call: Call, proof: Proof) -> str:
        """The header lines that are the same for many requests."""
        pairs = [("Accept", call.accept), *proof.headers]
        if call.body is not None:
            pairs.append(("Content-Type", call.content_type))
        for name, value in pairs:
            if not (value.isascii() and value.isprintable()):
                # A line break would let whoever wrote the value add headers of their own.
                raise ConfigError(f"{call}: the header {name} would not be a line of plain text")
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


class Opened:
    """An answer under way, and the connection that it comes on."""

    def __init__(self, connection: Connection, pool: Pool, context: ssl.SSLContext | None) -> None:
        self.connection = connection
        self._pool = pool
        self._context = context

    def close(self) -> None:
        """Its end may never come, so the connection cannot be used again."""
        self.connection.is_reusable = False
        self._pool.give_back(self.connection, self._context)


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
        self._opened: Opened | None = None

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise RuntimeError(f"{self._call}: the stream is open already")
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
        """Drop the connection: its answer may be endless, so it cannot be reused."""
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
            raise _translated(self._call, error) from error
        if not chunk:
            raise StopAsyncIteration
        return chunk


_HTTP_ERRORS = (OSError, NotHttp, TooLarge)


def _translated(call: Call, error: Exception, limit: int = 0) -> KubeError:
    """Our error for one of the connection's, whose own text is kept short."""
    match error:
        case ssl.SSLError():
            return TlsError(f"{call}: TLS was refused: {_brief(error)}")
        case TimeoutError():
            return Timeout(f"{call}: no answer in time")
        case OSError():
            return ConnectionLost(f"{call}: the connection was lost: {_brief(error)}")
        case TooLarge():
            text = f"{call}: the answer is larger than {limit} bytes; page or select"
            return ResponseTooLarge(text)
        case _:
            return ProtocolError(f"{call}: not an HTTP answer: {_brief(error)}")


def _brief(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:300]


def _refusal(call: Call, answer: Answer) -> ApiError:
    return error_from_status(
        answer.body(),
        http_status=answer.status,
        retry_after=answer.headers.get("retry-after"),
        what=str(call),
    )
