"""API servers for tests: in-process, or a separate process that can be killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hekla.apiserver.server import ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.client import Client


class ServerProcess:
    """A server process that a test kills and restarts on the same data."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hekla.apiserver", "--data-dir", str(self.data_dir)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        assert self.address, "the server did not start"

    def kill(self) -> None:
        """Send SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self._reap()

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self._reap()

    def _reap(self) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        code = self.process.wait(120)
        self.process.stdout.close()
        self.process = None
        return code

    def client(self) -> Client:
        return Client(kubeconfig.load(self.data_dir / "kubeconfig"), component="test")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    """An in-process server."""
    async with ApiServer(Config(data_dir=tmp_path / "data")) as running:
        yield running


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    """An administrator's client of that server."""
    async with Client(kubeconfig.load(server.kubeconfig), component="test") as made:
        yield made


@pytest.fixture
def server_process(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "data")
    yield process
    if process.process is not None:
        process.kill()
