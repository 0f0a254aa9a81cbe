"""Probes over HTTP, with and without TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from hekla.web.probes import Probes
from hekla.web.server import WebServer


async def numbers() -> bytes:
    return b"a 1\n"


class Health:
    wrong = ""

    def __call__(self) -> str:
        return self.wrong


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def get(session: aiohttp.ClientSession, url: str, **options: Any) -> tuple[int, str]:
    async with session.get(url, **options) as answer:
        return answer.status, await answer.text()


async def test_probes_report_errors_and_serve_nothing_else(
    session: aiohttp.ClientSession,
) -> None:
    health = Health()
    app = Probes({"healthz": health}, numbers)
    async with WebServer(app, certificate=None, key=None) as server:
        assert server.address.startswith("http://127.0.0.1:")
        assert await get(session, server.address + "/healthz") == (200, "ok\n")
        health.wrong = "a cycle hangs"
        assert await get(session, server.address + "/healthz") == (503, "a cycle hangs\n")
        assert await get(session, server.address + "/metrics") == (200, "a 1\n")
        for path in ("/", "/healthz/", "/debug/pprof", "/readyz"):
            assert (await get(session, server.address + path))[0] == 404
        async with session.post(server.address + "/healthz", data=b"x") as answer:
            assert answer.status == 405
        async with session.head(server.address + "/metrics") as answer:
            assert (answer.status, await answer.read()) == (200, b"")
