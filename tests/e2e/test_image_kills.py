"""kill -9 of the cluster while containers of an image run: they go on, and nothing is left."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import debian
from tools.waiting import until

from hekla.cli import images
from hekla.images.platforms import this_machine
from hekla.kube.resources import NODES, PODS
from hekla.kube.sync_client import SyncClient
from hekla.nodeagent import sandbox
from hekla.units.objects import Object
from tests.e2e.test_kills import Cluster
from tests.images.builders import docker_archive, file, image, symlink, tar

SCRIPT = "touch /begun; while [ ! -e /data/go ]; do sleep 0.05; done; [ -e /begun ] && exit 5"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if not sandbox.isolation_support().namespaces:
        pytest.skip("needs namespaces")
    made = Cluster(tmp_path / "state")
    yield made
    made.hekla("down")


def load_image(data_dir: Path, tmp_path: Path) -> None:
    try:
        busybox = debian.static_busybox().read_bytes()
    except debian.Missing as error:
        pytest.skip(str(error))
    names = [symlink(f"bin/{name}", "busybox") for name in ("sh", "sleep", "touch")]
    built = image(
        tar(file("bin/busybox", busybox, mode=0o755), *names),
        config={"Entrypoint": ["sh", "-c"]},
        architecture=this_machine().architecture,
    )
    archive = tmp_path / "app.tar"
    archive.write_bytes(docker_archive(built, ["app:1"]))
    images.load(data_dir, str(archive), ["app:1"])


def pod_of(client: SyncClient) -> Object:
    return client.get(PODS, "p", namespace="default")


def test_container_of_an_image_goes_on_after_kill_9(cluster: Cluster, tmp_path: Path) -> None:
    data_dir = tmp_path / "state"
    with cluster.up() as client:
        load_image(data_dir, tmp_path)
        node = client.list(NODES).items[0]["metadata"]["name"]
        container = {
            "name": "main",
            "image": "app:1",
            "args": [SCRIPT],
            "volumeMounts": [{"name": "shared", "mountPath": "/data"}],
        }
        volume = {"name": "shared", "emptyDir": {}}
        spec = {"containers": [container], "volumes": [volume], "restartPolicy": "Never"}
        client.create(
            PODS,
            {
                "metadata": {"name": "p", "namespace": "default"},
                "spec": {**spec, "nodeName": node},
            },
        )
        own = data_dir / "node" / "pods" / str(pod_of(client)["metadata"]["uid"])
        upper = own / "containers" / "main" / "0.root" / "upper"
        until(lambda: (upper / "begun").exists(), "the container does not run")
    cluster.kill()
    with cluster.up() as client:
        (own / "volumes" / "shared" / "go").touch()
        until(lambda: pod_of(client)["status"]["phase"] == "Failed", "the container does not end")
        status = pod_of(client)["status"]["containerStatuses"][0]
        assert status["state"]["terminated"]["exitCode"] == 5
        assert status["restartCount"] == 0
        assert status["imageID"].startswith("docker.io/library/app@sha256:")
        until(lambda: not upper.parent.exists(), "the root of the container is left")
    mounts = subprocess.run(["cat", "/proc/self/mountinfo"], capture_output=True, text=True).stdout
    assert str(data_dir) not in mounts
