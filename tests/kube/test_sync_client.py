"""The synchronous client: same verbs, same errors, quick to import."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any

import pytest
from aiohttp import web

from hekla.kube import errors
from hekla.kube.credentials import Auth, FixedCredentials
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.resources import CONFIGMAPS, JOBS, PODGROUPS, PODS
from hekla.kube.sync_client import SyncClient
from tests.kube.fake_server import FakeServer, Pki

POD_PATH = "/api/v1/pods"


@pytest.fixture
def naps() -> list[float]:
    return []


@pytest.fixture
def sync(
    server: FakeServer, make_config: Callable[..., ClusterConfig], naps: list[float]
) -> Iterator[SyncClient]:
    with SyncClient(make_config(server.url), random=Random(1), sleep=naps.append) as client:
        yield client


async def run(work: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run in a thread: the server runs on this event loop."""
    return await asyncio.wait_for(asyncio.to_thread(work, *args, **options), 60)


async def test_verbs_send_the_expected_requests(sync: SyncClient, server: FakeServer) -> None:
    def story() -> None:
        sync.create(PODS, {"metadata": {"name": "a", "namespace": "ml"}, "spec": {"x": 1}})
        assert sync.get(PODS, "a", namespace="ml")["spec"] == {"x": 1}
        assert sync.find(PODS, "b", namespace="ml") is None
        sync.patch(PODS, "a", {"spec": {"y": 2}}, namespace="ml")
        sync.patch_status(PODS, "a", {"phase": "Running"}, namespace="ml")
        pod = sync.get(PODS, "a", namespace="ml")
        assert pod["spec"] == {"x": 1, "y": 2}
        assert pod["status"] == {"phase": "Running"}
        pod["spec"] = {"z": 3}
        assert sync.replace(PODS, pod)["spec"] == {"z": 3}
        with pytest.raises(errors.Conflict):
            sync.patch(PODS, "a", {"spec": {}}, namespace="ml", expect="1")
        assert sync.delete(PODS, "a", namespace="ml", uid=pod["metadata"]["uid"])
        assert not sync.delete(PODS, "a", namespace="ml", missing_ok=True)

    await run(story)


async def test_one_connection_serves_many_requests(sync: SyncClient, server: FakeServer) -> None:
    peers = set()

    async def note(request: web.Request) -> None:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))

    for _ in range(5):
        server.script_call(note)
    await run(lambda: [sync.find(PODS, "a") for _ in range(5)])
    assert len(peers) == 1


async def test_list_is_paginated_and_restarts_when_pages_expire(
    sync: SyncClient, server: FakeServer
) -> None:
    for number in range(4):
        server.put(POD_PATH, f"p{number}", "ml")
    assert len(await run(sync.list, PODS, page_size=3)) == 4

    async def ordinary(request: web.Request) -> None:
        return None

    async def expire(request: web.Request) -> None:
        server.pages.clear()
        server.remove(POD_PATH, "p0", "ml")

    server.script_call(ordinary)
    server.script_call(expire)
    listing = await run(sync.list, PODS, page_size=2)
    assert [pod["metadata"]["name"] for pod in listing] == ["p1", "p2", "p3"]


async def test_apply_and_in_place_status_patch(sync: SyncClient, server: FakeServer) -> None:
    server.put("/api/v1/configmaps", "c", "default")
    server.put("/apis/scheduling.volcano.sh/v1beta1/podgroups", "g", "default")
    await run(sync.apply, CONFIGMAPS, {"metadata": {"name": "c"}}, field_manager="vcctl")
    assert server.seen[-1].headers["Content-Type"] == "application/apply-patch+yaml"
    await run(sync.patch_status, PODGROUPS, "g", {"phase": "Running"})
    assert server.seen[-1].path.endswith("/podgroups/g")


async def test_watch_yields_events_until_the_server_ends_it(
    sync: SyncClient, server: FakeServer
) -> None:
    path = "/apis/batch.volcano.sh/v1alpha1/jobs"

    def follow() -> tuple[list[str], str]:
        with sync.watch(JOBS, resource_version=str(server.version)) as events:
            return [event.type for event in events], events.resource_version

    following = asyncio.create_task(run(follow))
    await server.watching()
    server.put(path, "j", "ml")
    server.remove(path, "j", "ml")
    server.bookmark(path)
    server.end_watches(path)
    assert await following == (["ADDED", "DELETED"], str(server.version))


async def test_logs_come_in_chunks(sync: SyncClient, server: FakeServer) -> None:
    server.put(POD_PATH, "a", "default")
    server.logs = b"line\n" * 50_000

    def read() -> bytes:
        with sync.logs("a", follow=True) as chunks:
            return b"".join(chunks)

    assert await run(read) == server.logs
    assert server.seen[-1].query == {"follow": "true"}


async def test_throttled_request_waits_for_retry_after(
    sync: SyncClient, server: FakeServer, naps: list[float]
) -> None:
    server.script(429, headers={"Retry-After": "7"})
    await run(sync.find, PODS, "a")
    assert len(naps) == 1
    assert 7.0 <= naps[0] <= 7.1


async def test_only_reads_are_retried_after_a_lost_connection(
    sync: SyncClient, server: FakeServer, naps: list[float]
) -> None:
    server.script_drop()
    server.put(POD_PATH, "a", "default")
    assert await run(sync.get, PODS, "a")
    server.script_drop()
    with pytest.raises(errors.ConnectionLost):
        await run(sync.create, PODS, {"metadata": {"name": "b"}})
    assert len(naps) == 1


async def test_refused_connection_is_reported(make_config: Callable[..., ClusterConfig]) -> None:
    client = SyncClient(make_config("http://127.0.0.1:1"), sleep=lambda seconds: None)
    where = "cannot connect to http://127.0.0.1:1.*: Connection refused"
    with pytest.raises(errors.ConnectionLost, match=where) as caught:
        client.get(PODS, "a")
    assert not caught.value.established


async def test_response_beyond_the_limit_is_refused(
    server: FakeServer, make_config: Callable[..., ClusterConfig]
) -> None:
    server.script(200, b"x" * 5000)
    with SyncClient(make_config(server.url), max_body_bytes=1000) as client:
        with pytest.raises(errors.ResponseTooLarge):
            await run(client.get, PODS, "a")
        server.put(POD_PATH, "a", "default")
        assert await run(client.get, PODS, "a")  # the connection is still usable


async def test_compressed_response_is_limited_by_its_decompressed_size(
    server: FakeServer, make_config: Callable[..., ClusterConfig]
) -> None:
    bomb = gzip.compress(b" " * 10_000_000)
    server.script(200, bomb, headers={"Content-Encoding": "gzip"})
    with (
        SyncClient(make_config(server.url), max_body_bytes=100_000) as client,
        pytest.raises(errors.ResponseTooLarge),
    ):
        await run(client.get, PODS, "a")
    pod = gzip.compress(json.dumps({"metadata": {"name": "z"}}).encode())
    server.script(200, pod, headers={"Content-Encoding": "gzip"})
    with SyncClient(make_config(server.url)) as client:
        assert await run(client.get, PODS, "z") == {"metadata": {"name": "z"}}


async def test_tls_verifies_the_server_and_sends_the_client_certificate(
    serve_tls: Callable[..., Awaitable[FakeServer]], pki: Pki
) -> None:
    server = await serve_tls(verify_client=True)
    server.put(POD_PATH, "a", "default")
    mine = FixedCredentials(Auth(certificate=pki.client))
    config = ClusterConfig(server=server.url, ca_pem=pki.ca_pem, credentials=mine)
    with SyncClient(config) as client:
        assert await run(client.get, PODS, "a")
        assert await run(client.get, PODS, "a")
    by_name = ClusterConfig(
        server=server.url, ca_pem=pki.ca_pem, credentials=mine, tls_server_name="api.internal"
    )
    with SyncClient(by_name) as client:
        assert await run(client.get, PODS, "a")
    wrong_name = ClusterConfig(
        server=server.url, ca_pem=pki.ca_pem, credentials=mine, tls_server_name="other.internal"
    )
    with SyncClient(wrong_name) as client, pytest.raises(errors.TlsError):
        await run(client.get, PODS, "a")


async def test_a_slow_server_is_a_timeout(
    server: FakeServer, make_config: Callable[..., ClusterConfig]
) -> None:
    forever = asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        await forever.wait()
        return web.Response()

    naps: list[float] = []
    for _ in range(5):
        server.script_call(hang)
    with (
        SyncClient(make_config(server.url), timeout_s=0.02, sleep=naps.append) as client,
        pytest.raises(errors.Timeout),
    ):
        await run(client.get, PODS, "a")
    assert len(naps) == 4, "between five attempts"


def test_sync_client_imports_neither_aiohttp_nor_asyncio_nor_numpy() -> None:
    script = (
        "import sys, hekla.kube.sync_client as _;"
        "print([name for name in ('aiohttp', 'asyncio', 'numpy') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert found.stdout.strip() == "[]", found.stderr
