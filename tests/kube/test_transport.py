"""Retries, limits, timeouts, TLS and credentials over real sockets."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web

from hekla import __version__
from hekla.kube import calls, errors
from hekla.kube.client import Client
from hekla.kube.credentials import (
    Auth,
    ExecCredentials,
    FixedCredentials,
    TokenFileCredentials,
)
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.resources import PODS
from hekla.kube.retries import RetryPolicy
from hekla.kube.transport import RateLimit
from hekla.units.clock import ManualClock
from tests.kube.fake_server import FakeServer, HastyClock, Pki

POD_PATH = "/api/v1/pods"
BODY = {"metadata": {"name": "b"}}


async def _find(client: Client) -> dict[str, Any] | None:
    return await client.find(PODS, "a")


async def test_user_agent_and_token_are_sent_in_headers(client: Client, server: FakeServer) -> None:
    await client.find(PODS, "a")
    headers = server.seen[-1].headers
    assert headers["User-Agent"] == f"hekla/{__version__} (client)"
    assert headers["Authorization"] == "Bearer s3cr3t-t0ken"
    assert headers["Accept-Encoding"] == "identity"


async def test_retry_after_is_honoured(
    client: Client, server: FakeServer, naps: list[float]
) -> None:
    server.put(POD_PATH, "a", "default")
    server.script(429, headers={"Retry-After": "3"})
    await client.get(PODS, "a")
    assert len(naps) == 1
    assert 3.0 <= naps[0] <= 3.1


async def test_back_off_grows_and_retries_end(
    client: Client, server: FakeServer, naps: list[float]
) -> None:
    server.script(503, times=10)
    with pytest.raises(errors.ServerError):
        await client.get(PODS, "a")
    assert len(server.seen) == 5
    assert naps[0] < naps[2] < naps[3]


async def test_fence_blocks_writes_and_retries(
    client: Client, server: FakeServer, naps: list[float]
) -> None:
    """The first attempt is sent; before the second another process may be the leader."""
    server.put(POD_PATH, "a", "default")
    server.script(429, times=5)
    asked = []

    def fence() -> bool:
        asked.append(len(server.seen))
        return len(asked) < 2

    client.transport._fence = fence
    with pytest.raises(errors.Fenced, match="not sent"):
        await client.delete(PODS, "a", namespace="default")
    assert asked == [0, 1]
    assert [request.method for request in server.seen] == ["DELETE"]
    await client.find(PODS, "a", namespace="default")
    assert len(asked) == 2, "reads are not fenced"


async def test_too_long_retry_after_is_not_waited_for(
    client: Client, server: FakeServer, naps: list[float]
) -> None:
    server.script(429, headers={"Retry-After": "3600"})
    with pytest.raises(errors.TooManyRequests):
        await client.get(PODS, "a")
    assert naps == []


RESENT = {
    "a read after a 500": ("GET", 500, True),
    "a read after a 504": ("GET", 504, True),
    "a create after a 429": ("POST", 429, True),
    "a create after a 503": ("POST", 503, True),
    "a create after a 500": ("POST", 500, False),
    "a replace after a 500": ("PUT", 500, True),
    "a delete after a 502": ("DELETE", 502, True),
    "a read after a 403": ("GET", 403, False),
    "a replace after a 409": ("PUT", 409, False),
}


@pytest.mark.parametrize("case", RESENT)
async def test_retries_by_method_and_status(client: Client, server: FakeServer, case: str) -> None:
    method, status, want_resent = RESENT[case]
    server.put(POD_PATH, "a", "default")
    server.script(status)
    name = None if method == "POST" else "a"
    path = calls.path_of(PODS, "default", name)
    body = calls.encode(BODY) if method in ("POST", "PUT") else None
    call = calls.Call(method, path, (), body, idempotent=method != "POST")
    if want_resent:
        await client.call(call)
    else:
        with pytest.raises(errors.ApiError):
            await client.call(call)
    assert len(server.seen) == (2 if want_resent else 1)


async def test_read_is_retried_after_a_lost_connection(client: Client, server: FakeServer) -> None:
    server.put(POD_PATH, "a", "default")
    server.script_drop(2)
    assert await client.get(PODS, "a")


async def test_create_is_not_retried_after_a_lost_connection(
    client: Client, server: FakeServer, naps: list[float]
) -> None:
    server.script_drop()
    with pytest.raises(errors.ConnectionLost) as caught:
        await client.create(PODS, BODY)
    assert caught.value.established
    assert naps == []


async def test_json_patch_is_not_retried_after_a_lost_connection(
    client: Client, server: FakeServer, naps: list[float]
) -> None:
    server.script_drop()
    with pytest.raises(errors.ConnectionLost):
        await client.patch(PODS, "a", [{"op": "add", "path": "/x/-", "value": 1}], kind="json")
    assert naps == []


async def test_create_is_retried_after_a_refused_connection(
    make_config: Callable[..., ClusterConfig], hasty_clock: HastyClock
) -> None:
    async with Client(make_config("http://127.0.0.1:1"), clock=hasty_clock) as client:
        with pytest.raises(errors.ConnectionLost) as caught:
            await client.create(PODS, BODY)
    assert not caught.value.established
    assert len(hasty_clock.naps) == 4


async def test_response_beyond_the_limit_is_refused(
    server: FakeServer, make_config: Callable[..., ClusterConfig]
) -> None:
    server.script(200, b"x" * 5000)
    async with Client(make_config(server.url), max_body_bytes=1000) as client:
        with pytest.raises(errors.ResponseTooLarge, match="1000 bytes"):
            await client.get(PODS, "a")


async def test_endless_response_without_length_is_refused_at_the_limit(
    server: FakeServer, make_config: Callable[..., ClusterConfig]
) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 1000)
        except ConnectionError:
            return response

    server.script_call(endless)
    async with Client(make_config(server.url), max_body_bytes=10_000) as client:
        with pytest.raises(errors.ResponseTooLarge):
            await client.get(PODS, "a")


async def connected(client: Client, timeout_s: float) -> None:
    """Use a short timeout from here on, not while connecting."""
    await client.list(PODS)
    client.transport.timeout_s = timeout_s


async def test_slow_response_is_a_timeout_and_a_write_is_not_retried(
    server: FakeServer, make_config: Callable[..., ClusterConfig], hasty_clock: HastyClock
) -> None:
    forever = asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        await forever.wait()
        return web.Response()

    async with Client(make_config(server.url), clock=hasty_clock) as client:
        await connected(client, 0.02)
        server.script_call(hang)
        with pytest.raises(errors.Timeout):
            await client.create(PODS, BODY)
    assert hasty_clock.naps == [], "there is one before the second attempt"


async def test_idle_stream_is_a_timeout(
    server: FakeServer, make_config: Callable[..., ClusterConfig]
) -> None:
    async with Client(make_config(server.url)) as client:
        call = calls.watch(PODS, resource_version=str(server.version))
        async with client.transport.stream(call, idle_timeout_s=0.02) as chunks:
            with pytest.raises(errors.Timeout):
                await anext(chunks)


async def test_a_watch_that_never_begins_is_a_timeout(
    server: FakeServer, make_config: Callable[..., ClusterConfig], hasty_clock: HastyClock
) -> None:
    forever = asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        await forever.wait()
        return web.Response()

    for _ in range(5):
        server.script_call(hang)
    async with Client(make_config(server.url), timeout_s=0.02, clock=hasty_clock) as client:
        with pytest.raises(errors.Timeout):
            await client.watch(PODS).__aenter__()
    assert len(hasty_clock.naps) == 4, "between five attempts"


async def test_logs_may_begin_late(
    server: FakeServer, make_config: Callable[..., ClusterConfig]
) -> None:
    asked, speak = asyncio.Event(), asyncio.Event()

    async def silent_at_first(request: web.Request) -> web.StreamResponse:
        asked.set()
        await speak.wait()
        return web.Response(body=b"at last")

    async with Client(make_config(server.url)) as client:
        await connected(client, 0.02)
        server.script_call(silent_at_first)
        server.script_call(silent_at_first)
        logs = client.logs("a")
        opening = asyncio.create_task(logs.__aenter__())
        await asked.wait()
        with pytest.raises(errors.Timeout):  # ordinary requests time out
            await client.create(PODS, BODY)
        speak.set()
        chunks = await opening
        assert await anext(chunks) == b"at last"
        with pytest.raises(RuntimeError, match="already open"):
            await logs.__aenter__()
        logs.close()


async def test_redirect_is_not_followed_with_the_token(client: Client, server: FakeServer) -> None:
    server.script(302, b"", headers={"Location": "http://127.0.0.1:1/elsewhere"})
    with pytest.raises(errors.ApiError) as caught:
        await client.get(PODS, "a")
    assert caught.value.status == 302


async def test_closed_client_raises(client: Client) -> None:
    await client.close()
    with pytest.raises(errors.ConnectionLost, match="closed"):
        await client.get(PODS, "a")


async def test_a_rate_limit_spreads_requests_out(
    server: FakeServer, make_config: Callable[..., ClusterConfig]
) -> None:
    clock = ManualClock()
    limit = RateLimit(per_s=2.0, burst=1, clock=clock)
    async with Client(make_config(server.url), clock=clock, rate_limit=limit) as client:
        tasks = [asyncio.create_task(_find(client)) for _ in range(3)]
        await clock.settle()
        assert clock.sleepers == 2
        await clock.advance(1.0)
        await asyncio.gather(*tasks)
    assert len(server.seen) == 3


# TLS


async def test_tls_with_the_configured_ca_works(
    serve_tls: Callable[..., Awaitable[FakeServer]], pki: Pki
) -> None:
    server = await serve_tls()
    server.put(POD_PATH, "a", "default")
    async with Client(ClusterConfig(server=server.url, ca_pem=pki.ca_pem)) as client:
        assert await client.get(PODS, "a")


async def test_unknown_ca_is_refused_and_not_retried(
    serve_tls: Callable[..., Awaitable[FakeServer]], hasty_clock: HastyClock
) -> None:
    server = await serve_tls()
    async with Client(ClusterConfig(server=server.url), clock=hasty_clock) as client:
        with pytest.raises(errors.TlsError, match="certificate"):
            await client.get(PODS, "a")
    assert hasty_clock.naps == []
    assert server.seen == []


async def test_verification_can_be_switched_off(
    serve_tls: Callable[..., Awaitable[FakeServer]],
) -> None:
    server = await serve_tls()
    server.put(POD_PATH, "a", "default")
    async with Client(ClusterConfig(server=server.url, insecure=True)) as client:
        assert await client.get(PODS, "a")


async def test_the_server_name_can_differ_from_the_address(
    serve_tls: Callable[..., Awaitable[FakeServer]], pki: Pki
) -> None:
    server = await serve_tls()
    server.put(POD_PATH, "a", "default")
    good = ClusterConfig(server=server.url, ca_pem=pki.ca_pem, tls_server_name="api.internal")
    async with Client(good) as client:
        assert await client.get(PODS, "a")
    bad = ClusterConfig(server=server.url, ca_pem=pki.ca_pem, tls_server_name="other.internal")
    async with Client(bad) as client:
        with pytest.raises(errors.TlsError):
            await client.get(PODS, "a")


async def test_client_certificate_is_sent(
    serve_tls: Callable[..., Awaitable[FakeServer]], pki: Pki
) -> None:
    server = await serve_tls(verify_client=True)
    server.put(POD_PATH, "a", "default")
    mine = FixedCredentials(Auth(certificate=pki.client))
    config = ClusterConfig(server=server.url, ca_pem=pki.ca_pem, credentials=mine)
    async with Client(config) as client:
        assert await client.get(PODS, "a")


async def test_untrusted_client_certificate_is_refused(
    serve_tls: Callable[..., Awaitable[FakeServer]], pki: Pki, hasty_clock: HastyClock
) -> None:
    server = await serve_tls(verify_client=True)
    theirs = FixedCredentials(Auth(certificate=pki.stranger))
    config = ClusterConfig(server=server.url, ca_pem=pki.ca_pem, credentials=theirs)
    async with Client(config, clock=hasty_clock) as client:
        with pytest.raises(errors.TransportError):
            await client.get(PODS, "a")


# Credentials


async def test_a_rotated_token_file_is_read_again_after_a_401(
    server: FakeServer, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("old\n")
    credentials = TokenFileCredentials(path)
    credentials.current()
    path.write_text("new\n")
    server.token = "new"
    server.put(POD_PATH, "a", "default")
    async with Client(ClusterConfig(server=server.url, credentials=credentials)) as client:
        assert await client.get(PODS, "a")
    assert [seen.headers["Authorization"] for seen in server.seen] == ["Bearer old", "Bearer new"]


async def test_second_401_is_final(server: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("wrong")
    server.token = "right"
    config = ClusterConfig(server=server.url, credentials=TokenFileCredentials(path))
    async with Client(config) as client:
        with pytest.raises(errors.Unauthorized):
            await client.get(PODS, "a")
    assert len(server.seen) == 2


def plugin(tmp_path: Any, body: str) -> str:
    path = tmp_path / "plugin"
    path.write_text(f"#!/bin/sh\necho x >> {tmp_path}/runs\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


async def test_a_plugin_runs_once_for_many_requests_and_again_after_a_401(
    server: FakeServer, tmp_path: Path
) -> None:
    command = plugin(
        tmp_path,
        'n=$(wc -l < "$(dirname "$0")/runs" | tr -d " ")\n'
        'echo "{\\"apiVersion\\":\\"client.authentication.k8s.io/v1\\",'
        '\\"status\\":{\\"token\\":\\"token-$n\\"}}"',
    )
    server.token = "token-1"
    server.put(POD_PATH, "a", "default")
    config = ClusterConfig(server=server.url, credentials=ExecCredentials(command))
    async with Client(config) as client:
        await asyncio.gather(*(client.get(PODS, "a") for _ in range(10)))
        assert (tmp_path / "runs").read_text() == "x\n"
        server.token = "token-2"
        await asyncio.gather(*(client.get(PODS, "a") for _ in range(10)))
    assert (tmp_path / "runs").read_text() == "x\nx\n"


async def test_no_error_contains_the_token(
    server: FakeServer,
    make_config: Callable[..., ClusterConfig],
    hasty_clock: HastyClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = make_config(server.url)
    shown = [repr(config), str(config), repr(config.credentials.current())]
    for status in (400, 401, 403, 404, 409, 410, 413, 422, 429, 500, 503):
        server.script(status, b"<html>proxy says no</html>", times=5)
        async with Client(config, clock=hasty_clock, retry=RetryPolicy(attempts=1)) as client:
            with pytest.raises(errors.ApiError) as caught:
                await client.create(PODS, BODY)
        shown += [str(caught.value), repr(caught.value)]
        server.scripts.clear()
    server.script_drop()
    async with Client(config, random=Random(1)) as client:
        with pytest.raises(errors.ConnectionLost) as lost:
            await client.create(PODS, BODY)
    shown += [str(lost.value), repr(lost.value.__cause__), caplog.text]
    assert not any("s3cr3t" in text for text in shown)


async def test_an_address_that_refuses_is_named_with_its_kubeconfig() -> None:
    config = ClusterConfig("http://127.0.0.1:1", source="/home/me/kubeconfig")
    where = "cannot connect to http://127.0.0.1:1 of /home/me/kubeconfig: "
    async with Client(config, retry=RetryPolicy(attempts=1)) as client:
        with pytest.raises(errors.ConnectionLost, match=where):
            await client.get(PODS, "a")
