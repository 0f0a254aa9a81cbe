"""Fixtures: the fake API server, clients of it, clocks and certificates."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any

import pytest
from cryptography import x509

from hekla.kube.client import Client
from hekla.kube.credentials import ClientCertificate
from hekla.kube.kubeconfig import ClusterConfig
from hekla.units.clock import ManualClock
from tests.kube.fake_server import (
    FakeServer,
    HastyClock,
    Pki,
    _certificate,
    _key_pem,
    _pem,
    _serve,
    config_for,
)


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    """The fake API server over plain HTTP."""
    fake = FakeServer()
    runner, fake.url = await _serve(fake)
    yield fake
    await runner.cleanup()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def client(server: FakeServer) -> AsyncIterator[Client]:
    """A client of the fake server without back-off delays."""
    made = Client(config_for(server.url), clock=HastyClock(), random=Random(1))
    yield made
    await made.close()


@pytest.fixture
def naps(client: Client) -> list[float]:
    """The back-off delays of the client."""
    hasty = client.clock
    assert isinstance(hasty, HastyClock)
    return hasty.naps


@pytest.fixture(scope="session")
def pki() -> Pki:
    authority = _certificate("test authority", None)
    other = _certificate("another authority", None)
    loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    served, served_key = _certificate("server", authority, loopback, x509.DNSName("api.internal"))
    mine, mine_key = _certificate("client", authority)
    theirs, theirs_key = _certificate("client", other)
    return Pki(
        ca_pem=_pem(authority[0]),
        server_pem=_pem(served) + _key_pem(served_key),
        client=ClientCertificate(_pem(mine), _key_pem(mine_key)),
        stranger=ClientCertificate(_pem(theirs), _key_pem(theirs_key)),
    )


@pytest.fixture
async def serve_tls(pki: Pki, tmp_path: Any) -> AsyncIterator[Callable[..., Awaitable[FakeServer]]]:
    """Start the fake server over TLS: `await serve_tls(verify_client=True)`."""
    runners = []

    async def start(**options: Any) -> FakeServer:
        fake = FakeServer()
        runner, fake.url = await _serve(fake, pki.server_context(tmp_path, **options))
        runners.append(runner)
        return fake

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
def make_config() -> Callable[..., ClusterConfig]:
    return config_for


@pytest.fixture
def hasty_clock() -> HastyClock:
    return HastyClock()
