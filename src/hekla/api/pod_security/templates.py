"""The pod templates of workloads: Kubernetes' kinds and Volcano's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hekla.units.objects import Object

_TEMPLATE = ("spec", "template")
_CRON = ("spec", "jobTemplate", "spec")
_ONE = {
    ("", "PodTemplate"): ("template",),
    ("", "ReplicationController"): _TEMPLATE,
    ("apps", "ReplicaSet"): _TEMPLATE,
    ("apps", "Deployment"): _TEMPLATE,
    ("apps", "StatefulSet"): _TEMPLATE,
    ("apps", "DaemonSet"): _TEMPLATE,
    ("batch", "Job"): _TEMPLATE,
    ("batch", "CronJob"): (*_CRON, "template"),
}
_TASKS = {
    ("batch.volcano.sh", "Job"): ("spec",),
    ("batch.volcano.sh", "CronJob"): _CRON,
    ("flow.volcano.sh", "JobTemplate"): ("spec",),
}


def pod_templates(group: str, kind: str, obj: Object) -> Iterator[tuple[str, Object]]:
    """Yield each pod template with the name of its task; the name is empty outside Volcano."""
    path = _ONE.get((group, kind))
    if path is not None:
        template = _at(obj, path)
        if isinstance(template, dict):
            yield "", template
        return
    tasks_at = _TASKS.get((group, kind))
    if tasks_at is not None:
        for index, task in enumerate((_at(obj, tasks_at) or {}).get("tasks") or ()):
            template = task.get("template")
            if isinstance(template, dict):
                yield str(task.get("name") or index), template


def _at(obj: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj
