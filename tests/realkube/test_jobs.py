"""Jobs and queues on both servers, from submission to completion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tools.waiting import until

from hekla.kube.errors import KubeError
from hekla.kube.resources import JOBS, PODGROUPS, PODS, QUEUES
from hekla.kube.sync_client import SyncClient
from tests.realkube.backends import NODE_COUNT, NODE_CPU, finish

Json = dict[str, Any]
Vcctl = Callable[..., str]


def job(name: str, *, replicas: int = 2, cpu: str = "1", **spec: Any) -> Json:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "tasks": [{"name": "worker", "replicas": replicas, "template": template}],
            **spec,
        },
    }


def phase(client: SyncClient, namespace: str, name: str) -> str:
    found = client.get(JOBS, name, namespace=namespace)
    return str(((found.get("status") or {}).get("state") or {}).get("phase", ""))


def pods(client: SyncClient, namespace: str) -> list[Json]:
    return client.list(PODS, namespace=namespace).items


def test_a_gang_runs_and_completes(client: SyncClient, namespace: str) -> None:
    client.create(JOBS, job("train", replicas=4), namespace=namespace)
    until(lambda: phase(client, namespace, "train") == "Running")
    members = pods(client, namespace)
    assert len(members) == 4
    assert all(pod["spec"]["nodeName"].startswith("node-") for pod in members)
    for pod in members:
        finish(client, namespace, pod["metadata"]["name"])
    until(lambda: phase(client, namespace, "train") == "Completed")


def test_a_job_whose_pod_fails_fails(client: SyncClient, namespace: str) -> None:
    policies = [{"event": "PodFailed", "action": "AbortJob"}]
    client.create(JOBS, job("bad", policies=policies), namespace=namespace)
    until(lambda: phase(client, namespace, "bad") == "Running")
    finish(client, namespace, "bad-worker-0", "Failed")
    until(lambda: phase(client, namespace, "bad") == "Aborted")


def test_a_gang_that_does_not_fit_stays_pending_with_a_reason(
    client: SyncClient, namespace: str
) -> None:
    too_many = NODE_COUNT * NODE_CPU + 1
    client.create(JOBS, job("large", replicas=too_many, cpu="1"), namespace=namespace)

    def reasons() -> list[str]:
        groups = client.list(PODGROUPS, namespace=namespace)
        told = [c for g in groups for c in (g.get("status") or {}).get("conditions") or ()]
        return [c["message"] for c in told if c["type"] == "Unschedulable"]

    assert until(reasons)
    assert not [pod for pod in pods(client, namespace) if pod["spec"].get("nodeName")]


def test_deleting_a_job_deletes_its_pods(client: SyncClient, namespace: str) -> None:
    client.create(JOBS, job("gone"), namespace=namespace)
    until(lambda: phase(client, namespace, "gone") == "Running")
    client.delete(JOBS, "gone", namespace=namespace)
    until(lambda: client.find(JOBS, "gone", namespace=namespace) is None)
    until(lambda: not pods(client, namespace))
    until(lambda: not client.list(PODGROUPS, namespace=namespace).items)


def test_a_queue_is_created_used_and_listed(
    vcctl: Vcctl, client: SyncClient, namespace: str
) -> None:
    queue = f"q-{namespace}"
    vcctl("queue", "create", "-n", queue, "-w", "3")
    until(lambda: (client.get(QUEUES, queue).get("status") or {}).get("state") == "Open")
    client.create(JOBS, job("in-queue", queue=queue), namespace=namespace)
    until(lambda: phase(client, namespace, "in-queue") == "Running")
    until(lambda: (client.get(QUEUES, queue).get("status") or {}).get("running") == 1)
    assert queue in vcctl("queue", "list")


def test_vcctl_lists_views_suspends_and_resumes(
    vcctl: Vcctl, client: SyncClient, namespace: str
) -> None:
    client.create(JOBS, job("shown"), namespace=namespace)
    until(lambda: phase(client, namespace, "shown") == "Running")
    assert "shown" in vcctl("job", "list")
    assert "Running" in vcctl("job", "view", "-N", "shown", "-n", namespace)
    vcctl("job", "suspend", "-N", "shown", "-n", namespace)
    until(lambda: phase(client, namespace, "shown") == "Aborted")
    vcctl("job", "resume", "-N", "shown", "-n", namespace)
    until(lambda: phase(client, namespace, "shown") == "Running")


def test_admission_completes_a_job(client: SyncClient, namespace: str) -> None:
    body = job("plain")
    del body["spec"]["tasks"][0]["name"]
    made = client.create(JOBS, body, namespace=namespace)
    assert made["spec"]["queue"] == "default"
    assert made["spec"]["minAvailable"] == 2
    assert made["spec"]["schedulerName"] == "volcano"
    assert made["spec"]["tasks"][0]["name"] == "default0"


def test_admission_refuses_a_bad_job(client: SyncClient, namespace: str) -> None:
    body = job("bad", minAvailable=9)
    with pytest.raises(KubeError, match="minAvailable"):
        client.create(JOBS, body, namespace=namespace)
    with pytest.raises(KubeError, match="no-such-queue"):
        client.create(JOBS, job("lost", queue="no-such-queue"), namespace=namespace)
    assert not client.list(JOBS, namespace=namespace).items


def test_admission_guards_a_queue_in_use(client: SyncClient, namespace: str) -> None:
    with pytest.raises(KubeError, match="default"):
        client.delete(QUEUES, "default")
