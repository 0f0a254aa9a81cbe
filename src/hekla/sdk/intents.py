"""What is sent to change a job or a queue, and what counts as having got there. Pure functions.

What a newcomer gets wrong: a job is not suspended by editing it. A Command object asks its
controller to, and is deleted when it is taken up; the owner reference makes it go with the job.
"""

from __future__ import annotations

from typing import Final

from hekla.api import wellknown
from hekla.api.wellknown import JobPhase
from hekla.units.objects import Object

FINISHED: Final = "finished"
# What `wait` may wait for: one of these words, or the name of a phase.
STARTED: Final = "started"
_BEFORE_START: Final = frozenset({"", JobPhase.PENDING})


def command(target: Object, action: str) -> Object:
    """The Command that asks for `action` on a job or a queue."""
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
            # A queue has no namespace; as Volcano's, its commands go to `default`.
            "namespace": metadata.get("namespace") or wellknown.DEFAULT_NAMESPACE,
            "ownerReferences": [reference],
        },
        "target": reference,
        "action": action,
    }


def phase_of(job: Object) -> str:
    """The phase; Pending for a job that no controller has looked at yet."""
    state = (job.get("status") or {}).get("state") or {}
    return str(state.get("phase") or JobPhase.PENDING)


def is_finished(job: Object) -> bool:
    return phase_of(job) in JobPhase.FINISHED


def is_reached(job: Object, until: str) -> bool:
    """Whether a job is where the waiter wants it: `finished`, `started`, or in a phase."""
    phase = phase_of(job)
    if until == FINISHED:
        return phase in JobPhase.FINISHED
    if until == STARTED:
        return phase not in _BEFORE_START
    return phase == until


def is_beyond(job: Object, until: str) -> bool:
    """Whether waiting on is pointless: the job ended, and not as wanted."""
    return is_finished(job) and not is_reached(job, until)


def tasks_of(job: Object) -> list[Object]:
    return list((job.get("spec") or {}).get("tasks") or ())


def scale(
    job: Object, replicas: int, *, task: str = "", min_available: int | None = None
) -> list[Object]:
    """A JSON patch that gives a task another size; ValueError names the tasks there are."""
    tasks = tasks_of(job)
    names = [one.get("name", "") for one in tasks]
    if not task and len(tasks) != 1:
        raise ValueError(f"the job has {len(tasks)} tasks: {', '.join(names)}; say which")
    if task and task not in names:
        raise ValueError(f"the job has no task {task!r}; there are: {', '.join(names)}")
    index = names.index(task) if task else 0
    path = f"/spec/tasks/{index}"
    patch: list[Object] = [
        # Tasks are found by position: make sure it is still the one that was meant.
        {"op": "test", "path": f"{path}/name", "value": names[index]},
        {"op": "replace", "path": f"{path}/replicas", "value": replicas},
    ]
    least = tasks[index].get("minAvailable")
    if least is not None and least > replicas:
        patch.append({"op": "replace", "path": f"{path}/minAvailable", "value": replicas})
    total = replicas + sum(one.get("replicas", 0) for at, one in enumerate(tasks) if at != index)
    gang = (job.get("spec") or {}).get("minAvailable") or 0
    if min_available is not None:
        patch.append({"op": "replace", "path": "/spec/minAvailable", "value": min_available})
    elif gang > total:
        # A gang larger than the job could never start again.
        patch.append({"op": "replace", "path": "/spec/minAvailable", "value": total})
    return patch


def pods_selector(job: str) -> str:
    return f"{wellknown.JOB_NAME}={job}"


def group_name(job: Object) -> str:
    """The PodGroup of a job."""
    return f"{job['metadata']['name']}-{job['metadata']['uid']}"
