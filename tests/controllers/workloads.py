"""Builders of workloads, and a kubelet that makes their pods ready."""

from __future__ import annotations

from typing import Any

from hekla.kube.resources import PODS
from hekla.units.objects import Object
from hekla.units.timestamps import format_time

from .cluster import Cluster

EVERY = (
    "replicaset-controller",
    "replicationcontroller-controller",
    "deployment-controller",
    "statefulset-controller",
    "batchjob-controller",
    "batchcronjob-controller",
    "endpoints-controller",
)


def template(app: str = "web", policy: str = "Always", **env: str) -> Object:
    container: Object = {"name": "main", "image": "host", "command": ["sleep", "1000"]}
    if env:
        container["env"] = [{"name": key, "value": value} for key, value in env.items()]
    return {
        "metadata": {"labels": {"app": app}},
        "spec": {"restartPolicy": policy, "containers": [container]},
    }


def workload(name: str, replicas: int, **spec: Any) -> Object:
    """Return the spec fields that Deployments, ReplicaSets and StatefulSets share."""
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template(name),
            **spec,
        },
    }


def batch_job(name: str, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"template": template(name, "Never"), **spec}}


async def make_ready(cluster: Cluster, *names: str, ready: bool = True) -> None:
    """Set pods to Running, and ready or not."""
    for number, name in enumerate(names or tuple(await cluster.pods("Pending"))):
        now = format_time(cluster.clock.now())
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": now}
        container = {
            "name": "main", "image": "host", "imageID": "", "restartCount": 0, "ready": ready,
            "state": {"running": {"startedAt": now}},
        }  # fmt: skip
        status = {
            "phase": "Running",
            "podIP": f"127.9.{sum(map(ord, name)) % 250}.{number + 1}",
            "conditions": [condition],
            "containerStatuses": [container],
        }
        await cluster.client.patch_status(PODS, name, status, namespace=cluster.namespace)


async def keep_ready(cluster: Cluster) -> None:
    """Wait until the controllers are idle; their pods become ready."""
    while True:
        await cluster.settle()
        if not await cluster.pods("Pending"):
            return
        await make_ready(cluster)
