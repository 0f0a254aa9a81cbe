"""Builders of objects for controller tests."""

from __future__ import annotations

from typing import Any

from hekla.api import wellknown
from hekla.controllers.job.pods import PodMaker, group_name
from hekla.controllers.job.view import JobView
from hekla.units.objects import Object
from hekla.units.timestamps import format_time

NOW = 1_700_000_000.0


def task(name: str = "worker", replicas: int = 2, **more: Any) -> Object:
    more.setdefault("minAvailable", replicas)
    template = more.pop("template", None) or {
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "main",
                    "image": "host",
                    "command": ["true"],
                    "resources": {"requests": {"cpu": "1"}},
                }
            ],
        }
    }
    return {"name": name, "replicas": replicas, "template": template, **more}


def job(name: str = "train", *, tasks: list[Object] | None = None, **spec: Any) -> Object:
    """Return a job as the API server stores it, with defaults."""
    tasks = [task()] if tasks is None else tasks
    status = spec.pop("status", {})
    annotations = spec.pop("annotations", None)
    spec.setdefault("minAvailable", sum(each["minAvailable"] or 0 for each in tasks))
    spec.setdefault("maxRetry", 3)
    metadata: Object = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": format_time(NOW - 100),
    }
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": wellknown.BATCH_API,
        "kind": "Job",
        "metadata": metadata,
        "spec": {"queue": "default", "schedulerName": "volcano", "tasks": tasks, **spec},
        "status": status,
    }


def group(of: Object, phase: str = "Inqueue", **status: Any) -> Object:
    return {
        "metadata": {"name": group_name(of), "namespace": "default", "uid": "uid-group"},
        "spec": {},
        "status": {"phase": phase, **status},
    }


def pod(of: Object, task_name: str, index: int, phase: str = "Running", **more: Any) -> Object:
    """Return a pod of a job, as created by the controller and updated by the kubelet."""
    template = next(each for each in of["spec"]["tasks"] if each["name"] == task_name)
    body = PodMaker(of).pod(template, index)
    body["metadata"]["uid"] = f"uid-{body['metadata']['name']}"
    body["metadata"]["creationTimestamp"] = format_time(more.pop("created", NOW - 10))
    if more.pop("deleting", False):
        body["metadata"]["deletionTimestamp"] = format_time(NOW)
    code = more.pop("exit_code", None)
    restarts = more.pop("restarts", 0)
    body["metadata"]["annotations"].update(more.pop("annotations", {}))
    container: Object = {"name": "main", "restartCount": restarts, "ready": phase == "Running"}
    if phase in ("Failed", "Succeeded"):
        ended = format_time(more.pop("ended", NOW - 1))
        container["state"] = {"terminated": {"exitCode": code or 0, "finishedAt": ended}}
    body["status"] = {"phase": phase, "containerStatuses": [container]}
    assert not more, f"unknown arguments: {more}"
    return body


def recorded(of: Object, pods: list[Object], phase: str = "Running", **more: Any) -> Object:
    """Return the job with a status that counts these pods."""
    from hekla.controllers.job.status import status_patch
    from hekla.units.patches import merge_patch

    patch = status_patch(JobView(of, NOW, pods=pods), phase=phase, **more) or {}
    return {**of, "status": merge_patch(of["status"], patch)}


def command(action: str, of: Object, name: str = "c1") -> Object:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "action": action,
        "target": {
            "apiVersion": wellknown.BATCH_API,
            "kind": "Job",
            "name": of["metadata"]["name"],
            "uid": of["metadata"]["uid"],
        },
    }
