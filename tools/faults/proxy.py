"""A proxy between one client and an API server that injects faults.

    with Proxy(upstream_kubeconfig, directory, "scheduler-a", seed=7) as proxy:
        run_against(proxy.kubeconfig)
        proxy.faults = [Fault(is_write, status=500, passed_on=True, chance=0.2)]
        proxy.cut()      # network partition: requests get no response
        proxy.heal()

It terminates TLS on both sides and uses HTTP/1.1, so it works with any server that accepts bearer
tokens. It adds the name of its client to the user agent, so that an audit log distinguishes
replicas, and records every write (`history`) for servers without such a log. All random choices
come from the seed.

Note: an error may come before or after the server has executed the request. A client that treats
the two alike repeats or loses writes.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Self

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

from hekla.web.certificates import Pair, new_authority, new_serving
from tools.faults.history import WRITES, Write, from_exchange, tagged

MAX_BODY_BYTES = 64 * 1024 * 1024
_START_S = 120.0
# Closed TLS connections need a few iterations of the loop to disappear.
_GOODBYE_S = 0.25
_NOT_PASSED_ON = {"host", "user-agent", "content-length", "transfer-encoding", "connection"}
_NOT_PASSED_BACK = {"content-length", "transfer-encoding", "connection"}


@dataclass(frozen=True)
class Asked:
    """The properties of a request by which faults match."""

    method: str
    path: str
    is_watch: bool


def anything(asked: Asked) -> bool:
    return not asked.is_watch


def is_write(asked: Asked) -> bool:
    return asked.method in WRITES


def is_binding(asked: Asked) -> bool:
    return asked.method == "POST" and asked.path.endswith("/binding")


def is_pod_made(asked: Asked) -> bool:
    return asked.method == "POST" and asked.path.endswith("/pods")


@dataclass
class Fault:
    """A fault for matching requests, with a probability and a limit."""

    matches: Callable[[Asked], bool]
    status: int = 0
    """Sent instead of the response; 0 with `drop`: no response, the connection breaks."""
    passed_on: bool = False
    """Whether the server receives and executes the request."""
    drop: bool = False
    delay_s: float = 0.0
    """Maximum delay before it is forwarded."""
    chance: float = 1.0
    times: int = 1_000_000


@dataclass
class WatchFaults:
    """Faults for watch events."""

    repeat: float = 0.0
    """Probability that an event is sent twice."""
    replay: float = 0.0
    """Probability that an older event is repeated after it."""
    delay_s: float = 0.0
    cut: float = 0.0
    """Probability that the watch breaks after an event."""


@dataclass
class Trap:
    """Lets some matching requests pass; all later ones never get a response."""

    matches: Callable[[Asked], bool]
    let_through: int
    reached: threading.Event = field(default_factory=threading.Event)
    passed: int = 0


class Proxy:
    """The proxy of one client, on a separate thread."""

    def __init__(self, upstream: Path, directory: Path, name: str, *, seed: int = 0) -> None:
        self.name = name
        self.kubeconfig = directory / f"{name}.kubeconfig"
        self.faults: Sequence[Fault] = ()
        self.watch_faults = WatchFaults()
        self.trap: Trap | None = None
        self.history: list[Write] = []
        self.counts: Counter[str] = Counter()
        """Counts of the faults: statuses, drops, repeats, …"""
        self._upstream = yaml.safe_load(upstream.read_text())
        self._directory = directory
        self._random = Random(f"{seed} {name}")
        self._connections: set[asyncio.Transport] = set()

    def __enter__(self) -> Self:
        ready: Future[None] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(ready)), name=f"proxy {self.name}", daemon=True
        )
        self._thread.start()
        ready.result(_START_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_START_S)

    def cut(self) -> None:
        """Partition the network: no packet passes, and no connection is closed."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def heal(self) -> None:
        """End the partition. Connections from before it are broken."""
        self._loop.call_soon_threadsafe(self._heal)

    def hold_watches(self) -> None:
        """Break open watches and hold new ones; all other requests pass."""
        self._loop.call_soon_threadsafe(self._watches.clear)
        self.break_connections()

    def release_watches(self) -> None:
        self._loop.call_soon_threadsafe(self._watches.set)

    def break_connections(self) -> None:
        """Break all open connections, including watches; accept new ones."""
        self._loop.call_soon_threadsafe(self._break)

    def _heal(self) -> None:
        if not self._open.is_set():
            self._break()
            self._open.set()

    def _break(self) -> None:
        for transport in list(self._connections):
            transport.abort()

    # --- serving ------------------------------------------------------------------------------

    async def _serve(self, ready: Future[None]) -> None:
        try:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            self._open, self._watches = asyncio.Event(), asyncio.Event()
            self._open.set()
            self._watches.set()
            cluster = self._upstream["clusters"][0]["cluster"]
            self._base = cluster["server"].rstrip("/")
            trust = ssl.create_default_context(
                cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
            )
            connector = aiohttp.TCPConnector(ssl=trust, limit=0)
            async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
                self._session = session
                async with self._listening():
                    ready.set_result(None)
                    await self._stop.wait()
            await asyncio.sleep(_GOODBYE_S)
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    @contextlib.asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await runner.setup()
        authority = new_authority(time.time(), f"proxy-{self.name}")
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls(authority))
        await site.start()
        self._write_kubeconfig(f"https://127.0.0.1:{runner.addresses[0][1]}", authority)
        try:
            yield
        finally:
            self._break()
            await runner.cleanup()

    def _tls(self, authority: Pair) -> ssl.SSLContext:
        pair = new_serving(authority, ["127.0.0.1", "localhost"], time.time(), subject=self.name)
        path = self._directory / f"{self.name}.pem"
        path.touch(mode=0o600)
        path.write_bytes(pair.certificate + pair.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _write_kubeconfig(self, server: str, authority: Pair) -> None:
        certificate = base64.b64encode(authority.certificate).decode()
        cluster = {"server": server, "certificate-authority-data": certificate}
        named = {**self._upstream["clusters"][0], "cluster": cluster}
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(yaml.safe_dump({**self._upstream, "clusters": [named]}))

    # --- one request --------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._connections.add(transport)
        try:
            return await self._answer(request)
        except aiohttp.ClientError:
            # The server is down, or ended during the response.
            return self._drop(request, "server gone")
        finally:
            if transport.is_closing():
                self._connections.discard(transport)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(request.method, request.path, request.query.get("watch", "") in ("1", "true"))
        body = await request.read()
        await self._passes(request)
        if self._is_trapped(asked):
            await asyncio.Event().wait()  # until the client closes the connection
        fault = self._draw(asked)
        if fault is not None and fault.delay_s:
            self.counts["delayed"] += 1
            await asyncio.sleep(self._random.uniform(0, fault.delay_s))
        fails = fault is not None and (fault.drop or fault.status != 0)
        if fault is not None and fails and not fault.passed_on:
            return self._fail(request, fault)
        if asked.is_watch:
            await self._watches.wait()
        at = time.time()
        async with self._session.request(
            request.method,
            URL(self._base + request.raw_path, encoded=True),
            headers=self._headers(request),
            data=body or None,
        ) as answer:
            if asked.is_watch and answer.status == 200:
                return await self._stream(request, answer)
            content = await answer.read()
        self._take_down(request, at, body, answer.status, content)
        await self._passes(request)
        if fault is not None and fails:
            return self._fail(request, fault)
        self.counts[str(answer.status)] += 1
        return web.Response(status=answer.status, body=content, headers=_headers_back(answer))

    async def _passes(self, request: web.Request) -> None:
        """Send at once or never: data in flight at the start of a partition is lost."""
        if not self._open.is_set():
            self.counts["lost in the cut"] += 1
            await asyncio.Event().wait()

    def _is_trapped(self, asked: Asked) -> bool:
        trap = self.trap
        if trap is None or not trap.matches(asked):
            return False
        if trap.passed < trap.let_through:
            trap.passed += 1
            return False
        trap.reached.set()
        return True

    def _draw(self, asked: Asked) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and fault.matches(asked) and self._random.random() < fault.chance:
                fault.times -= 1
                return fault
        return None

    def _fail(self, request: web.Request, fault: Fault) -> web.StreamResponse:
        when = "after" if fault.passed_on else "before"
        if fault.drop:
            return self._drop(request, f"dropped {when}")
        self.counts[f"{fault.status} {when}"] += 1
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": "a fault on purpose",
            "reason": "TooManyRequests" if fault.status == 429 else "InternalError",
            "code": fault.status,
        }
        headers = {"Retry-After": "1"} if fault.status == 429 else {}
        return web.json_response(status, status=fault.status, headers=headers)

    def _drop(self, request: web.Request, why: str) -> web.StreamResponse:
        self.counts[why] += 1
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    def _headers(self, request: web.Request) -> list[tuple[str, str]]:
        kept = [(k, v) for k, v in request.headers.items() if k.lower() not in _NOT_PASSED_ON]
        return [*kept, ("User-Agent", tagged(request.headers.get("User-Agent", ""), self.name))]

    def _take_down(
        self, request: web.Request, at: float, body: bytes, status: int, content: bytes
    ) -> None:
        if request.method in WRITES:
            agent = tagged("", self.name)
            path, done = request.path, time.time()
            self.history.append(
                from_exchange(at, done, request.method, path, agent, body, status, content)
            )

    # --- watches ------------------------------------------------------------------------------

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        out = web.StreamResponse(status=answer.status, headers=_headers_back(answer))
        await out.prepare(request)
        old: bytes | None = None
        rest = b""
        async for chunk in answer.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                for sent in await self._meddled(line, old):
                    await self._passes(request)
                    await out.write(sent + b"\n")
                if b'"code":410' in line:
                    self.counts["410"] += 1
                old = line
                if self._random.random() < self.watch_faults.cut:
                    return self._drop(request, "watches cut")
        await out.write_eof()
        return out

    async def _meddled(self, line: bytes, old: bytes | None) -> list[bytes]:
        """Return what is sent instead of one event."""
        wish, draw = self.watch_faults, self._random.random
        if wish.delay_s:
            self.counts["events delayed"] += 1
            await asyncio.sleep(self._random.uniform(0, wish.delay_s))
        sent = [line]
        if draw() < wish.repeat:
            self.counts["events repeated"] += 1
            sent.append(line)
        if old is not None and draw() < wish.replay:
            self.counts["events replayed"] += 1
            sent.append(old)
        return sent


def _headers_back(answer: aiohttp.ClientResponse) -> list[tuple[str, str]]:
    return [(k, v) for k, v in answer.headers.items() if k.lower() not in _NOT_PASSED_BACK]
