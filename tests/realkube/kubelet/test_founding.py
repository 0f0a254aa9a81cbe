"""The founding manifests run as containers. The image is built here; requests fit two small nodes.

Of the manifests, only images that no registry serves are replaced, commands of programs that are
not in them, and amounts that the nodes do not have: a CPU becomes a hundredth of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools import debian
from tools.debian_base import base
from tools.kube import images
from tools.kube.kubelets import KubeletCluster
from tools.waiting import until

from hekla.kube.resources import JOBS, NODES, PODS, PRIORITY_CLASSES, QUEUES
from hekla.kube.sync_client import SyncClient
from tests.realkube.kubelet.jobs import FOREVER, IMAGE, finished, logs, nodes_of, phase, pods

pytestmark = pytest.mark.kubelet
FOUNDING = Path(__file__).parents[3] / "examples" / "founding"
MPI_IMAGE = "docker.io/library/mpi-app:latest"
GPU = "nvidia.com/gpu"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def mpi(cluster: KubeletCluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """An image with Open MPI and an ssh server, from Debian packages."""
    try:
        layer = base("openmpi-bin", "openssh-server", "openssh-client")
    except debian.Missing as reason:
        pytest.skip(str(reason))
    archive = tmp_path_factory.mktemp("mpi") / "mpi.tar"
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    with layer.open("rb") as source, archive.open("wb") as target:
        images.write_archive(target, MPI_IMAGE, source, {"Env": [path], "Cmd": ["sh"]})
    cluster.import_image(archive)
    archive.unlink()


@pytest.fixture(scope="module")
def gpus(cluster: KubeletCluster) -> Iterator[None]:
    """Nodes that report eight GPUs each, as a device plugin would."""
    with cluster.client() as client:
        for node in cluster.nodes:
            client.patch_status(NODES, node.name, {"capacity": {GPU: "8"}})
        until(
            lambda: all(
                client.get(NODES, node.name)["status"]["allocatable"].get(GPU) == "8"
                for node in cluster.nodes
            )
        )
        yield
        for node in cluster.nodes:
            client.patch_status(NODES, node.name, {"capacity": {GPU: None}})


@pytest.fixture(scope="module", autouse=True)
def queues(backend: object, cluster: KubeletCluster) -> Iterator[None]:
    """The queues of the manifests, without guarantees that the nodes cannot give."""
    made = [{"metadata": {"name": name}, "spec": {}} for name in ("compute", "data-processing")]
    for queue in yaml.safe_load_all((FOUNDING / "queues.yaml").read_text()):
        queue["spec"].pop("guarantee", None)
        made.append(queue)
    with cluster.client() as client:
        client.create(PRIORITY_CLASSES, {"metadata": {"name": "high-priority"}, "value": 1000})
        for queue in made:
            client.create(QUEUES, queue)
        yield


def manifest(name: str) -> Json:
    loaded: Json = yaml.safe_load((FOUNDING / name).read_text())
    return loaded


def scaled(body: Json, script: str) -> Json:
    """Return a job with the image of these tests, and a hundredth of the CPUs and memory."""
    made = deepcopy(body)
    for task in made["spec"]["tasks"]:
        for container in task["template"]["spec"]["containers"]:
            container |= {"image": IMAGE, "command": ["sh", "-c", script]}
            for amounts in container.get("resources", {}).values():
                if "cpu" in amounts:
                    amounts["cpu"] = f"{10 * int(amounts['cpu'])}m"
                if "memory" in amounts:
                    amounts["memory"] = "16Mi"
        task["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    return made


def running(client: SyncClient, namespace: str, name: str, count: int) -> bool:
    told = (client.get(JOBS, name, namespace=namespace).get("status") or {}).get("running")
    return told == count and phase(client, namespace, name) == "Running"


def test_mpi_runs_over_ssh_between_containers(
    client: SyncClient, namespace: str, mpi: None
) -> None:
    body = manifest("mpi-ssh.yaml")
    for task in body["spec"]["tasks"]:  # `latest` would be pulled
        task["template"]["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent"
    client.create(JOBS, body, namespace=namespace)
    finished(client, namespace, "mpi-ssh")
    told = logs(client, namespace, "mpi-ssh-mpimaster-0").splitlines()  # ssh warns there too
    assert {"mpi-ssh-mpiworker-0", "mpi-ssh-mpiworker-1"} <= set(told)


@pytest.mark.parametrize(
    ("name", "job", "count"),
    [
        ("mpi-job.yaml", "mpi-job", 8),
        ("pytorch-ddp.yaml", "pytorch-ddp", 4),
        ("spark-job.yaml", "spark-job", 5),
        ("tf-training.yaml", "tf-training", 5),
        ("elastic.yaml", "test-job", 10),
    ],
)
def test_a_founding_job_runs_with_all_its_pods(
    client: SyncClient, namespace: str, gpus: None, name: str, job: str, count: int
) -> None:
    client.create(JOBS, scaled(manifest(name), FOREVER), namespace=namespace)
    until(lambda: running(client, namespace, job, count))
    assert len(nodes_of(client, namespace)) == count


def test_two_elastic_jobs_share_what_there_is(
    client: SyncClient, namespace: str, gpus: None
) -> None:
    for number in range(2):
        body = scaled(manifest("elastic.yaml"), FOREVER)
        body["metadata"]["name"] = f"elastic-{number}"
        client.create(JOBS, body, namespace=namespace)

    def counts() -> list[int]:
        found = client.list(JOBS, namespace=namespace)
        return [(job.get("status") or {}).get("running", 0) for job in found]

    # 16 GPUs, of which each job has its minimum of five or more.
    until(lambda: sum(counts()) == 16)
    assert min(counts()) >= 5


def test_training_completes_with_its_workers_while_the_parameter_server_runs(
    client: SyncClient, namespace: str, gpus: None
) -> None:
    script = f"case $HOSTNAME in *ps-0) {FOREVER};; esac"
    client.create(JOBS, scaled(manifest("tf-training.yaml"), script), namespace=namespace)
    finished(client, namespace, "tf-training")


def test_training_restarts_when_a_worker_is_evicted(
    client: SyncClient, namespace: str, gpus: None
) -> None:
    client.create(JOBS, scaled(manifest("tf-training.yaml"), FOREVER), namespace=namespace)
    until(lambda: running(client, namespace, "tf-training", 5))
    before = {pod["metadata"]["uid"] for pod in pods(client, namespace)}
    client.delete(PODS, "tf-training-worker-3", namespace=namespace)
    until(lambda: not before & {pod["metadata"]["uid"] for pod in pods(client, namespace)})
    until(lambda: running(client, namespace, "tf-training", 5))
