"""A short, seeded part of `make fuzz`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tools.fuzz import api, parsers, streams

from hekla.apiserver.server import ApiServer, Config


@pytest.mark.parametrize("name", parsers.TARGETS)
def test_a_parser_accepts_or_rejects_any_input(name: str) -> None:
    assert parsers.run(name, 300, seed=1) == 300


async def test_invalid_objects_at_the_api_is_refused_and_never_a_500(tmp_path: Path) -> None:
    async with ApiServer(Config(data_dir=tmp_path / "data")) as server:
        totals = await api.run(server, 600, seed=1)
        assert totals.answers[201] + totals.answers[200] > 20, "some of it must get through"
        assert totals.answers[400] + totals.answers[422] > 100


async def test_invalid_objects_at_the_socket_leaves_nothing_behind(tmp_path: Path) -> None:
    async with ApiServer(Config(data_dir=tmp_path / "data")) as server:
        await streams.run(server, 150, seed=1)
        totals = await api.run(server, 50, seed=2)
        assert totals.sent > 0
        async with asyncio.timeout(60):
            flow = server.flowcontrol
            while flow.executing or flow.queued or flow.streams:  # noqa: ASYNC110
                await asyncio.sleep(0)  # dropped connections are processed one by one
