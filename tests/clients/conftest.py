"""The clusters of tests/realkube, and the Python environment of the clients."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tools.clients import python_clients

from tests.realkube.backends import Backend
from tests.realkube.conftest import backend, client, namespace

__all__ = ["backend", "client", "namespace"]
LIMIT_S = 300.0
Run = Callable[..., str]


@pytest.fixture(scope="session")
def clients() -> Path:
    """The programs of the clients; installed on first use."""
    return python_clients() / "bin"


@pytest.fixture
def environment(backend: Backend, namespace: str, clients: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a client: a kubeconfig with the namespace of the test."""
    content = yaml.safe_load(backend.kubeconfig.read_text())
    content["contexts"][0]["context"]["namespace"] = namespace
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "HOME": str(tmp_path),
        "KUBECONFIG": str(path),
        "PATH": f"{clients}{os.pathsep}{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
    }


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Run:
    """Run a client program and return its output. A failure fails the test."""

    def call(*words: str) -> str:
        done = subprocess.run(
            words,
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        said = f"{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, said[-6000:]
        return done.stdout

    return call
