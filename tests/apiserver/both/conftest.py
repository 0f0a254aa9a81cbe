"""hekla's API server and kube-apiserver for the same tests, and a webhook server for both."""

from __future__ import annotations

import base64
import copy
import http.client
import json
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from tools.kube.cluster import KubeCluster, parts_for
from tools.kube.gobuild import missing
from tools.waiting import until

from hekla.units.objects import Object
from hekla.web.certificates import new_authority, new_serving
from tests.realkube.backends import embedded_server

Answer = Callable[[Object], Object]

REINITIALIZING = "storage is (re)initializing"


@dataclass
class Reply:
    status: int
    body: Any
    warnings: list[str] = field(default_factory=list)

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    def ok(self) -> Object:
        assert self.status < 300, self.body
        body: Object = self.body
        return body


class Api:
    """Plain HTTP requests to a server."""

    def __init__(self, config: Path) -> None:
        content = yaml.safe_load(config.read_text())
        cluster = content["clusters"][0]["cluster"]
        token = content["users"][0]["user"]["token"]
        self._address = urlsplit(cluster["server"])
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=ca)
        self._headers = {"Authorization": f"Bearer {token}"}

    def acting_as(self, **headers: str) -> Api:
        """Return a client that impersonates: `User="jane"`, `Group="devs"`, `Extra_scopes="x"`."""
        made = copy.copy(self)
        more = {f"Impersonate-{k.replace('_', '-')}": v for k, v in headers.items()}
        made._headers = {**self._headers, **more}
        return made

    def with_token(self, token: str) -> Api:
        made = copy.copy(self)
        made._headers = {"Authorization": f"Bearer {token}"}
        return made

    def __call__(
        self, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> Reply:
        """Send a request; again while kube-apiserver replaces the storage of a changed CRD."""
        replies: list[Reply] = []

        def answered() -> bool:
            replies[:] = [self._send(method, path, body, kind)]
            return replies[0].status != 429 or replies[0].message != REINITIALIZING

        until(answered)
        return replies[0]

    def _send(self, method: str, path: str, body: Any, kind: str) -> Reply:
        link = http.client.HTTPSConnection(
            self._address.hostname or "", self._address.port, context=self._tls, timeout=60
        )
        try:
            headers = {**self._headers, "Content-Type": kind}
            data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            link.request(method, path, data, headers)
            answer = link.getresponse()
            told = [w.split(" ", 2)[2].strip('"') for w in answer.headers.get_all("Warning") or ()]
            text = answer.read()
            found = json.loads(text) if text.startswith(b"{") else {"message": text.decode()}
            return Reply(answer.status, found, told)
        finally:
            link.close()

    def lines(self, path: str, count: int) -> list[Object]:
        """Return the first `count` objects of a JSON stream."""
        link = http.client.HTTPSConnection(
            self._address.hostname or "", self._address.port, context=self._tls, timeout=120
        )
        try:
            link.request("GET", path, headers=self._headers)
            return [json.loads(line) for line in islice(link.getresponse(), count)]
        finally:
            link.close()

    def get(self, path: str) -> Reply:
        return self("GET", path)

    def post(self, path: str, body: Any) -> Reply:
        return self("POST", path, body)

    def put(self, path: str, body: Any) -> Reply:
        return self("PUT", path, body)

    def merge(self, path: str, body: Any) -> Reply:
        return self("PATCH", path, body, "application/merge-patch+json")

    def delete(self, path: str) -> Reply:
        return self("DELETE", path)


class Hook:
    """An HTTPS webhook server with scripted responses: path -> function of the request."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.calls: dict[str, list[Object]] = {}
        now = time.time()
        authority = new_authority(now, "test-ca")
        serving = new_serving(authority, ["127.0.0.1", "localhost"], now)
        self.ca = base64.b64encode(authority.certificate).decode()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _load(context, serving.certificate, serving.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def _handler(hook) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                path = urlsplit(self.path).path
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hook.calls.setdefault(path, []).append(review["request"])
                respond: Any = hook.answers.get(path, lambda _: {"allowed": True})
                answer = respond(review["request"])
                status = answer.pop("http", 200)
                answer.setdefault("uid", review["request"]["uid"])
                body = json.dumps({**review, "request": None, "response": answer}).encode()
                body = answer.pop("raw", body)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        return Handler

    def client_config(self, path: str, **more: Any) -> Object:
        return {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": self.ca, **more}

    def on(self, path: str, answer: Answer) -> str:
        self.answers[path] = answer
        return path

    def seen(self, path: str) -> list[Object]:
        return self.calls.get(path, [])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name)


@pytest.fixture(scope="session", params=["embedded", "real"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "embedded":
        with embedded_server(directory) as config:
            yield config
        return
    if reason := missing(parts_for()):
        pytest.skip(reason)
    with KubeCluster(directory) as cluster:
        yield cluster.kubeconfig


@pytest.fixture
def is_real(request: pytest.FixtureRequest) -> bool:
    return "real" in request.node.callspec.id


@pytest.fixture
def api(server: Path) -> Api:
    return Api(server)


@pytest.fixture
def unique() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture
def namespace(api: Api, unique: str) -> str:
    body = {"metadata": {"name": unique, "labels": {"test": unique}}}
    until(lambda: api.post("/api/v1/namespaces", body).status in (201, 409))
    return unique


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


ADMISSION = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture
def configure(api: Api, hook: Hook, namespace: str, unique: str) -> Iterator[Callable[..., Object]]:
    """Create a webhook configuration for the test's namespace and wait until it is active."""
    made: list[str] = []

    def webhook(path: str, more: Object) -> Object:
        return {
            "name": f"{path.strip('/')}.hekla.test",
            "clientConfig": hook.client_config(path),
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "rules": [rule("configmaps")],
            "namespaceSelector": {"matchLabels": {"test": unique}},
            "objectSelector": {"matchExpressions": [{"key": "probe", "operator": "DoesNotExist"}]},
            **more,
        }

    def configure(kind: str, *hooks: tuple[str, Object], name: str = "") -> Object:
        number = len(made)
        ready = f"/ready{number}"
        hook.on(ready, lambda _: {"allowed": True})
        label = {f"ready{number}": unique, "probe": ""}
        marker = webhook(ready, {"objectSelector": {"matchLabels": label}})
        path = f"{ADMISSION}/{kind}webhookconfigurations"
        body = {
            "metadata": {"name": name or f"{unique}-{number}"},
            "webhooks": [*(webhook(p, more) for p, more in hooks), marker],
        }
        created = api.post(path, body).ok()
        made.append(f"{path}/{created['metadata']['name']}")
        probe = {"metadata": {"name": "probe", "labels": label}}
        target = f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All"
        until(lambda: api.post(target, probe) and hook.seen(ready))
        hook.calls.clear()
        return created

    yield configure
    for path in made:
        api.delete(path)


def rule(*resources: str, operations: tuple[str, ...] = ("*",), **more: Any) -> Object:
    return {
        "operations": list(operations),
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "resources": list(resources),
        **more,
    }
