"""examples/containers, unchanged, as containers of real kubelets."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tools.kube import images
from tools.kube.kubelets import KubeletCluster

from hekla.kube.resources import JOBS
from hekla.kube.sync_client import SyncClient
from tests.realkube.kubelet.jobs import finished, logs

pytestmark = pytest.mark.kubelet
EXAMPLES = Path(__file__).parents[3] / "examples" / "containers"


def test_workers_add_up_their_gradients(
    cluster: KubeletCluster, client: SyncClient, namespace: str, tmp_path: Path
) -> None:
    job = yaml.safe_load((EXAMPLES / "ddp.yaml").read_text())
    (image,) = {
        container["image"]
        for task in job["spec"]["tasks"]
        for container in task["template"]["spec"]["containers"]
    }
    script = (EXAMPLES / "ddp" / "train.sh").read_text()
    archive = tmp_path / "ddp.tar"
    archive.write_bytes(
        images.busybox_archive(image, command=["/train.sh"], files={"/train.sh": script})
    )
    cluster.import_image(archive)
    job["metadata"]["namespace"] = namespace
    client.create(JOBS, job)
    finished(client, namespace, "ddp")
    pods = ("master-0", "worker-0", "worker-1")
    told = [logs(client, namespace, f"ddp-{pod}") for pod in pods]
    assert told == [f"rank {rank} of 3: the sum of all gradients is 60\n" for rank in range(3)]
