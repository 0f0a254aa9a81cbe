"""In-process clients: no port, no TLS, the same authorization."""

from __future__ import annotations

import msgspec
import pytest

from hekla.apiserver.server import ApiServer
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.credentials import Auth, FixedCredentials, with_token
from hekla.kube.errors import Forbidden, Unauthorized
from hekla.kube.resources import CONFIGMAPS


async def test_in_process_client_reads_writes_and_watches(server: ApiServer) -> None:
    config = kubeconfig.load(server.kubeconfig)
    # No server listens there: using the address would fail.
    nowhere = msgspec.structs.replace(config, server="https://127.0.0.1:1")
    async with Client(nowhere, dial=server.dial) as inside, Client(config) as outside:
        listed = await inside.list(CONFIGMAPS, namespace="default")
        body = {"metadata": {"name": "a"}, "data": {"k": "v" * 300_000}}
        await inside.create(CONFIGMAPS, body, namespace="default")
        version = listed.resource_version
        watch = inside.watch(CONFIGMAPS, namespace="default", resource_version=version)
        async with watch as events:
            async for event in events:
                if event.object["metadata"]["name"] == "a":
                    break
        assert event.object["data"] == body["data"]
        assert (await outside.get(CONFIGMAPS, "a", namespace="default"))["data"] == body["data"]


async def test_in_process_client_must_authenticate(server: ApiServer) -> None:
    config = kubeconfig.load(server.kubeconfig)
    anonymous = msgspec.structs.replace(config, credentials=FixedCredentials())
    async with Client(anonymous, dial=server.dial) as client:
        with pytest.raises((Forbidden, Unauthorized)):
            await client.list(CONFIGMAPS, namespace="default")
    guess = with_token(Auth(), "guess", "a test")
    wrong = msgspec.structs.replace(config, credentials=FixedCredentials(guess))
    async with Client(wrong, dial=server.dial) as client:
        with pytest.raises(Unauthorized):
            await client.list(CONFIGMAPS, namespace="default")
