"""The API server: files, certificates, tokens, background tasks and the socket.

    async with ApiServer(Config(data_dir=path)) as server:
        print(server.address, server.kubeconfig)

`data_dir` contains all state: `state.db`, `pki/`, `kubeconfig`. Removing it removes the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shlex
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from hekla.api.volcano.jobs import MAX_REPLICAS
from hekla.apiserver import bootstrap
from hekla.apiserver.admission.config import AdmissionConfig
from hekla.apiserver.app import App
from hekla.apiserver.auth import certificates
from hekla.apiserver.auth.authenticator import (
    AUTHENTICATED,
    MASTERS,
    Authenticator,
    StaticTokens,
    User,
)
from hekla.apiserver.auth.tokens import TokenIssuer, new_signing_key
from hekla.apiserver.background.tasks import BackgroundTasks
from hekla.apiserver.endpoints.access_reviews import AccessReviews
from hekla.apiserver.endpoints.discovery import Discovery
from hekla.apiserver.endpoints.handlers import Handlers
from hekla.apiserver.endpoints.health import Health
from hekla.apiserver.endpoints.history import JobRecords
from hekla.apiserver.endpoints.nodeproxy import Nodes
from hekla.apiserver.endpoints.streams import Streams
from hekla.apiserver.endpoints.subresources import Subresources
from hekla.apiserver.flowcontrol import FlowControl, Limits
from hekla.apiserver.metrics import Metrics
from hekla.apiserver.registry.resources import Resources
from hekla.apiserver.schema import crds
from hekla.apiserver.schema.kinds import Registry
from hekla.apiserver.storage.store import Durability, Store
from hekla.kube import kubeconfig
from hekla.kube.data_dir import LOCK_FILE, try_lock
from hekla.kube.errors import KubeError
from hekla.records.store import HistoryStore
from hekla.units.clock import Clock, SystemClock
from hekla.units.private_directory import create_private, ensure_private, tighten
from hekla.web.connections import ConnectionLimits, raise_file_limit
from hekla.web.server import WebServer

log = logging.getLogger("hekla.apiserver")

ADMIN_SOCKET = "admin.sock"
_MAX_SOCKET_PATH = 108


class AlreadyRunning(Exception):
    """Another server uses this data directory."""


@dataclass
class Config:
    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 0
    durability: Durability = "process"
    else_any_port: bool = False
    """Whether a free port replaces one that is taken."""
    names: tuple[str, ...] = ()
    """Additional host names and addresses of the certificate."""
    clock: Clock = field(default_factory=SystemClock)
    limits: Limits = field(default_factory=Limits)
    """Limits of flow control."""
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    """Limits of connections and of what they leave unread."""
    pod_security_default: str = "baseline"
    """The Pod Security level of namespaces without a label."""
    queue_access: bool = False
    """Whether submitting to a queue needs the verb `use` on it."""
    max_pods_per_job: int = MAX_REPLICAS
    """The most pods that a Volcano Job may have."""
    history: HistoryStore | None = None
    """The history of jobs that is served; None: job records are not served."""
    scheduler_config_problem: Callable[[str], str] | None = None
    """Returns why the scheduler would refuse a configuration; None: it is not checked."""


class ApiServer:
    """Start with `async with`, or with `start` and `stop`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.nodes = Nodes()
        self.registry = Registry()
        self.closing = asyncio.Event()
        self.ready = False

    @property
    def address(self) -> str:
        return self._web.address

    @property
    def port(self) -> int:
        return self._web.port

    async def dial(self) -> socket.socket:
        """Open an in-process connection; its client authenticates like any other."""
        return await self._web.dial()

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
        """Start the server; return when it serves requests."""
        raise_file_limit()
        ensure_private(self.config.data_dir)
        async with contextlib.AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()

    async def stop(self) -> None:
        """End watches, finish requests, commit, and release the directory."""
        await self._stack.aclose()

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        config = self.config
        stack.enter_context(_locked(config.data_dir))
        tighten(config.data_dir, "*", "pki/*")
        pki = config.data_dir / "pki"
        names = {config.host, "localhost", "127.0.0.1", "::1", "kubernetes.default.svc"}
        serving = certificates.ensure(pki, names | set(config.names), config.clock.now())
        self.store = Store.open(config.data_dir / "state.db", durability=config.durability)
        stack.push_async_callback(self.store.close)
        self.resources = Resources(
            self.store,
            self.registry,
            clock=config.clock,
            admission=AdmissionConfig(
                config.pod_security_default,
                config.queue_access,
                config.max_pods_per_job,
                config.scheduler_config_problem,
            ),
        )
        stack.callback(self.resources.webhook_client.close)
        crds.subscribe(self.store, self.registry)
        self.issuer = TokenIssuer(
            self.store, _secret(pki / "sa.key", new_signing_key), config.clock
        )
        token = _secret(pki / "admin.token", _new_token).decode().strip()
        app = self._wire(token)
        await bootstrap.populate(self.resources)
        self.resources.admission.subscribe()
        self._web = await stack.enter_async_context(
            WebServer(
                app,
                certificate=serving.certificate,
                key=serving.key,
                host=config.host,
                port=config.port,
                else_any_port=config.else_any_port,
                limits=config.connections,
                admin_socket=_admin_socket(config.data_dir),
            )
        )
        self._count_connections()
        stack.callback(self._end_watches)
        await bootstrap.create_kubernetes_service(self.resources, self.port)
        ca = serving.ca_pem.decode()
        background = BackgroundTasks(self.resources, ca)
        background.start()
        stack.push_async_callback(background.stop)
        kubeconfig.write_kubeconfig(self.kubeconfig, self.address, ca, token, "hekla")
        self.ready = True
        log.info("serving on %s", self.address)

    def _count_connections(self) -> None:
        gate, gauge = self._web.connections, self.metrics.gauge
        gauge("hekla_connections_open", "Open connections.", lambda: gate.open)
        gauge(
            "hekla_connections_dropped",
            "Silent and idle connections closed for new ones.",
            lambda: gate.dropped,
        )
        gauge("hekla_connections_refused", "Connections beyond a limit.", lambda: gate.refused)
        gauge("hekla_clients_cut", "Clients cut because they did not read.", lambda: gate.cut)
        gauge("hekla_unread_bytes", "Unsent bytes of such clients.", lambda: gate.unread_bytes)

    def _end_watches(self) -> None:
        self.ready = False
        self.closing.set()
        for name in self.store.resources():
            self.store.table(name).wake()

    def _wire(self, admin_token: str) -> App:
        tokens = StaticTokens()
        tokens.add(admin_token, User("kubernetes-admin", (MASTERS, AUTHENTICATED)))
        authenticator = Authenticator(tokens, self.issuer)
        authorizer = self.resources.admission.authorizer
        handlers = Handlers(self.resources, self.closing)
        self.flowcontrol = flow = FlowControl(self.config.limits)
        self.metrics = metrics = Metrics()
        metrics.gauge("hekla_requests_under_way", "Requests that execute.", lambda: flow.executing)
        metrics.gauge("hekla_requests_waiting", "Queued requests.", lambda: flow.queued)
        metrics.gauge("hekla_requests_refused", "Requests answered 429.", lambda: flow.rejected)
        metrics.gauge(
            "hekla_streams_open",
            "Open long-running requests: watches, logs and sessions.",
            lambda: flow.streams,
        )
        metrics.gauge("hekla_store_revision", "Newest revision.", lambda: self.store.revision)
        metrics.gauge("hekla_store_commits", "Commits.", lambda: self.store.commits)
        metrics.gauge("hekla_store_writes", "Writes.", lambda: self.store.writes)
        if self.config.history is not None:
            self.registry.serve_job_records()
        return App(
            registry=self.registry,
            handlers=handlers,
            subresources=Subresources(handlers, self.issuer, self.nodes),
            streams=Streams(self.resources, self.nodes),
            reviews=AccessReviews(authorizer, authenticator, self.issuer),
            job_records=JobRecords(self.config.history, self.config.clock),
            discovery=Discovery(self.registry),
            authenticator=authenticator,
            authorizer=authorizer,
            metrics=metrics,
            health=Health(
                live={"store": lambda: self.store.failure},
                ready={
                    "bootstrap": lambda: "" if self.ready or self.closing.is_set() else "starting",
                    "shutdown": lambda: "stopping" if self.closing.is_set() else "",
                },
            ),
            flowcontrol=flow,
        )


def _admin_socket(directory: Path) -> Path | None:
    """Return the path of the administrator's socket; None if it is too long for the system."""
    path = directory / ADMIN_SOCKET
    if len(os.fsencode(path)) < _MAX_SOCKET_PATH:
        return path
    log.warning("no administrator's socket: the path %s is too long", path)
    return None


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Lock a data directory. The kernel releases the lock when the process ends."""
    create_private(directory / LOCK_FILE)
    with (directory / LOCK_FILE).open("a+") as lock:
        if not try_lock(lock):
            raise AlreadyRunning(
                f"{directory} is in use by another hekla{_address_in(directory)}; stop it with "
                f"`hekla down --data-dir {shlex.quote(str(directory))}`, or choose another "
                "--data-dir"
            )
        yield


def _address_in(directory: Path) -> str:
    """Return the address of the running server from its kubeconfig, if any."""
    try:
        return f" at {kubeconfig.load(directory / 'kubeconfig').server}"
    except KubeError:
        return ""


def _new_token() -> bytes:
    return secrets.token_urlsafe(32).encode()


def _secret(path: Path, make: object) -> bytes:
    """Return a secret from a file; create it on first use."""
    if not path.exists():
        assert callable(make)
        certificates.write_private(path, make())
    return path.read_bytes()
