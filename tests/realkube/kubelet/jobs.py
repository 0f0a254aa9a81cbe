"""Jobs of real containers, and what tests ask about them."""

from __future__ import annotations

from typing import Any

from tools.waiting import until

from hekla.kube.resources import JOBS, PODS
from hekla.kube.sync_client import SyncClient
from tests.realkube.test_jobs import phase, pods

__all__ = ["IMAGE", "finished", "job", "logs", "nodes_of", "phase", "pods", "submit", "task"]

Json = dict[str, Any]
IMAGE = "localhost/busybox:1"
FOREVER = "exec sleep 100000"


def task(
    name: str = "worker",
    *,
    replicas: int = 1,
    script: str = "true",
    cpu: str = "100m",
    memory: str = "",
    policies: list[Json] | None = None,
    pod: Json | None = None,
    container: Json | None = None,
) -> Json:
    """Return a task whose container runs a shell script; `pod` and `container` add to its spec."""
    resources: Json = {"requests": {"cpu": cpu}}
    if memory:
        resources |= {"limits": {"memory": memory}}
    main = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "resources": resources,
        **(container or {}),
    }
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [main],
        **(pod or {}),
    }
    made: Json = {"name": name, "replicas": replicas, "template": {"spec": spec}}
    return made | ({"policies": policies} if policies else {})


def job(name: str, *tasks: Json, **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {"tasks": list(tasks), **spec}}


def submit(client: SyncClient, namespace: str, body: Json) -> None:
    client.create(JOBS, body, namespace=namespace)


def finished(client: SyncClient, namespace: str, name: str, want: str = "Completed") -> None:
    """Wait until the job has ended in this phase."""
    until(lambda: phase(client, namespace, name) == want, f"{name} is not {want}")


def logs(client: SyncClient, namespace: str, pod: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
    return bytes(client.request("GET", path)).decode()


def nodes_of(client: SyncClient, namespace: str) -> list[str]:
    found = client.list(PODS, namespace=namespace)
    return sorted(pod["spec"]["nodeName"] for pod in found if pod["spec"].get("nodeName"))
