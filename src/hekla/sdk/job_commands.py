"""Commands and patches that change a job or a queue. Pure functions.

Note: a job is not suspended by editing it. A Command object requests it from the controller, which
deletes the Command when it handles it. The owner reference deletes the Command with the job.
"""

from __future__ import annotations

from collections.abc import Iterable

from hekla.api import wellknown
from hekla.units.objects import Object


def command(target: Object, action: str) -> Object:
    """Return the Command that requests `action` on a job or a queue."""
    metadata = target["metadata"]
    reference = {
        "apiVersion": target["apiVersion"],
        "kind": target["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": wellknown.BUS_API,
        "kind": "Command",
        "metadata": {
            "generateName": f"{metadata['name']}-{action.lower()}-",
            # A queue has no namespace; its Commands are in `default`, as Volcano's.
            "namespace": metadata.get("namespace") or wellknown.DEFAULT_NAMESPACE,
            "ownerReferences": [reference],
        },
        "target": reference,
        "action": action,
    }


def tasks_of(job: Object) -> list[Object]:
    """Return the tasks of a job's spec."""
    return list((job.get("spec") or {}).get("tasks") or ())


def scale_patch(
    job: Object, replicas: int, *, task: str = "", min_available: int | None = None
) -> list[Object]:
    """Return a JSON patch that sets the replicas of a task; ValueError lists the tasks."""
    tasks = tasks_of(job)
    names = [each.get("name", "") for each in tasks]
    if not task and len(tasks) != 1:
        raise ValueError(f"the job has {len(tasks)} tasks: {', '.join(names)}; name one")
    if task and task not in names:
        raise ValueError(f"the job has no task {task!r}; there are: {', '.join(names)}")
    index = names.index(task) if task else 0
    path = f"/spec/tasks/{index}"
    patch: list[Object] = [
        # Tasks are patched by position: check that the task is still there.
        {"op": "test", "path": f"{path}/name", "value": names[index]},
        {"op": "replace", "path": f"{path}/replicas", "value": replicas},
    ]
    task_minimum = tasks[index].get("minAvailable")
    if task_minimum is not None and task_minimum > replicas:
        patch.append({"op": "replace", "path": f"{path}/minAvailable", "value": replicas})
    total = replicas + sum(each.get("replicas", 0) for at, each in enumerate(tasks) if at != index)
    gang = (job.get("spec") or {}).get("minAvailable") or 0
    if min_available is not None:
        patch.append({"op": "replace", "path": "/spec/minAvailable", "value": min_available})
    elif gang > total:
        # A gang larger than the job could never start.
        patch.append({"op": "replace", "path": "/spec/minAvailable", "value": total})
    return patch


def pods_selector(job: str, task: str = "") -> str:
    """Return the label selector of the pods of a job, or of one of its tasks."""
    selector = f"{wellknown.JOB_NAME}={job}"
    return f"{selector},{wellknown.TASK_SPEC}={task}" if task else selector


def owned(job: Object, pods: Iterable[Object]) -> list[Object]:
    """Return the pods of a job, without those of an earlier job of the same name."""
    uid = job["metadata"]["uid"]
    return [
        pod
        for pod in pods
        if any(each["uid"] == uid for each in pod["metadata"].get("ownerReferences") or ())
    ]


def group_name(job: Object) -> str:
    """Return the name of a job's PodGroup."""
    return f"{job['metadata']['name']}-{job['metadata']['uid']}"
