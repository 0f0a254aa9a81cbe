"""The admission webhook answers the API server only, and limits the work of each caller."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hekla.admission.app import MAX_PER_CALLER, App
from hekla.web.certificates import Pair, new_authority, new_serving
from hekla.web.server import WebServer


def client_of(authority: Pair) -> bytes:
    """Return a client certificate and its key."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(issuer.not_valid_before_utc)
        .not_valid_after(issuer.not_valid_after_utc)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + private


class Certificates:
    """Files of one authority: server and client."""

    def __init__(self, directory: Path) -> None:
        now = time.time()
        authority = new_authority(now, "front-proxy-ca")
        pair = new_serving(authority, ["127.0.0.1"], now)
        self.ca, self.certificate, self.key = (
            directory / name for name in ("ca.crt", "tls.crt", "tls.key")
        )
        self.ca.write_bytes(authority.certificate)
        self.certificate.write_bytes(pair.certificate)
        self.key.write_bytes(pair.key)
        self.client = directory / "client.pem"
        self.client.write_bytes(client_of(authority))

    def context(self, *, proves: bool) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        if proves:
            context.load_cert_chain(self.client)
        return context


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
async def webhook(certificates: Certificates) -> AsyncIterator[WebServer]:
    view: Any = None
    app = App(view, verifies_clients=True)
    async with WebServer(
        app,
        certificate=certificates.certificate,
        key=certificates.key,
        client_ca=certificates.ca,
    ) as server:
        yield server


async def post(server: WebServer, context: ssl.SSLContext, path: str, body: Any) -> int:
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.post(f"{server.address}{path}", json=body) as response,
    ):
        return response.status


def hook_path() -> str:
    from hekla.admission.webhooks import HOOKS

    return HOOKS[0].path


async def test_review_without_client_certificate_is_refused(
    webhook: WebServer, certificates: Certificates
) -> None:
    assert await post(webhook, certificates.context(proves=False), hook_path(), {}) == 401


async def test_review_with_client_certificate_is_read(
    webhook: WebServer, certificates: Certificates
) -> None:
    # The empty review is refused for its content, after the caller is known.
    assert await post(webhook, certificates.context(proves=True), hook_path(), {}) == 400


async def test_probes_need_no_certificate(webhook: WebServer, certificates: Certificates) -> None:
    assert await post(webhook, certificates.context(proves=False), "/healthz", {}) == 200


async def test_certificate_of_another_authority_is_refused(
    webhook: WebServer, certificates: Certificates, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    context = certificates.context(proves=False)
    stranger = Certificates(other)
    context.load_cert_chain(stranger.client)
    with pytest.raises(aiohttp.ClientError):
        await post(webhook, context, hook_path(), {})


async def test_caller_with_many_unfinished_reviews_is_refused_and_others_are_not() -> None:
    view: Any = None
    app = App(view)
    statuses: list[int] = []
    unfinished = asyncio.Event()

    async def silent() -> dict[str, Any]:
        await unfinished.wait()
        return {"type": "http.disconnect"}

    async def whole() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    def scope(address: str) -> dict[str, Any]:
        headers = [(b"content-type", b"application/json")]
        return {
            "type": "http",
            "path": hook_path(),
            "method": "POST",
            "headers": headers,
            "client": (address, 1),
        }

    held = [
        asyncio.create_task(app(scope("10.0.0.1"), silent, send)) for _ in range(MAX_PER_CALLER)
    ]
    await asyncio.sleep(0)
    await app(scope("10.0.0.1"), whole, send)
    await app(scope("10.0.0.2"), whole, send)
    assert statuses == [429, 400]
    unfinished.set()
    await asyncio.gather(*held)
    await app(scope("10.0.0.1"), whole, send)
    assert statuses[-1] == 400


async def test_deep_review_is_refused() -> None:
    view: Any = None
    body = b'{"kind":"AdmissionReview","request":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    answers: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        answers.append(message)

    scope = {
        "type": "http",
        "path": hook_path(),
        "method": "POST",
        "headers": [(b"content-type", b"application/json")],
    }
    await App(view)(scope, receive, send)
    assert answers[0]["status"] == 400
    assert json.dumps(answers[1]["body"].decode())
