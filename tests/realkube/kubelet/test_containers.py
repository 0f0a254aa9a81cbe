"""Containers of jobs: volumes, logs, exec, exit codes, and the limit of memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tools.kube.kubelets import KubeletCluster
from tools.waiting import until

from hekla.kube.resources import CONFIGMAPS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from hekla.kube.sync_client import SyncClient
from tests.realkube.kubelet.jobs import FOREVER, finished, job, logs, phase, submit, task

pytestmark = pytest.mark.kubelet
KUBECTL = Path(sys.executable).with_name("kubectl")


def kubectl(cluster: KubeletCluster, *words: str) -> str:
    command: list[str | Path] = [KUBECTL, f"--kubeconfig={cluster.kubeconfig}", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def terminated(client: SyncClient, namespace: str, pod: str) -> dict[str, Any]:
    (status,) = client.get(PODS, pod, namespace=namespace)["status"]["containerStatuses"]
    return dict(status["state"].get("terminated") or {})


def test_a_container_over_its_memory_limit_is_killed_and_ends_the_job(
    client: SyncClient, namespace: str
) -> None:
    policies = [{"exitCode": 137, "action": "TerminateJob"}]
    greedy = task("greedy", script="tail /dev/zero", memory="48Mi", policies=policies)
    submit(client, namespace, job("memory", greedy, task("other", script=FOREVER)))
    finished(client, namespace, "memory", "Terminated")
    end = terminated(client, namespace, "memory-greedy-0")
    assert (end["reason"], end["exitCode"]) == ("OOMKilled", 137)


def test_a_task_that_fails_restarts_the_job(client: SyncClient, namespace: str) -> None:
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    submit(client, namespace, job("again", task(script="exit 3"), policies=policies, maxRetry=2))
    finished(client, namespace, "again", "Failed")
    assert terminated(client, namespace, "again-worker-0")["exitCode"] == 3


def test_volumes_of_every_type_are_mounted(client: SyncClient, namespace: str) -> None:
    client.create(
        CONFIGMAPS, {"metadata": {"name": "settings"}, "data": {"rate": "7"}}, namespace=namespace
    )
    field = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
    volumes: dict[str, Any] = {
        "settings": {"configMap": {"name": "settings"}},
        "scratch": {"emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
        "about": {"downwardAPI": {"items": [field]}},
    }
    script = "cat /settings/rate; echo; cat /about/name; echo; echo x > /scratch/x; cat /scratch/x"
    worker = task(
        script=script,
        pod={"volumes": [{"name": name, **source} for name, source in volumes.items()]},
        container={"volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in volumes]},
    )
    submit(client, namespace, job("mounts", worker))
    finished(client, namespace, "mounts")
    assert logs(client, namespace, "mounts-worker-0").split() == ["7", "mounts-worker-0", "x"]


def test_a_claim_of_a_job_is_bound_and_its_data_survives_the_pod(
    client: SyncClient, namespace: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    amount: Any = {"resources": {"requests": {"storage": "1Mi"}}, "accessModes": ["ReadWriteOnce"]}
    volume: dict[str, Any] = {
        "capacity": {"storage": "1Mi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": namespace,
        "hostPath": {"path": str(tmp_path)},
    }
    client.create(PERSISTENT_VOLUMES, {"metadata": {"name": namespace}, "spec": volume})
    mount = {"mountPath": "/data", "volumeClaim": {**amount, "storageClassName": namespace}}
    submit(client, namespace, job("keeps", task(script="echo kept > /data/file"), volumes=[mount]))
    finished(client, namespace, "keeps")
    (claim,) = client.list(PERSISTENT_VOLUME_CLAIMS, namespace=namespace)
    assert claim["status"]["phase"] == "Bound"
    assert (tmp_path / "file").read_text() == "kept\n"
    client.delete(PERSISTENT_VOLUMES, namespace)


def test_logs_and_exec_go_through_the_api_server(
    cluster: KubeletCluster, client: SyncClient, namespace: str
) -> None:
    submit(client, namespace, job("talks", task(script=f"echo started; {FOREVER}")))
    until(lambda: phase(client, namespace, "talks") == "Running")
    until(lambda: logs(client, namespace, "talks-worker-0") == "started\n")
    where = ("-n", namespace, "talks-worker-0")
    assert kubectl(cluster, "logs", *where) == "started\n"
    assert kubectl(cluster, "exec", *where, "--", "hostname") == "talks-worker-0\n"
