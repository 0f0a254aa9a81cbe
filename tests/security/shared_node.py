"""A node whose pods run as users of their namespaces."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hekla.apiserver.server import ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.nodeagent import sandbox
from hekla.nodeagent.uid_ranges import user_namespace_support
from tests.nodeagent.conftest import Machine


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Machine]:
    """A node as `hekla up` runs it for several users."""
    if os.geteuid() != 0 or sandbox.isolation_support().isolation != "root":
        pytest.skip("needs root with mount and PID namespaces")
    if reason := user_namespace_support():
        pytest.skip(f"needs user namespaces: {reason}")
    data = tmp_path / "data"
    async with (
        ApiServer(Config(data_dir=data)) as server,
        Client(kubeconfig.load(server.kubeconfig)) as client,
    ):
        made = Machine(server, client, data / "node")
        made.hidden = data
        made.start_agent(pod_user="namespace")
        yield made
        if made._task is not None:
            assert made.agent is not None
            await made.agent.abort(0)
            await made.stop_agent()
