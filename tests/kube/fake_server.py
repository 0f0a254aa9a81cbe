"""A fake API server on a loopback socket, and certificates for it.

It stores objects, assigns resourceVersions, paginates lists, streams watches in chunks and returns
errors as `Status` bodies. `server.script(...)` injects a fault into the next requests.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import re
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hekla.kube.credentials import Auth, ClientCertificate, FixedCredentials, with_token
from hekla.kube.kubeconfig import ClusterConfig
from hekla.units.clock import ManualClock

TOKEN = "s3cr3t-t0ken"
_PATH = re.compile(
    r"^/(?:api/(?P<core>v\w+)|apis/(?P<group>[^/]+/[^/]+))"
    r"(?:/namespaces/(?P<ns>[^/]+)(?=/))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>.+))?$"
)
Script = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


@dataclass
class Seen:
    """A received request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Kind:
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    history: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    watchers: list[asyncio.Queue[tuple[str, dict[str, Any]] | None]] = field(default_factory=list)
    forgotten: int = 0


class FakeServer:
    """State, a log of requests, and scripted faults."""

    def __init__(self) -> None:
        self.version = 100
        self.kinds: dict[str, Kind] = {}
        self.seen: list[Seen] = []
        self.scripts: list[Script] = []
        self.token: str | None = None
        self.url = ""
        self.watch_opened = asyncio.Event()
        self.pages: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        self.logs = b""

    # Controlled by tests

    def script(
        self,
        status: int = 200,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        times: int = 1,
    ) -> None:
        """Return this response for the next `times` requests (bytes are sent unchanged)."""

        async def answer(request: web.Request) -> web.StreamResponse:
            if isinstance(body, bytes):
                return web.Response(status=status, body=body, headers=headers)
            shown = status_body(status) if body is None else body
            return web.json_response(shown, status=status, headers=headers)

        self.scripts += [answer] * times

    def script_drop(self, times: int = 1) -> None:
        """Close the connection of the next `times` requests."""

        async def drop(request: web.Request) -> web.StreamResponse:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

        self.scripts += [drop] * times

    def script_call(self, script: Script) -> None:
        self.scripts.append(script)

    def kind(self, collection: str) -> Kind:
        return self.kinds.setdefault(collection, Kind())

    def put(self, collection: str, name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
        """Create or update an object on the server."""
        kind = self.kind(collection)
        old = kind.objects.get((namespace, name))
        self.version += 1
        uid = old["metadata"]["uid"] if old else f"uid-{self.version}"
        obj = {
            **more,
            "metadata": {
                **more.get("metadata", {}),
                "name": name,
                "uid": uid,
                "resourceVersion": str(self.version),
            },
        }
        if namespace:
            obj["metadata"]["namespace"] = namespace
        kind.objects[namespace, name] = obj
        self._emit(kind, "MODIFIED" if old else "ADDED", obj)
        return obj

    def remove(self, collection: str, name: str, namespace: str = "") -> None:
        kind = self.kind(collection)
        obj = kind.objects.pop((namespace, name))
        self.version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.version)}
        self._emit(kind, "DELETED", {**obj, "metadata": metadata})

    def bookmark(self, collection: str) -> None:
        metadata = {"resourceVersion": str(self.version)}
        for queue in self.kind(collection).watchers:
            queue.put_nowait(("BOOKMARK", {"metadata": metadata}))

    def end_watches(self, collection: str) -> None:
        for queue in self.kind(collection).watchers:
            queue.put_nowait(None)

    def forget(self, collection: str) -> None:
        """Expire all versions so far."""
        self.kind(collection).forgotten = self.version
        self.kind(collection).history.clear()

    async def watching(self) -> None:
        """Wait until a watch is open."""
        await asyncio.wait_for(self.watch_opened.wait(), 10)

    # Responses

    async def handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        self.seen.append(
            Seen(
                request.method,
                request.path,
                dict(request.query),
                dict(request.headers),
                json.loads(raw) if raw else None,
            )
        )
        if self.scripts:
            answer = await self.scripts.pop(0)(request)
            if answer is not None:
                return answer
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return refusal(401, "Unauthorized")
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.36.0"})
        match = _PATH.match(request.path)
        if match is None:
            return refusal(404, "NotFound")
        root = f"/api/{match['core']}" if match["core"] else f"/apis/{match['group']}"
        kind = self.kind(f"{root}/{match['plural']}")
        ns, name = match["ns"] or "", match["name"] or ""
        if match["sub"]:
            return self._subresource(kind, ns, name, match["sub"], self.seen[-1])
        if request.query.get("watch") == "true":
            return await self._watch(kind, ns, request)
        return self._plain(kind, ns, name, self.seen[-1])

    def _plain(self, kind: Kind, ns: str, name: str, seen: Seen) -> web.StreamResponse:
        collection = next(path for path, each in self.kinds.items() if each is kind)
        if seen.method == "GET" and not name:
            return self._list(kind, ns, seen)
        if seen.method == "POST":
            name = seen.body["metadata"].get("name") or "generated-1"
            if (ns, name) in kind.objects:
                return refusal(409, "AlreadyExists")
            if seen.query.get("dryRun"):
                return web.json_response(seen.body, status=201)
            return web.json_response(self.put(collection, name, ns, **seen.body), status=201)
        if seen.method == "DELETE" and not name:
            for space, each in list(kind.objects):
                if ns in ("", space):
                    self.remove(collection, each, space)
            return web.json_response(status_body(200))
        stored = kind.objects.get((ns, name))
        if stored is None:
            return refusal(404, "NotFound")
        if seen.method == "DELETE":
            wanted = (seen.body or {}).get("preconditions", {})
            if any(stored["metadata"][key] != value for key, value in wanted.items()):
                return refusal(409, "Conflict")
            self.remove(collection, name, ns)
            return web.json_response(status_body(200))
        if seen.method in ("PUT", "PATCH"):
            expected = seen.body.get("metadata", {}).get("resourceVersion")
            if expected and expected != stored["metadata"]["resourceVersion"]:
                return refusal(409, "Conflict")
            new = seen.body if seen.method == "PUT" else merged(stored, seen.body)
            return web.json_response(self.put(collection, name, ns, **new))
        return web.json_response(stored)

    def _subresource(
        self, kind: Kind, ns: str, name: str, sub: str, seen: Seen
    ) -> web.StreamResponse:
        collection = next(path for path, each in self.kinds.items() if each is kind)
        if sub == "token":
            status = {"token": "fresh-token", "expirationTimestamp": "2030-01-01T00:00:00Z"}
            return web.json_response({"status": status}, status=201)
        stored = kind.objects.get((ns, name))
        if stored is None:
            return refusal(404, "NotFound")
        if sub == "log":
            return web.Response(body=self.logs, content_type="text/plain")
        if sub == "status" and seen.method == "PATCH":
            stored = self.put(collection, name, ns, **merged(stored, seen.body))
        if sub == "binding":
            node = seen.body["target"]["name"]
            self.put(collection, name, ns, **merged(stored, {"spec": {"nodeName": node}}))
            return web.json_response(status_body(201), status=201)
        if sub == "eviction":
            self.remove(collection, name, ns)
            return web.json_response(status_body(201), status=201)
        return web.json_response(stored)

    def _list(self, kind: Kind, ns: str, seen: Seen) -> web.StreamResponse:
        token = seen.query.get("continue", "")
        if token:
            if token not in self.pages:
                return refusal(410, "Expired")
            version, rest = self.pages.pop(token)
        else:
            version = self.version
            rest = [obj for key, obj in sorted(kind.objects.items()) if ns in ("", key[0])]
        limit = int(seen.query.get("limit", 0)) or len(rest)
        page, rest = rest[:limit], rest[limit:]
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if rest:
            metadata["continue"] = f"page-{len(self.pages)}-{self.version}"
            metadata["remainingItemCount"] = len(rest)
            self.pages[metadata["continue"]] = (version, rest)
        body = {"apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": page or None}
        return web.json_response(body)

    async def _watch(self, kind: Kind, ns: str, request: web.Request) -> web.StreamResponse:
        since = int(request.query.get("resourceVersion") or self.version)
        queue: asyncio.Queue[tuple[str, dict[str, Any]] | None] = asyncio.Queue()
        if since < kind.forgotten:
            queue.put_nowait(("ERROR", status_body(410, "Expired")))
            queue.put_nowait(None)
        else:
            for version, change, obj in kind.history:
                if version > since:
                    queue.put_nowait((change, obj))
            kind.watchers.append(queue)
        response = web.StreamResponse()
        await response.prepare(request)
        self.watch_opened.set()
        try:
            while (item := await queue.get()) is not None:
                space = item[1].get("metadata", {}).get("namespace", "")
                if ns in ("", space) or item[0] in ("ERROR", "BOOKMARK"):
                    line = json.dumps({"type": item[0], "object": item[1]}) + "\n"
                    # In two chunks: a chunk is not a line.
                    half = len(line) // 2
                    await response.write(line[:half].encode())
                    await response.write(line[half:].encode())
        finally:
            self.watch_opened.clear()
            if queue in kind.watchers:
                kind.watchers.remove(queue)
        return response

    def _emit(self, kind: Kind, change: str, obj: dict[str, Any]) -> None:
        kind.history.append((self.version, change, obj))
        for queue in kind.watchers:
            queue.put_nowait((change, obj))


def status_body(code: int, reason: str = "", **details: Any) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure" if code >= 400 else "Success",
        "message": f"the server says {code}",
        "reason": reason,
        "details": details,
        "code": code,
    }


def refusal(code: int, reason: str) -> web.Response:
    return web.json_response(status_body(code, reason), status=code)


def merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict) or not isinstance(old, dict):
        return patch
    new = dict(old)
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = merged(old.get(key), value)
    return new


async def _serve(
    server: FakeServer, context: ssl.SSLContext | None = None
) -> tuple[web.AppRunner, str]:
    app = web.Application(client_max_size=8 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    return runner, f"{'https' if context else 'http'}://127.0.0.1:{port}"


class HastyClock(ManualClock):
    """A clock whose sleeps return at once and are recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.naps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.skip(seconds)
        await asyncio.sleep(0)


def config_for(url: str, token: str | None = TOKEN, **more: Any) -> ClusterConfig:
    auth = with_token(Auth(), token, "test") if token else Auth()
    return ClusterConfig(server=url, credentials=FixedCredentials(auth), **more)


# Certificates


@dataclass
class Pki:
    """A CA, a server certificate for 127.0.0.1 and `api.internal`, and a client certificate."""

    ca_pem: str
    server_pem: str
    client: ClientCertificate
    stranger: ClientCertificate
    """Signed by another CA."""

    def server_context(self, tmp_path: Any, *, verify_client: bool = False) -> ssl.SSLContext:
        path = tmp_path / "server.pem"
        path.write_text(self.server_pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        if verify_client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=self.ca_pem)
        return context


def _certificate(
    name: str,
    issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None,
    *alternatives: x509.GeneralName,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    signer = issuer[1] if issuer else key
    public = issuer[1].public_key() if issuer else key.public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if issuer is None:
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = builder.add_extension(usage, critical=True)
    else:
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(signer, hashes.SHA256()), key


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
