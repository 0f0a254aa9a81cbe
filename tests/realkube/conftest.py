"""A cluster for each back end and worker, and a namespace for each test."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from tools.kube.cluster import parts_for
from tools.kube.gobuild import missing
from tools.kube.parts import KWOK
from tools.waiting import until

from hekla.cli.vcctl import main
from hekla.cli.vcctl.commands import run
from hekla.kube.resources import DEPLOYMENTS, JOB_FLOWS, JOBS, PODGROUPS, PODS
from hekla.kube.sync_client import SyncClient
from tests.realkube.backends import Backend, create_namespace, embedded, real

BACKENDS = {
    "embedded": (embedded, (KWOK,)),
    "real": (real, parts_for(controllers=True)),
}


@pytest.fixture(scope="session", params=BACKENDS)
def backend(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    start, parts = BACKENDS[request.param]
    reason = missing(parts)
    if reason:
        pytest.skip(reason)
    with start(tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture
def client(backend: Backend) -> Iterator[SyncClient]:
    with backend.client() as made:
        yield made


@pytest.fixture
def namespace(client: SyncClient) -> Iterator[str]:
    """A namespace whose pods are deleted afterwards, so the nodes are free for the next test."""
    name = f"t{uuid.uuid4().hex[:8]}"
    create_namespace(client, name)
    yield name
    for kind in (JOBS, PODGROUPS, PODS):  # pytest shows it if the test fails
        for obj in client.list(kind, namespace=name):
            print(kind.kind, obj["metadata"]["name"], json.dumps(obj.get("status")))
    for kind in (JOB_FLOWS, JOBS, DEPLOYMENTS, PODS):
        for obj in client.list(kind, namespace=name):
            client.delete(kind, obj["metadata"]["name"], namespace=name, missing_ok=True)
    until(lambda: not client.list(PODS, namespace=name).items)


@pytest.fixture
def vcctl(
    backend: Backend,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., str]:
    """Run vcctl in the namespace of the test; return its output. A failure fails the test."""
    content = yaml.safe_load(backend.kubeconfig.read_text())
    content["contexts"][0]["context"]["namespace"] = namespace
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    monkeypatch.setenv("KUBECONFIG", str(path))

    def call(*words: str) -> str:
        capsys.readouterr()
        code = run(main.vcctl, "vcctl", words)
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out

    return call
