"""Kubernetes with two kubelets, and hekla's components as processes beside them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.kube import images
from tools.kube.kubelets import KubeletCluster, missing
from tools.kube.processes import free_port
from tools.waiting import until

from hekla.kube.sync_client import SyncClient
from tests.realkube.backends import Backend, install, is_admitting, is_open
from tests.realkube.kubelet.jobs import IMAGE

SERVER_FLAGS = (
    # Pods leave a node without a kubelet soon.
    "--default-not-ready-toleration-seconds=3",
    "--default-unreachable-toleration-seconds=3",
)
CONTROLLER_FLAGS = ("--node-monitor-period=1s", "--node-monitor-grace-period=12s")
HEKLA = Path(sys.executable).with_name("hekla")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeletCluster]:
    if reason := missing():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("kubelets")
    with KubeletCluster(
        directory / "cluster",
        kubelets=2,
        server_flags=SERVER_FLAGS,
        controller_flags=CONTROLLER_FLAGS,
    ) as started:
        archive = directory / "image.tar"
        archive.write_bytes(images.busybox_archive(IMAGE))
        started.import_image(archive)
        yield started


@pytest.fixture(scope="session")
def backend(cluster: KubeletCluster) -> Backend:
    """The cluster with hekla: scheduler, controllers, and webhooks."""
    install(cluster)
    start_components(cluster)
    with cluster.client() as client:
        until(lambda: is_open(client))
        until(lambda: is_admitting(client))
    return Backend("kubelet", cluster.kubeconfig)


def start_components(cluster: KubeletCluster) -> None:
    """Start hekla's programs in the cluster's network, where the API server reaches webhooks."""
    port = free_port()
    url = f"--url=https://127.0.0.1:{port}"
    components = {
        "scheduler": ["--leader-elect=false"],
        "controllers": ["--leader-elect=false"],
        "admission": ["--host=127.0.0.1", f"--port={port}", url],
    }
    for component, flags in components.items():
        words: list[str | Path] = [
            HEKLA,
            component,
            f"--kubeconfig={cluster.server_kubeconfig}",
            *flags,
        ]
        cluster.processes.start(component, words)


@pytest.fixture(autouse=True)
def logs_of_a_failure(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print the end of the components' logs; pytest shows it if the test fails."""
    yield
    if "cluster" in request.fixturenames:
        processes = request.getfixturevalue("cluster").processes
        for name in ("scheduler", "controllers", "admission"):
            if processes.log(name).exists():
                print(f"--- {name}\n{processes.log(name).read_text()[-2000:]}")


@pytest.fixture
def client(backend: Backend) -> Iterator[SyncClient]:
    with backend.client() as made:
        yield made
