"""Registries for tests: Debian's docker-registry, and one that can lie."""

from __future__ import annotations

import base64
import contextlib
import http.client
import http.server
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from tools import debian
from tools.kube.processes import free_port
from tools.waiting import until

from hekla.images.reference import Reference, parse_reference
from tests.images.builders import BuiltImage, sha256, write_layout


class RealRegistry:
    """Debian's docker-registry on loopback."""

    def __init__(self, address: str, where: Path) -> None:
        self.address = address
        self._where = where

    def push(self, name: str, built: BuiltImage) -> Reference:
        """Push an image with skopeo; return its name."""
        number = len(list(self._where.glob("layout*")))
        layout = write_layout(self._where / f"layout{number}", {"i": built})
        reference = parse_reference(f"{self.address}/{name}")
        words = [str(debian.program("skopeo")), "--insecure-policy", "copy", "--quiet"]
        words += ["--dest-tls-verify=false", f"oci:{layout}:i", f"docker://{reference}"]
        subprocess.run(words, check=True, capture_output=True)
        return reference


@contextlib.contextmanager
def real_registry(where: Path) -> Iterator[RealRegistry]:
    port = free_port()
    config = where / "registry.yml"
    config.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {where / 'data'}}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    words = [str(debian.program("docker-registry")), "serve", str(config)]
    with (where / "registry.log").open("w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        until(lambda: _answers(port), "docker-registry does not answer", ignored=OSError)
        yield RealRegistry(f"127.0.0.1:{port}", where)
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection):
        connection.request("GET", "/v2/")
        return connection.getresponse().status == 200


class LyingRegistry:
    """A registry whose answers a test decides."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes | int] = {}
        """By path below the repository, such as `manifests/1`: a body, or a status."""
        self.login = ""
        """The only login, as user:password."""
        self.requests: list[str] = []
        self.hold = threading.Event()
        """Unless it is set, blobs in `stalled` are sent by half."""
        self.stalled: set[str] = set()
        self.endless: set[str] = set()
        self.address = ""

    def put(self, tag: str, built: BuiltImage, index: bytes = b"") -> Reference:
        for digest, data in built.blobs.items():
            self.answers[f"blobs/{digest}"] = data
        self.answers[f"manifests/{built.digest}"] = built.manifest
        top = index or built.manifest
        self.answers[f"manifests/{sha256(top)}"] = self.answers[f"manifests/{tag}"] = top
        return self.name(tag)

    def name(self, tag: str) -> Reference:
        return parse_reference(f"{self.address}/x:{tag}")

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        path = handler.path.removeprefix("/v2/x/")
        self.requests.append(path)
        if self.login and handler.headers.get("Authorization") != self._authorization():
            _send(handler, 401, b"", {"WWW-Authenticate": 'Basic realm="x"'})
            return
        found = b"{}" if handler.path == "/v2/" else self.answers.get(path, 404)
        if isinstance(found, int):
            _send(handler, found, b"")
        elif path in self.endless:
            self._send_without_end(handler)
        elif path in self.stalled:
            self._send_by_half(handler, found)
        else:
            _send(handler, 200, found, {"Content-Type": _media_type(found)})

    def _authorization(self) -> str:
        return "Basic " + base64.b64encode(self.login.encode()).decode()

    def _send_by_half(self, handler: http.server.BaseHTTPRequestHandler, body: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: len(body) // 2])
        handler.wfile.flush()
        self.hold.wait()
        with contextlib.suppress(OSError):
            handler.wfile.write(body[len(body) // 2 :])

    def _send_without_end(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        with contextlib.suppress(OSError):
            while not self.hold.is_set():
                handler.wfile.write(bytes(1 << 20))


def _send(
    handler: http.server.BaseHTTPRequestHandler,
    status: int,
    body: bytes,
    headers: dict[str, str] | None = None,
) -> None:
    handler.send_response(status)
    for name, value in (headers or {}).items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


def _media_type(body: bytes) -> str:
    if b'"manifests"' in body:
        return "application/vnd.oci.image.index.v1+json"
    if b'"layers"' in body and b'"config"' in body:
        return "application/vnd.oci.image.manifest.v1+json"
    return "application/octet-stream"


@contextlib.contextmanager
def lying_registry() -> Iterator[LyingRegistry]:
    registry = LyingRegistry()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def do_GET(self) -> None:
            registry.answer(self)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    registry.address = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield registry
    finally:
        registry.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
