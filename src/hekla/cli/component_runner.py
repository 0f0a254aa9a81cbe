"""Run one component against a cluster: clients, lease, probes, metrics, signals.

A component acts only while it holds its lease: its client checks the elector before every write. On
SIGTERM it releases the lease, so that the next replica takes over at once. A component that loses
its lease exits with an error and is restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import click
import uvloop

from hekla.admission.service import AdmissionService
from hekla.admission.webhooks import WebhookAddress
from hekla.api.wellknown import SYSTEM_NAMESPACE
from hekla.kube import cluster_choice
from hekla.kube.access_reviews import TokenAuthorizer
from hekla.kube.client import Client
from hekla.kube.cluster_choice import Flags
from hekla.kube.errors import KubeError
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.leases import LeaderElector
from hekla.kube.transport import RateLimit
from hekla.records.service import HistoryService, attributes_of
from hekla.records.store import HistoryStore
from hekla.units.clock import SystemClock
from hekla.web.authorization import Authorize, TokenRequired
from hekla.web.certificates import new_authority, new_serving
from hekla.web.probes import Check, Page, Probes
from hekla.web.server import WebServer
from hekla.web.stalls import watch_stalls

log = logging.getLogger("hekla")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of all components, named as Volcano's flags."""

    kubeconfig: Path | None = None
    master: str = ""
    kube_api_qps: float = 2000.0
    kube_api_burst: int = 2000
    leader_elect: bool = False
    leader_elect_lease_duration: float = 15.0
    leader_elect_renew_deadline: float = 10.0
    leader_elect_retry_period: float = 2.0
    leader_elect_resource_name: str = ""
    leader_elect_resource_namespace: str = ""
    enable_metrics: bool = False
    metrics_secure: bool = False
    listen_address: str = ""
    enable_healthz: bool = False
    healthz_address: str = ""
    tls_cert_file: Path | None = None
    tls_private_key_file: Path | None = None
    ca_cert_file: Path | None = None
    verbosity: int = 0

    def target(self) -> ClusterConfig:
        config = cluster_choice.find(Flags(kubeconfig=self.kubeconfig), may_be_down=True)
        return replace(config, server=self.master) if self.master else config


class Component(Protocol):
    """A component that can be run: a Scheduler, or Controllers."""

    async def run(self) -> None: ...

    def not_ready_reason(self) -> str: ...

    def unhealthy_reason(self) -> str: ...

    async def render_metrics(self) -> bytes: ...

    def pages(self) -> Mapping[str, Page]: ...

    def set_leader(self, is_leader: bool) -> None: ...


def run_component(
    name: str,
    options: Options,
    build: Callable[[Client], Component],
    history: HistoryStore | None = None,
) -> None:
    """Run a component until SIGTERM, Ctrl-C, or the loss of the lease `name`.

    `history` is served on the port of the metrics.
    """
    level = logging.DEBUG if options.verbosity >= 4 else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    _run(serve(name, options, build, history))


async def serve(
    name: str,
    options: Options,
    build: Callable[[Client], Component],
    history: HistoryStore | None = None,
) -> None:
    """Run the component and its servers until cancelled."""
    clock, target = SystemClock(), options.target()
    log.info("%s uses the cluster %s of %s", name, target.server, target.source)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(watch_stalls())
        elector = None
        if options.leader_elect:
            # A separate client: renewals must not queue behind the component's requests.
            lease_client = Client(target, component=f"{name}-lease", max_connections=2)
            elector = _elector(await stack.enter_async_context(lease_client), name, options)
        client = await stack.enter_async_context(
            Client(
                target,
                component=name,
                rate_limit=RateLimit(options.kube_api_qps, options.kube_api_burst, clock),
                fence=None if elector is None else lambda: elector.is_leader,
            )
        )
        component = build(client)
        authorize = None
        if options.metrics_secure:
            # Strangers cause these requests: they must not delay the component's own.
            review_client = Client(
                target, component=f"{name}-metrics", rate_limit=RateLimit(10, 20, clock)
            )
            authorize = TokenAuthorizer(
                await stack.enter_async_context(review_client), clock, resource_of=attributes_of
            )
        for server in _servers(options, component, elector, authorize, history, clock.now()):
            await stack.enter_async_context(server)
            log.info("serving at %s", server.address)
        if elector is None:
            component.set_leader(True)
            await component.run()
        else:
            await elector.run(_leading(component))


def _leading(component: Component) -> Callable[[], Awaitable[None]]:
    async def lead() -> None:
        component.set_leader(True)
        await component.run()

    return lead


def _elector(client: Client, name: str, options: Options) -> LeaderElector:
    namespace = options.leader_elect_resource_namespace or "volcano-system"
    try:
        return LeaderElector(
            client,
            options.leader_elect_resource_name or name,
            f"{socket.gethostname()}_{uuid.uuid4()}",
            namespace=namespace,
            lease_duration_s=options.leader_elect_lease_duration,
            renew_deadline_s=options.leader_elect_renew_deadline,
            retry_period_s=options.leader_elect_retry_period,
        )
    except ValueError as error:
        raise click.UsageError(f"--leader-elect-*: {error}") from error


def _servers(
    options: Options,
    component: Component,
    elector: LeaderElector | None,
    authorize: Authorize | None,
    history: HistoryStore | None,
    now: float,
) -> list[WebServer]:
    def ready() -> str:
        # A standby replica is always ready: a rollout must not wait for it.
        return component.not_ready_reason() if elector is None or elector.is_leader else ""

    checks = {
        "healthz": component.unhealthy_reason,
        "livez": component.unhealthy_reason,
        "readyz": ready,
    }
    wanted: dict[str, dict[str, Check]] = {}
    if options.enable_metrics:
        wanted[options.listen_address] = {}
    if options.enable_healthz:
        wanted[options.healthz_address] = checks
    servers = []
    for address, served in wanted.items():
        has_metrics = options.enable_metrics and address == options.listen_address
        certificate, key = options.tls_cert_file, options.tls_private_key_file
        app: Any = Probes(served)
        if has_metrics:
            app = Probes(served, component.render_metrics, component.pages())
        if has_metrics and authorize is not None:
            if history is not None:
                app = HistoryService(app, history, lambda: elector is None or elector.is_leader)
            app = TokenRequired(app, authorize, open_paths=[f"/{name}" for name in served])
            if certificate is None:
                certificate, key = _self_signed(now)
        host, port = split_address(address)
        servers.append(
            WebServer(
                app,
                certificate=certificate,
                key=key,
                client_ca=options.ca_cert_file,
                host=host,
                port=port,
            )
        )
    return servers


def _self_signed(now: float) -> tuple[Path, Path]:
    """Return a new certificate and key, in memory: the root file system may be read-only.

    Tokens must not cross the network in plain text. Clients that verify need --tls-cert-file.
    """
    pair = new_serving(new_authority(now), [socket.gethostname(), "localhost", "127.0.0.1"], now)
    return _memory_file(pair.certificate), _memory_file(pair.key)


def _memory_file(content: bytes) -> Path:
    descriptor = os.memfd_create("hekla-metrics")
    os.write(descriptor, content)
    return Path(f"/proc/self/fd/{descriptor}")


def split_address(text: str) -> tuple[str, int]:
    """Split `:8080`, `127.0.0.1:8080` or `[::1]:8080` as Go does: no host means all."""
    host, colon, port = text.rpartition(":")
    if not (colon and port.isdigit() and int(port) < 65536):
        raise click.UsageError(f"{text!r} is not HOST:PORT")
    return host.strip("[]") or "0.0.0.0", int(port)


def admission(
    config: Path | None,
    host: str,
    port: int,
    service: str | None,
    url: str | None,
    client_ca: Path | None = None,
    *,
    max_pods_per_job: int,
) -> None:
    if service and url:
        raise click.UsageError("--service and --url are mutually exclusive")
    webhook_address = WebhookAddress(url=url) if url else None
    if service:
        namespace, slash, name = service.partition("/")
        if not slash:
            raise click.UsageError("--service is NAMESPACE/NAME")
        webhook_address = WebhookAddress(namespace=namespace, service=name)
    if webhook_address is None and host in ("0.0.0.0", "::"):
        raise click.UsageError("give --service or --url: the address for the API server")

    async def serve() -> None:
        with watch_stalls():
            await serve_reviews()

    async def serve_reviews() -> None:
        target = cluster_choice.find(Flags(kubeconfig=config), may_be_down=True)
        async with Client(target, component="admission") as client:
            namespace = webhook_address.namespace if webhook_address is not None else ""
            await AdmissionService(
                client,
                host=host,
                port=port,
                address=webhook_address,
                namespace=namespace or SYSTEM_NAMESPACE,
                client_ca=client_ca,
                max_pods_per_job=max_pods_per_job,
            ).run()

    _run(serve())


def _run(work: Awaitable[None]) -> None:
    """Run until completion, Ctrl-C or SIGTERM."""

    async def until_stopped() -> None:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    try:
        uvloop.run(until_stopped())
    except (KubeError, OSError) as error:
        raise click.ClickException(str(error)) from error
