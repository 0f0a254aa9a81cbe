"""dask-kubernetes: the unmodified operator creates a cluster, and hekla places its pods."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tools.waiting import until

from hekla.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    PODGROUPS,
    SERVICES,
    resource,
)
from hekla.kube.sync_client import SyncClient
from tests.clients.conftest import Run
from tests.clients.standing import RUNS, installed, stands_for
from tests.clients.test_python_clients import PROGRAMS
from tests.realkube.backends import Backend
from tests.realkube.test_jobs import pods

pytestmark = pytest.mark.clients
DASK_CLUSTERS = resource("kubernetes.dask.org/v1", "daskclusters", kind="DaskCluster")


@pytest.fixture
def operator(
    backend: Backend,
    environment: dict[str, str],
    client: SyncClient,
    namespace: str,
    clients: Path,
    tmp_path: Path,
) -> Iterator[None]:
    """The operator with its CRDs, started as in its chart."""
    (charts,) = clients.parent.glob("lib/python*/site-packages/dask_kubernetes/operator/deployment")
    for path in sorted(charts.glob("helm/*/crds/*.yaml")):
        body = yaml.safe_load(path.read_text())
        client.apply(CUSTOM_RESOURCE_DEFINITIONS, body, field_manager="helm", force=True)
    until(lambda: client.list(DASK_CLUSTERS) is not None)
    words = ["kopf", "run", "-m", "dask_kubernetes.operator.controller", "--standalone"]
    log = tmp_path / "operator.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [*words, "--namespace", namespace],
            env=environment,
            cwd=tmp_path,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    yield
    for found in client.list(DASK_CLUSTERS, namespace=namespace):
        client.delete(DASK_CLUSTERS, found["metadata"]["name"], namespace=namespace)
    until(lambda: not client.list(DASK_CLUSTERS, namespace=namespace).items)
    process.kill()
    process.wait()


@stands_for(
    "dask-kubernetes",
    version=installed("dask-kubernetes"),
    how=RUNS,
    kinds=("Pod", "PodGroup", "Deployment", "Service", "CustomResourceDefinition"),
    note="its kopf operator",
)
def test_the_dask_operator_creates_and_scales_a_cluster(
    run: Run, client: SyncClient, namespace: str, operator: None
) -> None:
    run("python", str(PROGRAMS / "dask_cluster.py"), namespace, "make")
    until(lambda: len(client.list(DEPLOYMENTS, namespace=namespace).items) == 3)
    until(lambda: len(placed(client, namespace)) == 3)
    assert client.find(SERVICES, "demo-scheduler", namespace=namespace) is not None
    run("python", str(PROGRAMS / "dask_cluster.py"), namespace, "scale")
    until(lambda: len(placed(client, namespace)) == 4)
    parts = [pod["metadata"]["labels"]["dask.org/component"] for pod in pods(client, namespace)]
    assert sorted(parts) == ["scheduler", "worker", "worker", "worker"]
    assert len(client.list(PODGROUPS, namespace=namespace).items) == 4


def placed(client: SyncClient, namespace: str) -> list[str]:
    found = pods(client, namespace)
    return [p["metadata"]["name"] for p in found if p["spec"].get("nodeName")]
