"""The server as a whole: files, certificates, tokens, background work and the socket.

    async with ApiServer(Config(data_dir=path)) as server:
        print(server.address, server.kubeconfig)

`data_dir` holds everything: `state.db`, `pki/`, `kubeconfig`. Removing it removes the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import logging
import os
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import uvicorn

from hekla.apiserver import bootstrap, certs, crds
from hekla.apiserver.app import App
from hekla.apiserver.authn import AUTHENTICATED, MASTERS, Authenticator, StaticTokens, User
from hekla.apiserver.caretakers import Caretakers
from hekla.apiserver.discovery import Discovery
from hekla.apiserver.handlers import Handlers
from hekla.apiserver.metrics import Metrics
from hekla.apiserver.nodeproxy import Nodes
from hekla.apiserver.protocol import BoundedProtocol
from hekla.apiserver.rbac import Authorizer
from hekla.apiserver.registry import Registry
from hekla.apiserver.resources import Resources
from hekla.apiserver.reviews import Reviews
from hekla.apiserver.store import Durability, Store
from hekla.apiserver.streams import Streams
from hekla.apiserver.subresources import Subresources
from hekla.apiserver.tokens import TokenIssuer, new_signing_key
from hekla.kube.kubeconfig import write_kubeconfig
from hekla.units.clock import Clock, SystemClock

log = logging.getLogger("hekla.apiserver")

IDLE_TIMEOUT_S = 75
BACKLOG = 1024


class AlreadyRunning(Exception):
    """Another server has this data directory."""


@dataclass
class Config:
    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 0
    durability: Durability = "process"
    names: tuple[str, ...] = ()
    """Further host names and addresses for the certificate."""
    clock: Clock = field(default_factory=SystemClock)


class ApiServer:
    """Start with `async with`, or `start` and `stop`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.nodes = Nodes()
        self.registry = Registry()
        self.closing = asyncio.Event()
        self.ready = False
        self._lock: IO[str] | None = None

    @property
    def address(self) -> str:
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        return f"https://{host}:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        return self.config.data_dir / "kubeconfig"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Return when requests are answered."""
        config = self.config
        config.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._take_lock()
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        config = self.config
        pki = config.data_dir / "pki"
        names = {config.host, "localhost", "127.0.0.1", "::1", "kubernetes.default.svc"}
        serving = certs.ensure(pki, names | set(config.names), config.clock.now())
        self.store = Store.open(config.data_dir / "state.db", durability=config.durability)
        self.resources = Resources(self.store, self.registry, clock=config.clock)
        crds.follow(self.store, self.registry)
        self.issuer = TokenIssuer(
            self.store, _secret(pki / "sa.key", new_signing_key), config.clock
        )
        app = self._wire(_secret(pki / "admin.token", _new_token).decode().strip())
        await bootstrap.populate(self.resources)
        self.caretakers = Caretakers(self.resources)
        self.caretakers.start()
        self._socket = _listen(config.host, config.port)
        self.port: int = self._socket.getsockname()[1]
        self._uvicorn = _Uvicorn(_settings(app, serving))
        self._serving = asyncio.create_task(
            self._uvicorn.serve(sockets=[self._socket]), name="apiserver"
        )
        write_kubeconfig(
            self.kubeconfig,
            self.address,
            serving.ca_pem.decode(),
            (pki / "admin.token").read_text().strip(),
            "hekla",
        )
        self.ready = True
        await self._started()
        # What start-up built lives as long as the server: keep the collector from walking it.
        gc.collect()
        gc.freeze()
        log.info("serving on %s", self.address)

    def _wire(self, admin_token: str) -> App:
        tokens = StaticTokens()
        tokens.add(admin_token, User("kubernetes-admin", (MASTERS, AUTHENTICATED)))
        authenticator = Authenticator(tokens, self.issuer)
        authorizer = Authorizer(self.store)
        handlers = Handlers(self.resources, self.closing)
        metrics = Metrics()
        metrics.gauge("hekla_store_revision", "Last revision.", lambda: self.store.revision)
        metrics.gauge("hekla_store_commits", "Commits so far.", lambda: self.store.commits)
        metrics.gauge("hekla_store_writes", "Writes so far.", lambda: self.store.writes)
        return App(
            registry=self.registry,
            handlers=handlers,
            subresources=Subresources(handlers, self.issuer, self.nodes),
            streams=Streams(self.resources, self.nodes),
            reviews=Reviews(authorizer, authenticator, self.issuer),
            discovery=Discovery(self.registry),
            authenticator=authenticator,
            authorizer=authorizer,
            metrics=metrics,
            is_ready=lambda: self.ready,
        )

    async def _started(self) -> None:
        while not self._uvicorn.started:
            if self._serving.done():
                await self._serving
                raise RuntimeError("the server stopped while starting")
            await asyncio.sleep(0.002)

    async def stop(self) -> None:
        """End watches, finish requests, commit, release the directory."""
        self.ready = False
        self.closing.set()
        if hasattr(self, "caretakers"):
            await self.caretakers.stop()
        if hasattr(self, "store"):
            for name in self.store.resources():
                self.store.table(name).wake()
        if hasattr(self, "_serving"):
            self._uvicorn.should_exit = True
            await asyncio.wait([self._serving])
        if hasattr(self, "store"):
            await self.store.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _take_lock(self) -> None:
        """One server a directory. The lock goes with the process, so a crash leaves none behind."""
        self._lock = (self.config.data_dir / "lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            self._lock = None
            raise AlreadyRunning(
                f"{self.config.data_dir} is in use by another hekla; stop it with `hekla down`, or "
                "choose another --data-dir"
            ) from error


def _settings(app: App, serving: certs.Serving) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="websockets-sansio",
        ws_max_size=1 << 20,
        ws_max_queue=16,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=False,
        timeout_keep_alive=IDLE_TIMEOUT_S,
        timeout_graceful_shutdown=2,
        ssl_certfile=str(serving.certificate),
        ssl_keyfile=str(serving.key),
    )


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers: whoever embeds the server handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(
            error.errno,
            f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}; try another --port",
        ) from error
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def _new_token() -> bytes:
    return secrets.token_urlsafe(32).encode()


def _secret(path: Path, make: object) -> bytes:
    """A secret kept in a file, made on first use."""
    if not path.exists():
        assert callable(make)
        certs.write_private(path, make())
    return path.read_bytes()
