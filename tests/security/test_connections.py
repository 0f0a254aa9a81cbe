"""Silent, idle and unread connections: others are served, and memory stays bounded."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from tools.waiting import until

from hekla.apiserver.endpoints import watch
from hekla.apiserver.server import ADMIN_SOCKET, ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.resources import CONFIGMAPS
from hekla.web.connections import ConnectionLimits, Connections

LIMITS = ConnectionLimits(total=200, pending=50, handshake_s=300.0, unread_s=300.0)
OBJECT_BYTES = 200_000
OBJECTS = 60


@contextlib.asynccontextmanager
async def serving(tmp_path: Path, limits: ConnectionLimits) -> AsyncIterator[ApiServer]:
    async with ApiServer(Config(data_dir=tmp_path / "data", connections=limits)) as server:
        yield server


async def silent(server: ApiServer, number: int) -> list[socket.socket]:
    """Open connections that never send a byte."""
    opened = []
    loop = asyncio.get_running_loop()
    for _ in range(number):
        made = socket.socket()
        made.setblocking(False)
        await loop.sock_connect(made, ("127.0.0.1", server.port))
        opened.append(made)
    return opened


def context_of(server: ApiServer) -> ssl.SSLContext:
    return ssl.create_default_context(
        cadata=(server.config.data_dir / "pki" / "ca.crt").read_text()
    )


def token_of(server: ApiServer) -> str:
    return (server.config.data_dir / "pki" / "admin.token").read_text().strip()


async def get(server: ApiServer, path: str) -> int:
    """Make a request on a new connection."""
    connector = aiohttp.TCPConnector(ssl=context_of(server), force_close=True)
    headers = {"Authorization": f"Bearer {token_of(server)}"}
    async with (
        aiohttp.ClientSession(server.address, connector=connector, headers=headers) as session,
        session.get(path) as response,
    ):
        return response.status


async def test_silent_connections_make_room_for_a_request(tmp_path: Path) -> None:
    async with serving(tmp_path, LIMITS) as server:
        opened = await silent(server, 1_100)
        assert await get(server, "/api/v1/namespaces") == 200
        gate = server._web.connections
        assert gate.open <= LIMITS.total
        assert gate.dropped + gate.refused >= 1_100 - LIMITS.total
        for each in opened:
            each.close()


async def test_connections_without_a_request_make_room_too(tmp_path: Path) -> None:
    async with serving(tmp_path, LIMITS) as server:
        context = context_of(server)
        streams = [
            await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
            for _ in range(LIMITS.pending + 20)
        ]
        assert await get(server, "/api/v1/namespaces") == 200
        assert server._web.connections.dropped >= 20
        for _, writer in streams:
            writer.close()


async def test_idle_connections_of_strangers_make_room(tmp_path: Path) -> None:
    async with serving(tmp_path, LIMITS) as server:
        context = context_of(server)
        writers = []
        for _ in range(LIMITS.total + 20):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            writers.append(writer)
        assert await get(server, "/api/v1/namespaces") == 200
        assert server._web.connections.open <= LIMITS.total
        for writer in writers:
            writer.close()


async def test_handshake_that_does_not_end_is_closed(tmp_path: Path) -> None:
    async with serving(tmp_path, ConnectionLimits(handshake_s=0.05)) as server:
        [opened] = await silent(server, 1)
        assert await asyncio.get_running_loop().sock_recv(opened, 1) == b""
        opened.close()


async def test_administrator_has_a_socket_of_its_own(tmp_path: Path) -> None:
    limits = ConnectionLimits(total=0)
    async with serving(tmp_path, limits) as server:
        with pytest.raises(aiohttp.ClientError):
            await get(server, "/api/v1/namespaces")
        path = server.config.data_dir / ADMIN_SOCKET
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        headers = {"Authorization": f"Bearer {token_of(server)}"}
        async with aiohttp.ClientSession(
            "http://admin", connector=aiohttp.UnixConnector(str(path))
        ) as session:
            async with session.get("/api/v1/namespaces", headers=headers) as response:
                assert response.status == 200
            async with session.get("/api/v1/namespaces") as response:
                assert response.status == 401  # the socket gives no rights


def test_address_other_than_loopback_has_a_limit() -> None:
    gate = Connections(ConnectionLimits(per_address=2))
    made = [socket.socket() for _ in range(4)]
    assert [gate.admit(each, "10.0.0.1") for each in made[:3]] == [True, True, False]
    assert gate.admit(made[3], "10.0.0.2")
    gate.release("10.0.0.1")
    assert gate.admit(made[2], "10.0.0.1")
    for each in made:
        each.close()


async def fill(server: ApiServer) -> None:
    async with Client(kubeconfig.load(server.kubeconfig), component="test") as client:
        for number in range(OBJECTS):
            body = {"metadata": {"name": f"m{number}"}, "data": {"a": "x" * OBJECT_BYTES}}
            await client.create(CONFIGMAPS, body, namespace="default")


async def unread(server: ApiServer, path: str) -> asyncio.StreamWriter:
    """Send a request and read nothing but the first byte of the answer."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", server.port, ssl=context_of(server), limit=1
    )
    token = token_of(server)
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    )
    await reader.readexactly(1)
    return writer


MAPS = "/api/v1/namespaces/default/configmaps"


async def test_unread_watches_and_lists_render_little_and_hold_few_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered = 0
    original = watch.Watch._line

    def line(self: watch.Watch, kind: bytes, body: bytes) -> bytes:
        nonlocal rendered
        rendered += len(body)
        return original(self, kind, body)

    monkeypatch.setattr(watch.Watch, "_line", line)
    async with serving(tmp_path, LIMITS) as server:
        await fill(server)
        writers = [await unread(server, f"{MAPS}?watch=1") for _ in range(10)]
        writers += [await unread(server, MAPS) for _ in range(10)]
        assert await get(server, "/api/v1/namespaces") == 200
        # All ten would render 120 MB. The kernel takes some megabytes for each socket.
        assert rendered < 10 * OBJECTS * OBJECT_BYTES * 0.9
        held = server._web.connections.unread_bytes
        assert 0 < held < 20 * (OBJECT_BYTES + watch.CHUNK) * 4
        for writer in writers:
            writer.transport.abort()


async def test_longest_unread_client_is_cut_when_all_hold_too_much(tmp_path: Path) -> None:
    limits = ConnectionLimits(unread_bytes=1_000_000, unread_s=300.0)
    async with serving(tmp_path, limits) as server:
        await fill(server)
        writers = [await unread(server, f"{MAPS}?watch=1") for _ in range(12)]
        gate = server._web.connections
        assert await get(server, "/api/v1/namespaces") == 200
        assert gate.cut > 0
        assert gate.unread_bytes <= limits.unread_bytes
        assert b"hekla_clients_cut" in server.metrics.render()
        for writer in writers:
            writer.transport.abort()


async def test_client_that_reads_nothing_for_long_is_cut(tmp_path: Path) -> None:
    async with serving(tmp_path, ConnectionLimits(unread_s=0.01)) as server:
        await fill(server)
        writer = await unread(server, f"{MAPS}?watch=1")
        gate = server._web.connections
        await asyncio.to_thread(until, lambda: gate.cut > 0)
        assert gate.unread_bytes == 0
        writer.transport.abort()
