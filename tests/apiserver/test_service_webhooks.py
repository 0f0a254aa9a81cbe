"""Webhooks configured by Service: resolved to endpoints, verified by certificate."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hekla.apiserver.server import ApiServer
from hekla.kube.client import Client
from hekla.kube.errors import KubeError
from hekla.kube.resources import CONFIGMAPS, ENDPOINTS, SERVICES, VALIDATING_WEBHOOKS
from hekla.web.certificates import new_authority, new_serving

NAME = "judge.default.svc"


@pytest.fixture
def authority() -> Any:
    return new_authority(time.time())


@pytest.fixture
async def port(authority: Any, tmp_path: Path) -> AsyncIterator[int]:
    """A webhook that denies everything, with the certificate of the Service."""
    pair = new_serving(authority, [NAME], time.time())
    file = tmp_path / "pair.pem"
    file.write_bytes(pair.certificate + b"\n" + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length")
        )
        review = json.loads(await reader.readexactly(length))
        uid = review["request"]["uid"]
        body = json.dumps({**review, "request": None, "response": {"uid": uid, "allowed": False}})
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body.encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


def configuration(authority: Any, **service: Any) -> dict[str, Any]:
    where = {"name": "judge", "namespace": "default", **service}
    bundle = base64.b64encode(authority.certificate).decode()
    rule = {
        "operations": ["CREATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["configmaps"],
    }
    webhook = {
        "name": "judge.hekla.test",
        "clientConfig": {"service": where, "caBundle": bundle},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "rules": [rule],
    }
    return {"metadata": {"name": "judge"}, "webhooks": [webhook]}


async def refusal(client: Client) -> str:
    with pytest.raises(KubeError) as refused:
        await client.create(CONFIGMAPS, {"metadata": {"name": "a"}}, namespace="default")
    return str(refused.value)


async def test_webhook_service_is_resolved_to_its_endpoint(
    server: ApiServer, client: Client, authority: Any, port: int
) -> None:
    await client.create(VALIDATING_WEBHOOKS, configuration(authority, path="/x"))
    assert 'service "judge" not found' in await refusal(client)
    spec = {"ports": [{"name": "https", "port": 443, "targetPort": port}]}
    await client.create(
        SERVICES, {"metadata": {"name": "judge"}, "spec": spec}, namespace="default"
    )
    assert 'no endpoints available for service "judge"' in await refusal(client)
    subset = {"addresses": [{"ip": "127.0.0.1"}], "ports": [{"name": "https", "port": port}]}
    body = {"metadata": {"name": "judge"}, "subsets": [subset]}
    await client.create(ENDPOINTS, body, namespace="default")
    want = 'admission webhook "judge.hekla.test" denied the request without explanation'
    for _ in range(2):  # the second call uses a connection that the webhook has closed
        assert want in await refusal(client)


async def test_missing_port_of_a_webhook_service_is_reported(
    server: ApiServer, client: Client, authority: Any
) -> None:
    await client.create(VALIDATING_WEBHOOKS, configuration(authority, port=8443))
    spec = {"ports": [{"port": 443}]}
    await client.create(
        SERVICES, {"metadata": {"name": "judge"}, "spec": spec}, namespace="default"
    )
    assert 'service "judge" has no port 8443' in await refusal(client)
