"""kill -9 at any instant: acknowledged writes survive, and the next start needs no repair."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest
from tools.crash import kills

from hekla.kube.client import Client
from hekla.kube.errors import ApiError, KubeError
from hekla.kube.resources import CONFIGMAPS
from tests.apiserver.conftest import ServerProcess

WRITERS = 16


class Writer:
    """Creates, patches and deletes objects, and remembers acknowledged writes."""

    def __init__(self, client: Client, number: int, random: Random) -> None:
        self._client = client
        self._number = number
        self._random = random
        self.acknowledged: dict[str, str | None] = {}
        self.in_doubt: dict[str, set[str | None]] = {}

    async def run(self, acknowledged: asyncio.Semaphore) -> None:
        """Write until the server is gone."""
        turn = 0
        while True:
            turn += 1
            name = f"w{self._number}-{self._random.randrange(5)}"
            value: str | None = f"v{turn}" if self._random.random() < 0.8 else None
            self.in_doubt[name] = {value}
            try:
                await self._write(name, value)
            except ApiError as error:
                raise AssertionError(f"refused: {error}") from error
            except KubeError:
                return
            self.acknowledged[name] = value
            del self.in_doubt[name]
            acknowledged.release()

    async def _write(self, name: str, value: str | None) -> None:
        exists = self.acknowledged.get(name) is not None
        if value is None:
            if exists:
                await self._client.delete(CONFIGMAPS, name, namespace="default")
        elif exists:
            await self._client.patch(CONFIGMAPS, name, {"data": {"v": value}}, namespace="default")
        else:
            body = {"metadata": {"name": name, "namespace": "default"}, "data": {"v": value}}
            await self._client.create(CONFIGMAPS, body)


@pytest.mark.parametrize("seed", range(4))
async def test_acknowledged_writes_survive_kill_9_at_any_instant(
    server_process: ServerProcess, seed: int
) -> None:
    random = Random(seed)
    server_process.start()
    kill_after = random.randrange(50, 1500)
    acknowledged = asyncio.Semaphore(0)
    async with server_process.client() as client:
        writers = [Writer(client, number, Random(random.random())) for number in range(WRITERS)]
        tasks = [asyncio.create_task(writer.run(acknowledged)) for writer in writers]
        for _ in range(kill_after):
            await acknowledged.acquire()
        server_process.kill()
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert not isinstance(result, AssertionError), result
    server_process.start()
    async with server_process.client() as client:
        listed = await client.list(CONFIGMAPS, namespace="default")
        # The server creates one: kube-root-ca.crt.
        found = {i["metadata"]["name"]: i["data"]["v"] for i in listed.items if "v" in i["data"]}
    for writer in writers:
        for name in writer.acknowledged.keys() | writer.in_doubt.keys():
            allowed = {writer.acknowledged.get(name)} | writer.in_doubt.get(name, set())
            assert found.get(name) in allowed, f"{name}: {found.get(name)!r} not in {allowed}"
    assert server_process.stop() == 0


async def test_watchers_that_reconnect_after_kills_miss_no_event(tmp_path: Path) -> None:
    """A short run of `make crash`."""
    totals = await kills.run(tmp_path / "data", kills=3, seed=7)
    assert totals.acknowledged > 0
    assert totals.events > 0
