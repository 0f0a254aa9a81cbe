"""The admission service: certificates, webhook configurations and the server.

Certificates are checked twice a day: renewed ones are used for new connections and written to the
webhook configurations, so no manual rotation is needed.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from hekla.admission.app import MASTERS, App
from hekla.admission.certificates import Certificates, CertificateSecret
from hekla.admission.view import InformerView
from hekla.admission.webhooks import WebhookAddress, change_of_address, configurations
from hekla.api import wellknown
from hekla.api.volcano.jobs import MAX_REPLICAS
from hekla.kube.client import Client
from hekla.kube.errors import Invalid, KubeError
from hekla.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from hekla.units.clock import Clock, SystemClock
from hekla.web.server import WebServer

log = logging.getLogger("hekla.admission")

SECRET = "hekla-admission-certificates"
MANAGER = "hekla-admission"
CHECK_EVERY_S = 12 * 3600.0


class AdmissionService:
    """Serves reviews until cancelled. The API server calls it at `address`."""

    def __init__(
        self,
        client: Client,
        *,
        host: str = "127.0.0.1",
        port: int = 8443,
        address: WebhookAddress | None = None,
        namespace: str = wellknown.SYSTEM_NAMESPACE,
        client_ca: Path | None = None,
        max_pods_per_job: int = MAX_REPLICAS,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._host, self._port = host, port
        self._address = address
        self._client_ca = client_ca
        self._max_pods_per_job = max_pods_per_job
        self._clock = clock or SystemClock()
        self._namespace = namespace
        self._secret = CertificateSecret(client, self._clock, namespace, SECRET)

    async def run(self) -> None:
        async with self.serving() as server:
            await self._renew_periodically(server)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[WebServer]:
        """Run the server with its webhooks installed."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        address = self._address or WebhookAddress(url=f"https://{host}:{self._port}")
        certificates = await self._secret.ensure(address.names)
        with tempfile.TemporaryDirectory(prefix="hekla-admission-") as directory:
            self._directory = Path(directory)
            files = self._write(certificates)
            view = InformerView(self._client, max_pods_per_job=self._max_pods_per_job)
            async with view:
                server = WebServer(
                    App(
                        view,
                        current=view.current,
                        verifies_clients=self._client_ca is not None,
                        # The controllers act for users.
                        trusted=(MASTERS, f"system:serviceaccounts:{self._namespace}"),
                    ),
                    certificate=files[0],
                    key=files[1],
                    client_ca=self._client_ca,
                    host=self._host,
                    port=self._port,
                )
                async with server:
                    self._address = self._address or WebhookAddress(url=server.address)
                    await self._install(certificates)
                    yield server

    def _write(self, certificates: Certificates) -> tuple[Path, Path]:
        """Write files for OpenSSL, in a private directory."""
        paths = self._directory / "tls.crt", self._directory / "tls.key"
        paths[0].write_bytes(certificates.serving.certificate)
        paths[1].touch(mode=0o600)
        paths[1].write_bytes(certificates.serving.key)
        return paths

    async def _install(self, certificates: Certificates) -> None:
        assert self._address is not None
        for body in configurations(self._address, certificates.authority.certificate):
            mutates = body["kind"].startswith("Mutating")
            resource = MUTATING_WEBHOOKS if mutates else VALIDATING_WEBHOOKS
            try:
                await self._client.apply(resource, body, field_manager=MANAGER, force=True)
            except Invalid:  # the installed configuration has the other kind of address
                name, patch = body["metadata"]["name"], change_of_address(body)
                await self._client.patch(resource, name, patch, kind="strategic")
                await self._client.apply(resource, body, field_manager=MANAGER, force=True)

    async def _renew_periodically(self, server: WebServer) -> None:
        while True:
            await self._clock.sleep(CHECK_EVERY_S)
            try:
                await self.renew(server)
            except KubeError as error:
                log.warning("checking certificates failed: %s; retrying later", error)

    async def renew(self, server: WebServer) -> None:
        """Load the current certificates."""
        assert self._address is not None
        certificates = await self._secret.ensure(self._address.names)
        server.reload(*self._write(certificates))
        await self._install(certificates)
