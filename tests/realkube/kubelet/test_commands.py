"""hekla's commands for people, on a cluster with real containers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tools.kube.kubelets import KubeletCluster
from tools.waiting import until

from hekla.kube.sync_client import SyncClient
from tests.realkube.kubelet.conftest import HEKLA
from tests.realkube.kubelet.jobs import FOREVER, finished, job, nodes_of, phase, submit, task

pytestmark = pytest.mark.kubelet
Hekla = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def hekla(cluster: KubeletCluster, tmp_path: Path) -> Hekla:
    """Run a command against the cluster. The caller checks the exit code."""

    def call(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [HEKLA, *words],
            env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    return call


def written(tmp_path: Path, namespace: str, script: str) -> Path:
    body = job("run", task(replicas=2, script=script))
    body |= {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    body["metadata"]["namespace"] = namespace
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(body))
    return path


def test_run_shows_the_output_of_containers_and_ends_as_the_job(
    hekla: Hekla, client: SyncClient, namespace: str, tmp_path: Path
) -> None:
    done = hekla("run", written(tmp_path, namespace, "echo output of $HOSTNAME"))
    assert done.returncode == 0, done.stderr
    for number in range(2):
        assert f"output of run-worker-{number}" in done.stdout
    failed = hekla("run", "--replace", written(tmp_path, namespace, "echo to fail; exit 7"))
    assert failed.returncode != 0
    assert "to fail" in failed.stdout


def test_logs_shows_all_pods_of_a_job(hekla: Hekla, client: SyncClient, namespace: str) -> None:
    submit(client, namespace, job("spoken", task(replicas=2, script="echo from $HOSTNAME")))
    finished(client, namespace, "spoken")
    done = hekla("logs", "spoken", "-n", namespace)
    assert done.returncode == 0, done.stderr
    assert [f"from spoken-worker-{number}" in done.stdout for number in range(2)] == [True, True]


def test_explain_says_why_a_gang_is_pending(
    hekla: Hekla, client: SyncClient, namespace: str
) -> None:
    submit(client, namespace, job("large", task(replicas=5, cpu="900m")))
    until(lambda: phase(client, namespace, "large") == "Pending")
    until(lambda: "cpu" in hekla("explain", "large", "-n", namespace).stdout)


def test_drain_evicts_the_containers_and_undrain_returns_the_node(
    hekla: Hekla, client: SyncClient, namespace: str
) -> None:
    policies = [{"event": "PodEvicted", "action": "RestartJob"}]
    workers = task(replicas=2, cpu="900m", script=FOREVER)
    submit(client, namespace, job("moves", workers, policies=policies))
    until(lambda: phase(client, namespace, "moves") == "Running")
    drained = nodes_of(client, namespace)[0]
    other = "node-1" if drained == "node-0" else "node-0"
    try:
        words = ("--reason", "new disk", "--evict", "--wait", "--timeout", "90s")
        done = hekla("drain", drained, *words)
        assert done.returncode == 0, done.stderr
        until(lambda: nodes_of(client, namespace) == [other, other])
        until(lambda: phase(client, namespace, "moves") == "Running")
        assert "new disk" in hekla("nodes").stdout
    finally:
        done = hekla("undrain", drained)
    assert done.returncode == 0, done.stderr
    assert "new disk" not in hekla("nodes").stdout
