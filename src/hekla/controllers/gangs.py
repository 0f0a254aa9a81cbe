"""Gangs of other projects' workloads: JobSet, LeaderWorkerSet, RayCluster, and Kubeflow's jobs.

Their pods have many direct owners, such as the Jobs of a JobSet, or an owner whose pods are of
several kinds. `gang_of` reads from the workload which pods must run together: their number and
their templates. Workloads whose pods come one after the other, such as an Argo Workflow, are not
gangs: their group has a minimum of one.

Note: pods that are created only after others are ready must not be part of the minimum. The others
would wait for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hekla.api.pod_resources import Amounts, add, quota_usage
from hekla.units.objects import Object

PodSpec = Object
Members = list[tuple[int, PodSpec]]


@dataclass(frozen=True, slots=True)
class Gang:
    """The pods of a workload that must run together, by template, and its own wishes."""

    members: Members
    minimum: int | None = None
    """What the workload says; by default all members."""
    queue: str = ""
    priority_class: str = ""

    @property
    def min_member(self) -> int:
        total = sum(count for count, _ in self.members)
        return max(total if self.minimum is None else self.minimum, 1)

    def scheduled_by(self, schedulers: Sequence[str]) -> Gang:
        """Return the part of the gang that these schedulers place; all if templates name none."""
        own = [each for each in self.members if each[1].get("schedulerName") in schedulers]
        return replace(self, members=own) if own else self

    def resources(self, minimum: int) -> Amounts:
        """Return the requests of the first `minimum` pods."""
        total: Amounts = {}
        left = minimum
        for count, spec in self.members:
            taken = min(count, left)
            if taken > 0:
                usage = quota_usage(spec)
                add(total, {name: amount * taken for name, amount in usage.items()})
            left -= taken
        return total


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind of another project: its plural, and how to read a gang from it.

    `gang` returns None if the pods do not start together: each direct owner is then a group.
    """

    plural: str
    gang: Callable[[Object], Gang | None]
    is_grouped_by_leader: bool = False
    """Whether each leader pod and its workers are a gang, not the whole workload."""


def _at(obj: Any, *path: str) -> Any:
    for step in path:
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def _number(value: Any, default: int) -> int:
    return value if isinstance(value, int) and value >= 0 else default


def _pod_spec(holder: Any) -> PodSpec:
    return _at(holder, "template", "spec") or {}


def _pods_of_job(spec: Any) -> int:
    """Return how many pods of a Kubernetes Job run at a time."""
    parallelism = _number(_at(spec, "parallelism"), 1)
    return min(parallelism, _number(_at(spec, "completions"), parallelism))


def job_gang(job: Object) -> Gang:
    """Return the gang of one Job of a JobSet whose Jobs start in order."""
    spec = job.get("spec") or {}
    return Gang([(_pods_of_job(spec), _pod_spec(spec))])


def _job_set(obj: Object) -> Gang | None:
    jobs = _at(obj, "spec", "replicatedJobs") or []
    in_order = _at(obj, "spec", "startupPolicy", "startupPolicyOrder") == "InOrder"
    if in_order or any(_at(each, "dependsOn") for each in jobs):
        return None
    members: Members = []
    for each in jobs:
        job = _at(each, "template", "spec") or {}
        members.append((_number(_at(each, "replicas"), 1) * _pods_of_job(job), _pod_spec(job)))
    return Gang(members)


def _leader_worker_set(obj: Object) -> Gang:
    both = _at(obj, "spec", "leaderWorkerTemplate") or {}
    worker = _at(both, "workerTemplate", "spec") or {}
    leader = _at(both, "leaderTemplate", "spec") or worker
    # With LeaderReady the workers are created when the leader is ready.
    waits = _at(obj, "spec", "startupPolicy") == "LeaderReady"
    workers = _number(_at(both, "size"), 1) - 1
    return Gang([(1, leader), (max(workers, 0), worker)], minimum=1 if waits else None)


def _ray_cluster(obj: Object) -> Gang:
    spec = obj.get("spec") or {}
    scales = bool(_at(spec, "enableInTreeAutoscaling"))
    members: Members = [(1, _pod_spec(_at(spec, "headGroupSpec")))]
    for group in _at(spec, "workerGroupSpecs") or []:
        least = _number(_at(group, "minReplicas"), 0)
        wanted = least if scales else max(_number(_at(group, "replicas"), least), least)
        if not _at(group, "suspend"):
            members.append((wanted * _number(_at(group, "numOfHosts"), 1), _pod_spec(group)))
    return Gang(members)


def _kubeflow(field: str) -> Callable[[Object], Gang]:
    """Return the reader of a Kubeflow job with its replicas under `field`."""

    def gang(obj: Object) -> Gang:
        spec = obj.get("spec") or {}
        policy = _at(spec, "runPolicy", "schedulingPolicy") or {}
        minimum = _at(policy, "minAvailable")
        return Gang(
            list(_replicas(spec, field)),
            minimum=minimum if isinstance(minimum, int) and minimum > 0 else None,
            queue=str(_at(policy, "queue") or ""),
            priority_class=str(_at(policy, "priorityClass") or ""),
        )

    return gang


def _replicas(spec: Object, field: str) -> Iterator[tuple[int, PodSpec]]:
    late_launcher = _at(spec, "launcherCreationPolicy") == "WaitForWorkersReady"
    elastic = _at(spec, "elasticPolicy", "minReplicas")
    # Masters and launchers first: the names sort so.
    for role, each in sorted((_at(spec, field) or {}).items()):
        count = _number(_at(each, "replicas"), 1)
        if role == "Launcher" and late_launcher:
            continue
        if role == "Worker" and isinstance(elastic, int):
            count = min(count, elastic)
        yield count, _pod_spec(each)


_VERSION: Final = re.compile(r"v[0-9]+((alpha|beta)[0-9]+)?")
_KUBEFLOW: Final = {
    "MPIJob": ("mpijobs", "mpiReplicaSpecs"),
    "PyTorchJob": ("pytorchjobs", "pytorchReplicaSpecs"),
    "TFJob": ("tfjobs", "tfReplicaSpecs"),
    "XGBoostJob": ("xgboostjobs", "xgbReplicaSpecs"),
    "PaddleJob": ("paddlejobs", "paddleReplicaSpecs"),
    "JAXJob": ("jaxjobs", "jaxReplicaSpecs"),
}
WORKLOADS: Final[Mapping[tuple[str, str], Workload]] = {
    ("jobset.x-k8s.io", "JobSet"): Workload("jobsets", _job_set),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): Workload(
        "leaderworkersets", _leader_worker_set, is_grouped_by_leader=True
    ),
    ("ray.io", "RayCluster"): Workload("rayclusters", _ray_cluster),
} | {
    ("kubeflow.org", kind): Workload(plural, _kubeflow(field))
    for kind, (plural, field) in _KUBEFLOW.items()
}
"""By API group and kind."""


def workload_of(reference: Mapping[str, Any]) -> Workload | None:
    """Return the workload that an owner reference names, or None for any other kind."""
    group, _, version = str(reference.get("apiVersion") or "").partition("/")
    if not _VERSION.fullmatch(version):
        return None
    return WORKLOADS.get((group, str(reference.get("kind") or "")))
