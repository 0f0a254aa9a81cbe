"""Jobs as users write them, for tests with a server."""

from __future__ import annotations

from typing import Any

from hekla.units.objects import Object


def task(name: str = "worker", replicas: int = 2, **more: Any) -> Object:
    container = {"name": "main", "image": "host", "command": ["true"]}
    spec = {"restartPolicy": "Never", "containers": [container], **more.pop("pod", {})}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


def job(name: str = "train", *tasks: Object, namespace: str = "default", **spec: Any) -> Object:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"tasks": list(tasks) or [task()], **spec},
    }


def on(action: str, event: str = "PodFailed", **more: Any) -> list[Object]:
    return [{"action": action, "event": event, **more}]
