"""Fixtures: hekla's server and a kube-apiserver for each worker, a namespace for each test.

Commands run in this process. stdout is not a terminal, so tests see the output that scripts get.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from tools.kube.cluster import parts_for
from tools.kube.gobuild import missing

from hekla.cli import main as hekla_main
from hekla.cli.vcctl import main, shortcuts
from hekla.cli.vcctl.commands import run
from hekla.kube import kubeconfig
from hekla.kube.resources import JOBS, NAMESPACES
from hekla.kube.sync_client import SyncClient
from hekla.units.objects import Object
from tests.realkube.backends import embedded_server, real_server


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., Result]


@pytest.fixture(scope="session", params=["embedded", "real"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The kubeconfig of a running server: hekla's, and a real kube-apiserver."""
    start: Callable[[Path], AbstractContextManager[Path]] = embedded_server
    if request.param == "real":
        if reason := missing(parts_for()):
            pytest.skip(reason)
        start = real_server
    with start(tmp_path_factory.mktemp(request.param)) as config:
        yield config


@pytest.fixture
def admin(server: Path) -> Iterator[SyncClient]:
    with SyncClient(kubeconfig.load(server), component="test") as client:
        yield client


@pytest.fixture
def unique() -> str:
    """A unique name for queues, which have no namespace."""
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture
def namespace(admin: SyncClient, unique: str) -> str:
    admin.create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}}
    )
    return unique


@pytest.fixture
def config(server: Path, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubeconfig in $KUBECONFIG with the test's namespace in its context."""
    content = yaml.safe_load(server.read_text())
    content["contexts"][0]["context"]["namespace"] = namespace
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.delenv("HEKLA_DEBUG", raising=False)
    return path


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run any hekla command by its name."""

    def call(program: str, *args: str) -> Result:
        roots: dict[str, click.Command] = {"vcctl": main.vcctl, "hekla": hekla_main.main}
        command = roots.get(program) or getattr(shortcuts, program)
        capsys.readouterr()
        code = run(command, program, args)
        said = capsys.readouterr()
        return Result(code, said.out, said.err)

    return call


@pytest.fixture
def vcctl(call: Run, config: Path) -> Run:
    return lambda *args: call("vcctl", *args)


@pytest.fixture
def tool(call: Run, config: Path) -> Run:
    """Run a tool: `tool("vsub", "-n", "x")`."""
    return call


def job(name: str, *, queue: str = "default", replicas: int = 1, labels: Any = None) -> Object:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "queue": queue,
            "schedulerName": "volcano",
            "tasks": [
                {
                    "name": "worker",
                    "replicas": replicas,
                    "template": {
                        "spec": {
                            "restartPolicy": "Never",
                            "containers": [{"name": "main", "image": "busybox"}],
                        }
                    },
                }
            ],
        },
    }


@pytest.fixture
def make_job(admin: SyncClient, namespace: str) -> Callable[..., Object]:
    """Create a job, optionally in a phase, as a controller would set it."""

    def make(name: str, *, phase: str = "", status: Object | None = None, **more: Any) -> Object:
        made = admin.create(JOBS, job(name, **more), namespace=namespace)
        if phase or status:
            wanted = {**(status or {}), "state": {"phase": phase}}
            made = admin.patch_status(JOBS, name, wanted, namespace=namespace)
        return made

    return make
