"""Kill the server process (SIGKILL) under load, repeatedly on the same data.

Writers record what was acknowledged, watchers what they saw and their last resourceVersion. After
every restart all acknowledged writes must exist, no object that a watcher saw may be lost, and
watchers that resume must end with the state of the server.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, Gone, KubeError
from hekla.kube.resources import CONFIGMAPS
from hekla.kube.retries import RetryPolicy

WRITERS, WATCHERS, NAMES = 8, 2, 5
WITHIN_S = 120.0
SPACE = "crash"
LABEL = "crash=yes"


class Broken(AssertionError):
    """An invariant does not hold."""


class Server:
    """The server as a separate process."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._process: subprocess.Popen[str] | None = None

    async def start(self) -> None:
        words = [sys.executable, "-m", "hekla.apiserver", "--data-dir", str(self._data_dir)]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
        assert self._process.stdout is not None
        if not await asyncio.to_thread(self._process.stdout.readline):
            raise Broken("the server does not start again")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def client(self) -> Client:
        config = kubeconfig.load(self._data_dir / "kubeconfig")
        return Client(config, component="crash", retry=RetryPolicy(attempts=1))


@dataclass
class Writer:
    number: int
    random: Random
    known: dict[str, str | None] = field(default_factory=dict)
    doubt: tuple[str, str | None] | None = None
    turn: int = 0
    acknowledged: int = 0

    async def run(self, client: Client) -> None:
        """Write until the server is killed."""
        while True:
            self.turn += 1
            name = f"w{self.number}-{self.random.randrange(NAMES)}"
            value = f"v{self.turn}" if self.random.random() < 0.8 else None
            self.doubt = (name, value)
            try:
                await self._write(client, name, value)
            except ApiError as error:
                raise Broken(f"{name}: refused: {error}") from error
            except KubeError:
                return
            self.known[name], self.doubt = value, None
            self.acknowledged += 1

    async def _write(self, client: Client, name: str, value: str | None) -> None:
        exists = self.known.get(name) is not None
        if value is None:
            if exists:
                await client.delete(CONFIGMAPS, name, namespace=SPACE)
        elif exists:
            await client.patch(CONFIGMAPS, name, {"data": {"v": value}}, namespace=SPACE)
        else:
            meta = {"name": name, "namespace": SPACE, "labels": {"crash": "yes"}}
            await client.create(CONFIGMAPS, {"metadata": meta, "data": {"v": value}})

    def check(self, found: dict[str, str]) -> None:
        """Check that the stored state is the acknowledged one, or that of a write in flight."""
        for name in {*self.known, *([self.doubt[0]] if self.doubt else [])}:
            allowed = {self.known.get(name)}
            if self.doubt is not None and self.doubt[0] == name:
                allowed.add(self.doubt[1])
            if found.get(name) not in allowed:
                raise Broken(f"{name} is {found.get(name)!r}; it must be one of {allowed}")
            self.known[name] = found.get(name)
        self.doubt = None


@dataclass
class Watcher:
    """A watcher that resumes at its last resourceVersion."""

    state: dict[str, tuple[str, int]] = field(default_factory=dict)
    version: str = ""
    relists: int = 0
    events: int = 0

    async def run(self, client: Client) -> None:
        while True:
            try:
                if not self.version:
                    await self._list(client)
                await self._follow(client)
            except Gone:
                self.version = ""
                self.relists += 1
            except ApiError as error:
                raise Broken(f"a watch at {self.version} was refused: {error}") from error
            except KubeError:
                return

    async def _list(self, client: Client) -> None:
        listed = await client.list(CONFIGMAPS, namespace=SPACE, label_selector=LABEL)
        fresh = {e["metadata"]["name"]: _seen(e) for e in listed.items}
        for name, (_, version) in self.state.items():
            if name in fresh and fresh[name][1] < version:
                raise Broken(f"{name} was seen at {version} and is back at {fresh[name][1]}")
        self.state, self.version = fresh, listed.resource_version

    async def _follow(self, client: Client) -> None:
        async with client.watch(
            CONFIGMAPS, namespace=SPACE, label_selector=LABEL, resource_version=self.version
        ) as events:
            async for event in events:
                self.events += 1
                name, seen = event.object["metadata"]["name"], _seen(event.object)
                if seen[1] <= int(self.version):
                    raise Broken(f"an event of {seen[1]} after {self.version}")
                self.version = str(seen[1])
                if event.type == "DELETED":
                    self.state.pop(name, None)
                else:
                    self.state[name] = seen


def _seen(obj: dict[str, object]) -> tuple[str, int]:
    metadata, data = obj["metadata"], obj["data"]
    assert isinstance(metadata, dict)
    assert isinstance(data, dict)
    return str(data["v"]), int(metadata["resourceVersion"])


@dataclass
class Totals:
    kills: int = 0
    acknowledged: int = 0
    events: int = 0
    relists: int = 0


async def run(data_dir: Path, kills: int, seed: int) -> Totals:
    """Kill the server `kills` times; raise Broken if data is lost."""
    random = Random(seed)
    server = Server(data_dir)
    writers = [Writer(number, Random(random.random())) for number in range(WRITERS)]
    watchers = [Watcher() for _ in range(WATCHERS)]
    await server.start()
    try:
        async with server.client() as client:
            await client.create(
                client.resource("v1", "namespaces", kind="Namespace", namespaced=False),
                {"metadata": {"name": SPACE}},
            )
        for number in range(kills):
            await _life(server, writers, watchers, random)
            await server.start()
            await _check(server, writers, watchers, number)
    finally:
        server.kill()
    return Totals(
        kills,
        sum(each.acknowledged for each in writers),
        sum(each.events for each in watchers),
        sum(each.relists for each in watchers),
    )


async def _life(
    server: Server, writers: list[Writer], watchers: list[Watcher], random: Random
) -> None:
    """Run the load and kill the server."""
    async with server.client() as client:
        running: list[Writer | Watcher] = [*writers, *watchers]
        tasks = [asyncio.create_task(each.run(client)) for each in running]
        await asyncio.sleep(random.uniform(0.02, 0.6))
        server.kill()
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), WITHIN_S)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def _check(
    server: Server, writers: list[Writer], watchers: list[Watcher], number: int
) -> None:
    async with server.client() as client:
        listed = await client.list(CONFIGMAPS, namespace=SPACE, label_selector=LABEL)
        found = {each["metadata"]["name"]: _seen(each)[0] for each in listed.items}
        for writer in writers:
            writer.check(found)
        meta = {"name": f"end-{number}", "namespace": SPACE, "labels": {"crash": "yes"}}
        last = await client.create(CONFIGMAPS, {"metadata": meta, "data": {"v": "end"}})
        until = int(last["metadata"]["resourceVersion"])
        found[meta["name"]] = "end"
        following = [asyncio.create_task(each.run(client)) for each in watchers]
        try:
            async with asyncio.timeout(WITHIN_S):
                for each, task in zip(watchers, following, strict=True):
                    while not each.version or int(each.version) < until:
                        if task.done():
                            task.result()
                            raise Broken("a watch ended although the server is there")
                        await asyncio.sleep(0.002)
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
        for each in watchers:
            if {name: value for name, (value, _) in each.state.items()} != found:
                raise Broken(f"after kill {number} a watcher has missed something")
