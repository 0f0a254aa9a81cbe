"""Builders of manifests.

    workers = Task("worker", image="pytorch", command="python train.py", replicas=4, gpu=1)
    Job("train", [workers], queue="ml", plugins={"pytorch": []})

Every builder has `manifest()`; nothing is sent. Fields without a parameter go into `template`
(merged into the pod template) or `spec` (merged into the object's spec).

Note: `min_available` is the size of the gang. By default all tasks start together; a smaller number
lets a job start with some of its pods.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from hekla.api import arrays, wellknown
from hekla.api.wellknown import Action, JobEvent
from hekla.sdk.checked_amounts import checked
from hekla.units.documents import copy_json

Manifest = dict[str, Any]
Amount = str | int | float
Command = str | Sequence[str]

DEFAULT_IMAGE = "busybox"


@dataclass(kw_only=True)
class Task:
    """A task of a job: pods with one template.

    A `command` given as a list is executed directly; a string is passed to `sh -c`. Both arrive
    verbatim: `$$` and `$(NAME)`, which Kubernetes expands in a manifest, are escaped.

    `cpu`, `memory` and `gpu` are the requests of each pod, and `memory` also its limit; `requests`
    takes any other resource by name. `policies` maps an event to an action. `array`, such as
    `0-99%10`, makes a pod for each index, at most 10 at a time; the job has no other task.

    Example:
        Task("worker", command="python train.py", replicas=4, cpu=2, memory="4Gi",
             policies={"TaskCompleted": "CompleteJob"})
    """

    name: str = field(default="", kw_only=False)
    image: str = DEFAULT_IMAGE
    command: Command = ()
    args: Sequence[str] = ()
    replicas: int = 1
    array: str = ""
    min_available: int | None = None
    cpu: Amount | None = None
    memory: Amount | None = None
    gpu: Amount | None = None
    requests: Mapping[str, Amount] = field(default_factory=dict)
    limits: Mapping[str, Amount] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = ""
    restart_policy: str = "Never"
    depends_on: Sequence[str] = ()
    policies: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    template: Manifest = field(default_factory=dict)

    def manifest(self) -> Manifest:
        """Return the entry of `spec.tasks`."""
        task: Manifest = {"replicas": self._count(), "template": self._template()}
        if self.name:
            task["name"] = self.name
        if self.min_available is not None or self.array:
            task["minAvailable"] = 1 if self.min_available is None else self.min_available
        if self.depends_on:
            task["dependsOn"] = {"name": list(self.depends_on)}
        if self.policies:
            task["policies"] = policies(self.policies)
        return task

    def _count(self) -> int:
        if not self.array:
            return self.replicas
        if self.replicas != 1:
            raise ValueError(
                f"task {self.name!r} has array={self.array!r} and replicas={self.replicas}; an "
                "array has a replica for each index: leave replicas out"
            )
        return len(arrays.expand(arrays.parse(self.array).indices))

    def _template(self) -> Manifest:
        pod: Manifest = {"restartPolicy": self.restart_policy, "containers": [self._container()]}
        template: Manifest = {"spec": pod}
        metadata = _without_empty(labels=dict(self.labels), annotations=dict(self.annotations))
        if metadata:
            template["metadata"] = metadata
        return merged(template, self.template)

    def _container(self) -> Manifest:
        given = {"cpu": self.cpu, "memory": self.memory, "gpu": self.gpu}
        for resource, amount in given.items():
            if amount is not None:
                checked(resource, amount)
        requests = amounts(self.requests, cpu=self.cpu, memory=self.memory)
        limits = amounts(self.limits)
        if self.memory is not None:
            # A pod that grows beyond it is killed alone, and not another one of the machine.
            limits.setdefault("memory", str(self.memory))
        if self.gpu is not None:
            # Kubernetes requires a limit for devices and uses it as the request.
            limits.setdefault(wellknown.NVIDIA_GPU, str(self.gpu))
            requests.setdefault(wellknown.NVIDIA_GPU, str(self.gpu))
        return {
            "name": self.name or "main",
            "image": self.image,
            **_without_empty(
                command=argv(self.command),
                args=list(self.args),
                workingDir=self.working_dir,
                env=[{"name": key, "value": value} for key, value in self.env.items()],
                resources=_without_empty(requests=requests, limits=limits),
            ),
        }


@dataclass(kw_only=True)
class Job:
    """A Volcano Job: tasks that are scheduled together, in a queue.

    `retries` is how often each failed index of an array is retried, and how often any other job is
    restarted after a pod failed.

    Example:
        Job("train", [Task("worker", command="python train.py", replicas=4)], queue="ml")
    """

    name: str = field(kw_only=False)
    tasks: Sequence[Task] = field(default=(), kw_only=False)
    namespace: str = ""
    queue: str = ""
    min_available: int | None = None
    plugins: Mapping[str, Sequence[str]] = field(default_factory=dict)
    policies: Mapping[str, str] = field(default_factory=dict)
    priority_class: str = ""
    max_retry: int | None = None
    retries: int = 0
    ttl_s: int | None = None
    scheduler: str = wellknown.DEFAULT_SCHEDULER
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Manifest = field(default_factory=dict)

    @classmethod
    def array(cls, name: str, indices: str, *, retries: int = 0, **task: Any) -> Self:
        """Return a job that runs one command for each index, such as `0-99%10`.

        The other arguments are those of Task. A pod finds its index in `$HEKLA_ARRAY_INDEX`.

        Example:
            Job.array("sweep", "0-99%10", command="python train.py --seed $HEKLA_ARRAY_INDEX")
        """
        return cls(name, [Task(task.pop("task", "worker"), array=indices, **task)], retries=retries)

    def manifest(self) -> Manifest:
        """Return the Job object."""
        spec: Manifest = {"schedulerName": self.scheduler}
        if self.min_available is not None:
            spec["minAvailable"] = self.min_available
        indices = next((task.array for task in self.tasks if task.array), "")
        if self.retries and not indices and (self.policies or self.max_retry is not None):
            raise ValueError(
                f"job {self.name!r} has retries={self.retries} and policies or max_retry; "
                "keep the retries, or write a policy for PodFailed"
            )
        spec |= _without_empty(
            queue=self.queue,
            priorityClassName=self.priority_class,
            plugins={name: list(arguments) for name, arguments in self.plugins.items()},
            policies=policies(self.policies),
        )
        if self.retries and not indices:
            spec["policies"] = policies({JobEvent.POD_FAILED: Action.RESTART_JOB})
            spec["maxRetry"] = self.retries
        if self.max_retry is not None:
            spec["maxRetry"] = self.max_retry
        if self.ttl_s is not None:
            spec["ttlSecondsAfterFinished"] = self.ttl_s
        spec["tasks"] = [task.manifest() for task in self.tasks]
        annotations = {**self.annotations, **self._marks(indices)}
        return {
            "apiVersion": wellknown.BATCH_API,
            "kind": "Job",
            "metadata": _metadata(self.name, self.namespace, self.labels, annotations),
            "spec": merged(spec, self.spec),
        }

    def _marks(self, indices: str) -> dict[str, str]:
        """Return the annotations of an array."""
        if not indices:
            return {}
        marks = arrays.parse(indices).annotations()
        return marks | ({wellknown.ARRAY_RETRIES: str(self.retries)} if self.retries else {})


@dataclass(kw_only=True)
class Queue:
    """A queue with a weight and resource amounts.

    `guarantee` is reserved for the queue, `deserved` is reclaimed from other queues on demand,
    `capability` is its upper limit.

    Example:
        Queue("ml", weight=3, capability={"nvidia.com/gpu": 8})
    """

    name: str = field(kw_only=False)
    weight: int = 1
    parent: str = ""
    guarantee: Mapping[str, Amount] = field(default_factory=dict)
    deserved: Mapping[str, Amount] = field(default_factory=dict)
    capability: Mapping[str, Amount] = field(default_factory=dict)
    reclaimable: bool | None = None
    priority: int | None = None
    dequeue_strategy: str = ""
    type: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Manifest = field(default_factory=dict)

    def manifest(self) -> Manifest:
        """Return the Queue object."""
        spec: Manifest = {"weight": self.weight}
        if self.guarantee:
            spec["guarantee"] = {"resource": amounts(self.guarantee)}
        if self.reclaimable is not None:
            spec["reclaimable"] = self.reclaimable
        if self.priority is not None:
            spec["priority"] = self.priority
        spec |= _without_empty(
            parent=self.parent,
            deserved=amounts(self.deserved),
            capability=amounts(self.capability),
            dequeueStrategy=self.dequeue_strategy,
            type=self.type,
        )
        return {
            "apiVersion": wellknown.SCHEDULING_API,
            "kind": "Queue",
            "metadata": _metadata(self.name, "", self.labels, self.annotations),
            "spec": merged(spec, self.spec),
        }


def argv(command: Command) -> list[str]:
    """Return the argument list of a command; a string is run by the shell."""
    if isinstance(command, str):
        return ["sh", "-c", verbatim(command)] if command else []
    return [verbatim(word) for word in command]


def verbatim(text: str) -> str:
    """Escape `$$` and `$(NAME)` in a text that Kubernetes expands."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def amounts(given: Mapping[str, Amount], **named: Amount | None) -> dict[str, str]:
    """Return resource amounts as strings, without those that are None."""
    texts = {name: str(amount) for name, amount in named.items() if amount is not None}
    return texts | {name: str(amount) for name, amount in given.items()}


def policies(given: Mapping[str, str]) -> list[Manifest]:
    return [{"event": event, "action": action} for event, action in given.items()]


def merged(base: Manifest, over: Mapping[str, Any]) -> Manifest:
    """Merge `over` into `base`: objects are merged, lists are replaced."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        both = isinstance(value, Mapping) and isinstance(below, dict)
        result[key] = merged(below, value) if both and below is not None else copy_json(value)
    return result


def _metadata(
    name: str, namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Manifest:
    return {
        "name": name,
        **_without_empty(namespace=namespace, labels=dict(labels), annotations=dict(annotations)),
    }


def _without_empty(**fields: Any) -> Manifest:
    return {name: value for name, value in fields.items() if value}
