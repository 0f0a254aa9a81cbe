"""The input of a decision about one job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hekla.api import arrays as api_arrays
from hekla.api import wellknown
from hekla.api.wellknown import JobPhase, PodPhase
from hekla.controllers.job import arrays
from hekla.controllers.job.state import Counts, Facts
from hekla.controllers.objects import annotations_of, is_deleting, job_phase, labels_of, status_of
from hekla.units.objects import Object

DEFAULT_RETRIES = 3


@dataclass(frozen=True)
class JobView:
    """A job and its dependents at one moment. The objects are shared: do not change them."""

    job: Object
    now: float
    """Unix seconds."""
    group: Object | None = None
    pods: Sequence[Object] = ()
    commands: Sequence[Object] = ()
    queue: Object | None = None
    claims: Mapping[str, bool] = field(default_factory=dict)
    """Whether the named claims exist; claims that are not listed were not looked up."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """The values of priority classes, by name."""
    ensured: str = ""
    """The digest of the plugins' objects that exist."""

    @cached_property
    def phase(self) -> str:
        return job_phase(self.job) or JobPhase.PENDING

    @cached_property
    def status(self) -> Object:
        return status_of(self.job)

    @cached_property
    def spec(self) -> Object:
        found: Object = self.job["spec"]
        return found

    @cached_property
    def tasks(self) -> list[Object]:
        return [
            task if task.get("name") else {**task, "name": wellknown.DEFAULT_TASK}
            for task in self.spec.get("tasks") or ()
        ]

    @property
    def version(self) -> int:
        return int(self.status.get("version") or 0)

    @property
    def retry_count(self) -> int:
        return int(self.status.get("retryCount") or 0)

    @property
    def reason(self) -> str:
        """The action that led to the current phase; Volcano leaves this field empty."""
        return str((self.status.get("state") or {}).get("reason") or "")

    @cached_property
    def facts(self) -> Facts:
        tasks = tuple(
            (task["name"], int(task.get("replicas") or 0), task.get("minAvailable"))
            for task in self.tasks
        )
        allowed = self.spec.get("maxRetry")
        return Facts(
            replicas=sum(replicas for _, replicas, _ in tasks),
            min_available=int(self.spec.get("minAvailable") or 0),
            tasks=tasks,
            min_success=self.spec.get("minSuccess"),
            max_retry=DEFAULT_RETRIES if allowed is None else int(allowed),
            retry_count=self.retry_count,
        )

    @cached_property
    def counts(self) -> Counts:
        """Without failed pods of an array that are retried: they do not count any more."""
        return count([pod for pod in self.pods if not arrays.is_replaced(pod, self.retries)])

    @cached_property
    def array(self) -> api_arrays.Array | None:
        return api_arrays.array_of(self.job)

    @cached_property
    def retries(self) -> Mapping[int, int]:
        """How often each index of an array was retried."""
        return arrays.retries_so_far(self.job) if self.array else {}

    @cached_property
    def by_name(self) -> dict[str, Object]:
        return {pod["metadata"]["name"]: pod for pod in self.pods}

    def is_current(self, pod: Object) -> bool:
        """Return whether events of this pod still concern the job."""
        return version_of(pod) >= self.version and wellknown.OUT_OF_SYNC not in annotations_of(pod)


_COUNTED = {
    PodPhase.PENDING: "pending",
    PodPhase.RUNNING: "running",
    PodPhase.SUCCEEDED: "succeeded",
    PodPhase.FAILED: "failed",
}


def count(pods: Sequence[Object]) -> Counts:
    """Count pods by phase and by task."""
    totals: dict[str, int] = {}
    by_task: dict[str, dict[str, int]] = {}
    for pod in pods:
        if is_deleting(pod):
            totals["terminating"] = totals.get("terminating", 0) + 1
            continue
        phase = pod_phase(pod)
        name = _COUNTED.get(phase, "unknown")
        totals[name] = totals.get(name, 0) + 1
        phases = by_task.setdefault(task_of(pod), {})
        phases[phase] = phases.get(phase, 0) + 1
    return Counts(**totals, by_task=by_task)


def pod_phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or PodPhase.PENDING)


def is_finished(pod: Object) -> bool:
    return pod_phase(pod) in (PodPhase.SUCCEEDED, PodPhase.FAILED)


def task_of(pod: Object) -> str:
    """Return the name of a pod's task."""
    return annotations_of(pod).get(wellknown.TASK_SPEC) or labels_of(pod).get(
        wellknown.TASK_SPEC, ""
    )


def index_of(pod: Object) -> int:
    """Return a pod's index in its task; -1 if it has none."""
    text = annotations_of(pod).get(wellknown.TASK_INDEX, "")
    return int(text) if text.isdecimal() else -1


def version_of(pod: Object) -> int:
    """Return the job version that a pod was created for."""
    text = annotations_of(pod).get(wellknown.JOB_VERSION, "")
    return int(text) if text.isdecimal() else 0
