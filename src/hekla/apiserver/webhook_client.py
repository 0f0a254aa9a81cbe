"""The client for webhooks: resolve a client configuration and POST JSON over TLS.

A webhook is configured by URL or by Service. A cluster on one machine has no service proxy, so a
Service is resolved to one of its endpoints. The certificate must be valid for
`name.namespace.svc`, as on any cluster.

Note: a server may close an idle connection that is kept open. A call on such a connection is
retried once on a new one; other failures are the caller's to handle.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from hekla import __version__
from hekla.apiserver.storage.store import Store
from hekla.kube.credentials import tls_context
from hekla.kube.errors import ConfigError
from hekla.kube.http1 import ConnectionClosed, InvalidResponse, Pool, Response, TooLarge
from hekla.units.objects import Object

MAX_ENDPOINTS = 64
MAX_CONCURRENT_CALLS = 64
_HEAD = (
    "POST {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: hekla-apiserver/{version}\r\n"
    "Content-Type: application/json\r\nAccept: application/json\r\n"
    "Accept-Encoding: identity\r\nContent-Length: {length}\r\n\r\n"
)
_MAX_SHOWN_CHARS = 300


class WebhookError(Exception):
    """The call failed; the message has the reason and the address."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a webhook."""

    host: str
    port: int
    server_name: str
    path: str
    ca_pem: str | None
    url: str
    """The address in error messages."""


class WebhookClient:
    """Posts JSON to webhooks. Call `close` at the end."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pools: OrderedDict[tuple[str, int, str], Pool] = OrderedDict()
        self._contexts: OrderedDict[str | None, ssl.SSLContext] = OrderedDict()

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    async def post(
        self, client_config: Mapping[str, Any], body: bytes, *, timeout_s: float, limit: int
    ) -> bytes:
        """Return the body of a response with status 200; WebhookError otherwise."""
        endpoint = self._resolve(client_config)
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._exchange(endpoint, body, timeout_s, limit)
        except TimeoutError as error:
            raise WebhookError(
                f'Post "{endpoint.url}": no response within {timeout_s:.0f} s: '
                "context deadline exceeded"
            ) from error
        except TooLarge as error:
            raise WebhookError(
                f'Post "{endpoint.url}": the response is larger than {limit} bytes'
            ) from error
        except (OSError, InvalidResponse) as error:
            raise WebhookError(f'Post "{endpoint.url}": {_short_text(error)}') from error
        response_body = response.body()
        if response.status != 200:
            said = response_body[:_MAX_SHOWN_CHARS].decode("utf-8", "replace").strip()
            raise WebhookError(f'Post "{endpoint.url}": status {response.status}: {said}')
        return response_body

    async def _exchange(
        self, endpoint: Endpoint, body: bytes, timeout_s: float, limit: int
    ) -> Response:
        host = endpoint.url.split("/")[2]
        path = f"{endpoint.path}{'&' if '?' in endpoint.path else '?'}timeout={timeout_s:.0f}s"
        head = _HEAD.format(path=path, host=host, version=__version__, length=len(body))
        request = head.encode("ascii", "replace") + body
        context, pool = self._context(endpoint), self._pool(endpoint)
        while True:
            connection = await pool.acquire(context, timeout_s)
            was_idle = connection.idle_since > 0
            try:
                return await connection.exchange(request, limit=limit, whole=True)
            except ConnectionClosed:
                if not was_idle:
                    raise
            finally:
                pool.release(connection, context)

    def _pool(self, endpoint: Endpoint) -> Pool:
        key = (endpoint.host, endpoint.port, endpoint.server_name)
        pool = self._pools.get(key)
        if pool is None:
            if len(self._pools) >= MAX_ENDPOINTS:
                self._pools.popitem(last=False)[1].close()
            pool = self._pools[key] = Pool(
                endpoint.host,
                endpoint.port,
                limit=MAX_CONCURRENT_CALLS,
                server_name=endpoint.server_name,
            )
        self._pools.move_to_end(key)
        return pool

    def _context(self, endpoint: Endpoint) -> ssl.SSLContext:
        context = self._contexts.get(endpoint.ca_pem)
        if context is None:
            if len(self._contexts) >= MAX_ENDPOINTS:
                self._contexts.popitem(last=False)
            try:
                context = tls_context(endpoint.ca_pem, insecure=False, certificate=None)
            except ConfigError as error:
                raise WebhookError(f'Post "{endpoint.url}": caBundle: {error}') from error
            self._contexts[endpoint.ca_pem] = context
        return context

    # Resolution

    def _resolve(self, client_config: Mapping[str, Any]) -> Endpoint:
        ca_pem = _ca(client_config.get("caBundle"))
        url = client_config.get("url")
        if url:
            parts = urlsplit(url)
            path = parts.path or "/"
            if parts.query:
                path += f"?{parts.query}"
            host = parts.hostname or ""
            return Endpoint(host, parts.port or 443, host, path, ca_pem, url)
        service = client_config.get("service") or {}
        name, namespace = service.get("name", ""), service.get("namespace", "")
        port = service.get("port") or 443
        path = service.get("path") or "/"
        url = f"https://{name}.{namespace}.svc:{port}{path}"
        host, target = self._service_endpoint(namespace, name, port, url)
        return Endpoint(host, target, f"{name}.{namespace}.svc", path, ca_pem, url)

    def _service_endpoint(self, namespace: str, name: str, port: int, url: str) -> tuple[str, int]:
        entry = self._store.get("services", f"{namespace}/{name}")
        if entry is None:
            raise WebhookError(f'Post "{url}": service "{name}" not found')
        service = msgspec.json.decode(entry.body)
        spec = service.get("spec") or {}
        requested = next((p for p in spec.get("ports") or () if p.get("port") == port), None)
        if requested is None:
            raise WebhookError(f'Post "{url}": service "{name}" has no port {port}')
        for host, target in self._addresses(namespace, name, requested):
            return host, target
        raise WebhookError(f'Post "{url}": no endpoints available for service "{name}"')

    def _addresses(self, namespace: str, name: str, port: Object) -> list[tuple[str, int]]:
        """Return the ready addresses of a Service's port."""
        response_body: list[tuple[str, int]] = []
        entry = self._store.get("endpoints", f"{namespace}/{name}")
        subsets = (msgspec.json.decode(entry.body).get("subsets") or ()) if entry else ()
        for subset in subsets:
            for target in subset.get("ports") or ():
                if (target.get("name") or "") == (port.get("name") or ""):
                    for address in subset.get("addresses") or ():
                        response_body.append((address["ip"], target["port"]))
        return response_body


def _ca(bundle: str | None) -> str | None:
    if not bundle:
        return None
    try:
        return base64.b64decode(bundle, validate=True).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise WebhookError("caBundle is not PEM in base64") from error


def _short_text(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: {error.verify_message}"
    return (str(error) or type(error).__name__)[:_MAX_SHOWN_CHARS]
