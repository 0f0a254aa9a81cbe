"""The image of the Containerfile is built, installed by the Helm chart, and schedules jobs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tools import container_image, debian
from tools.kube import images
from tools.kube.gobuild import ensure
from tools.kube.gobuild import missing as missing_parts
from tools.kube.kubelets import KubeletCluster, missing
from tools.kube.parts import HELM
from tools.waiting import until

from hekla.api import wellknown
from hekla.kube.errors import KubeError
from hekla.kube.resources import DEPLOYMENTS, PODS
from hekla.kube.sync_client import SyncClient
from hekla.units.objects import Object
from tests.install.conftest import CHART
from tests.realkube.backends import create_namespace, is_admitting, is_open
from tests.realkube.kubelet.jobs import FOREVER, IMAGE, finished, job, phase, pods, submit, task

pytestmark = pytest.mark.kubelet
SPACE = wellknown.SYSTEM_NAMESPACE
TEAM = "team"
# Base 128 MB, packages and hekla 162 MB when this was written.
SIZE_LIMIT = 350e6
Helm = Callable[..., str]


@pytest.fixture(scope="module")
def image() -> Path:
    """The image of hekla, with the tag `test`."""
    try:
        return container_image.archive("test")
    except debian.Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def cluster(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeletCluster]:
    """Kubernetes with kube-scheduler, which places hekla's own pods; nothing of hekla is in it."""
    if reason := missing() or missing_parts([HELM]):
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("chart")
    with KubeletCluster(directory / "cluster", kubelets=2, scheduler=True) as started:
        archive = directory / "busybox.tar"
        archive.write_bytes(images.busybox_archive(IMAGE))
        for each in (archive, image):
            started.import_image(each)
        yield started


@pytest.fixture(scope="module")
def client(cluster: KubeletCluster) -> Iterator[SyncClient]:
    with cluster.client() as made:
        create_namespace(made, TEAM)
        yield made


@pytest.fixture(scope="module")
def helm(cluster: KubeletCluster, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Real helm; a failure fails the test and prints the components' pods."""
    home = tmp_path_factory.mktemp("helm")

    def call(*words: str | Path) -> str:
        where = ("--kubeconfig", cluster.kubeconfig, "--namespace", SPACE)
        done = subprocess.run(
            [ensure(HELM), *words, *where],
            env={"HOME": str(home), "PATH": ""},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode:
            with cluster.client() as client:
                for pod in client.list(PODS, namespace=SPACE):
                    print(pod["metadata"]["name"], pod["status"])
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    return call


def _ready(client: SyncClient) -> dict[str, int]:
    return {
        deployment["metadata"]["name"]: deployment["status"].get("readyReplicas", 0)
        for deployment in client.list(DEPLOYMENTS, namespace=SPACE)
    }


def _uids(found: list[Object]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in found}


def test_the_image_has_a_bounded_size(image: Path) -> None:
    print(f"{image.stat().st_size / 1e6:.0f} MB")
    assert image.stat().st_size < SIZE_LIMIT


def test_helm_installs_the_image_upgrades_and_removes_it_while_jobs_run(
    helm: Helm, client: SyncClient
) -> None:
    chosen = ("--set", "basic.image_tag_version=test", "--wait", "--timeout", "4m")
    helm("install", "hekla", CHART, "--create-namespace", *chosen)
    assert _ready(client) == {"hekla-admission": 2, "hekla-controllers": 2, "hekla-scheduler": 2}
    until(lambda: is_open(client))
    until(lambda: is_admitting(client), ignored=KubeError)

    submit(client, TEAM, job("first", task(replicas=3, script="echo done")))
    finished(client, TEAM, "first")
    submit(client, TEAM, job("stays", task(replicas=2, script=FOREVER)))
    until(lambda: phase(client, TEAM, "stays") == "Running")
    running, components = _uids(_of(client, "stays")), _uids(_components(client))

    helm(
        "upgrade",
        "hekla",
        CHART,
        *chosen,
        "--set",
        "custom.scheduler_log_level=4,custom.controller_log_level=4",
    )
    until(lambda: not components & _uids(_of_parts(client, "scheduler", "controllers")))
    assert _ready(client) == {"hekla-admission": 2, "hekla-controllers": 2, "hekla-scheduler": 2}
    submit(client, TEAM, job("second", task(replicas=3)))
    finished(client, TEAM, "second")
    assert _uids(_of(client, "stays")) == running

    helm("uninstall", "hekla", "--wait", "--timeout", "4m")
    until(lambda: not _components(client))
    assert _uids(_of(client, "stays")) == running
    assert phase(client, TEAM, "stays") == "Running"


def _of(client: SyncClient, name: str) -> list[Object]:
    return [pod for pod in pods(client, TEAM) if pod["metadata"]["name"].startswith(f"{name}-")]


def _components(client: SyncClient) -> list[Object]:
    return client.list(PODS, namespace=SPACE).items


def _of_parts(client: SyncClient, *names: str) -> list[Object]:
    return [
        pod
        for pod in _components(client)
        if pod["metadata"]["name"].startswith(tuple(f"hekla-{name}-" for name in names))
    ]
