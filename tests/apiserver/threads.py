"""A server in a thread, for tests that drive it with other programs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from hekla.apiserver.server import ApiServer, Config
from hekla.units.objects import Object

T = TypeVar("T")
DEADLINE_S = 120.0


@dataclass
class ServerThread:
    """A running server and its event loop."""

    server: ApiServer
    loop: asyncio.AbstractEventLoop

    @property
    def kubeconfig(self) -> Path:
        return self.server.kubeconfig

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(DEADLINE_S)

    def create(self, api_version: str, kind: str, obj: Object) -> Object:
        """Store an object directly."""
        served = self.server.registry.by_kind(api_version, kind)
        assert served is not None, f"{api_version} {kind} is not served"
        namespace = obj["metadata"].get("namespace", "")
        return self.do(self.server.resources.create(served, namespace, obj)).obj


@contextlib.contextmanager
def running_server(data_dir: Path) -> Iterator[ServerThread]:
    """Run a server until the block ends."""
    started: Future[ServerThread] = Future()
    stopping: Future[asyncio.Event] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        stopping.set_result(stop)
        async with ApiServer(Config(data_dir=data_dir)) as server:
            started.set_result(ServerThread(server, asyncio.get_running_loop()))
            await stop.wait()

    def run() -> None:
        try:
            uvloop.run(serve())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run, name="apiserver")
    thread.start()
    try:
        running = started.result(DEADLINE_S)
        yield running
        running.loop.call_soon_threadsafe(stopping.result().set)
    finally:
        if started.done() and started.exception() is None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                started.result().loop.call_soon_threadsafe(stopping.result().set)
        thread.join(DEADLINE_S)
