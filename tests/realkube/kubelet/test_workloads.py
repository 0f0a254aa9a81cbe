"""Pods that other controllers make, and pods of several containers, scheduled by hekla."""

from __future__ import annotations

from typing import Any

import pytest
from tools.waiting import until

from hekla.kube.resources import BATCH_JOBS, DEPLOYMENTS, PODGROUPS, PODS
from hekla.kube.sync_client import SyncClient
from tests.realkube.kubelet.jobs import FOREVER, IMAGE, finished, job, logs, pods, submit, task

pytestmark = pytest.mark.kubelet
Json = dict[str, Any]


def template(script: str, **spec: Any) -> Json:
    container: Json = {"name": "main", "image": IMAGE, "command": ["sh", "-c", script]}
    container["resources"] = {"requests": {"cpu": "100m"}}
    return {
        "metadata": {"labels": {"app": "work"}},
        "spec": {
            "schedulerName": "volcano",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            **spec,
        },
    }


def test_a_batch_job_of_four_completions_completes(client: SyncClient, namespace: str) -> None:
    spec = {
        "completions": 4,
        "parallelism": 2,
        "completionMode": "Indexed",
        "template": template("echo index $JOB_COMPLETION_INDEX", restartPolicy="Never"),
    }
    client.create(BATCH_JOBS, {"metadata": {"name": "sweep"}, "spec": spec}, namespace=namespace)

    def ended() -> list[str]:
        found = client.get(BATCH_JOBS, "sweep", namespace=namespace)
        told = (found.get("status") or {}).get("conditions") or ()
        return [c["type"] for c in told if c["status"] == "True"]

    until(lambda: "Complete" in ended())
    said = {logs(client, namespace, pod["metadata"]["name"]) for pod in pods(client, namespace)}
    assert said == {f"index {number}\n" for number in range(4)}
    assert client.list(PODGROUPS, namespace=namespace).items


def test_a_deployment_runs_and_replaces_a_deleted_pod(client: SyncClient, namespace: str) -> None:
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "work"}},
        "template": template(FOREVER),
    }
    client.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, namespace=namespace)

    def ready() -> bool:
        found = client.get(DEPLOYMENTS, "web", namespace=namespace)
        return bool((found.get("status") or {}).get("readyReplicas") == 2)

    until(ready)
    first = pods(client, namespace)[0]["metadata"]["name"]
    client.delete(PODS, first, namespace=namespace)
    until(lambda: client.find(PODS, first, namespace=namespace) is None)
    until(ready)


def test_an_init_container_runs_first_and_a_sidecar_beside(
    client: SyncClient, namespace: str
) -> None:
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    common = {"image": IMAGE, "imagePullPolicy": "Never", "volumeMounts": mounts}
    prepare = {"name": "prepare", "command": ["sh", "-c", "echo prepared > /shared/page"], **common}
    serve = {
        "name": "serve",
        "restartPolicy": "Always",
        "command": ["httpd", "-f", "-p", "8086", "-h", "/shared"],
        **common,
    }
    main = task(
        script="until wget -q -O - http://127.0.0.1:8086/page; do sleep 0.2; done",
        pod={
            "initContainers": [prepare, serve],
            "volumes": [{"name": "shared", "emptyDir": {}}],
        },
    )
    submit(client, namespace, job("composed", main))
    finished(client, namespace, "composed")
    path = f"/api/v1/namespaces/{namespace}/pods/composed-worker-0/log"
    assert client.request("GET", path, query=(("container", "main"),)) == b"prepared\n"
