"""Spark's Kubernetes back end with its Volcano step, from the jars of PySpark."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from tools.frameworks import python_frameworks
from tools.waiting import until

from hekla.kube.resources import PODGROUPS, SERVICE_ACCOUNTS
from hekla.kube.sync_client import SyncClient
from tests.clients.conftest import LIMIT_S
from tests.clients.standing import RUNS, installed, stands_for
from tests.realkube.backends import Backend
from tests.realkube.test_jobs import pods

pytestmark = pytest.mark.clients
STEP = "org.apache.spark.deploy.k8s.features.VolcanoFeatureStep"
TEMPLATE = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "PodGroup",
    "spec": {"minMember": 1, "minResources": {"cpu": "1"}, "queue": "default"},
}


@stands_for(
    "Spark (native Kubernetes)",
    version=installed("pyspark", "frameworks.txt"),
    how=RUNS,
    kinds=("PodGroup", "Pod", "Service", "ConfigMap"),
    note="spark-submit in cluster mode with VolcanoFeatureStep; the driver only pretends to run",
)
def test_spark_submit_creates_a_driver_whose_group_is_scheduled(
    backend: Backend,
    environment: dict[str, str],
    client: SyncClient,
    namespace: str,
    tmp_path: Path,
) -> None:
    java = shutil.which("java")
    if java is None:
        pytest.skip("needs Java 17 for Spark")
    group = tmp_path / "podgroup.yaml"
    group.write_text(yaml.safe_dump(TEMPLATE))
    if client.find(SERVICE_ACCOUNTS, "default", namespace=namespace) is None:
        until(lambda: client.find(SERVICE_ACCOUNTS, "default", namespace=namespace))
    server = yaml.safe_load(backend.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    options = {
        "spark.kubernetes.namespace": namespace,
        "spark.kubernetes.container.image": "none",
        "spark.kubernetes.scheduler.name": "volcano",
        "spark.kubernetes.driver.pod.featureSteps": STEP,
        "spark.kubernetes.executor.pod.featureSteps": STEP,
        "spark.kubernetes.scheduler.volcano.podGroupTemplateFile": str(group),
        "spark.kubernetes.submission.waitAppCompletion": "false",
        "spark.driver.memory": "512m",
    }
    home = next((python_frameworks() / "lib").glob("python*/site-packages/pyspark"))
    words = [str(home / "bin" / "spark-submit"), "--master", f"k8s://{server}"]
    words += ["--deploy-mode", "cluster", "--name", "pi", "--class", "org.example.Pi"]
    words += [word for key, value in options.items() for word in ("--conf", f"{key}={value}")]
    done = subprocess.run(
        [*words, "local:///opt/spark/pi.jar"],
        env={**environment, "SPARK_HOME": str(home)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (driver,) = until(lambda: [p for p in pods(client, namespace) if p["spec"].get("nodeName")])
    assert driver["spec"]["schedulerName"] == "volcano"
    (made,) = client.list(PODGROUPS, namespace=namespace)
    name = made["metadata"]["name"]
    assert name.endswith("-podgroup")
    assert driver["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == name
    # Spark sends the PodGroup again, with the driver as its owner.
    (owner,) = made["metadata"]["ownerReferences"]
    assert owner["uid"] == driver["metadata"]["uid"]
    until(lambda: client.get(PODGROUPS, name, namespace=namespace)["status"]["phase"] == "Running")
