"""The same gang as objects of each scheduler's API.

Note: Volcano's PodGroup, Kubernetes' own and Coscheduling's are three kinds of three API groups
with the same name; Volcano's Job and that of batch/v1 are two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tools.peers import kueue

from bench.sidebyside import cases
from bench.sidebyside.cases import NAMESPACE, Case
from hekla.api import wellknown
from hekla.kube.resources import BATCH_JOBS, JOBS, PODGROUPS, Resource, resource

Json = dict[str, Any]


@dataclass(frozen=True)
class Dialect:
    """The kind of a gang object, its spec, and how pods refer to it."""

    kind: Resource[Json]
    spec: Callable[[Case], Json]
    metadata: Callable[[str], Json] = lambda _: {}
    pod_spec: Callable[[str], Json] = lambda _: {}

    def group(self, case: Case, name: str) -> Json:
        return {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": self.spec(case),
        }

    def mark(self, pod: Json, gang: str) -> Json:
        """Return the pod as a member of the gang."""
        metadata = dict(pod["metadata"])
        for key, added in self.metadata(gang).items():
            metadata[key] = {**metadata.get(key, {}), **added}
        return {**pod, "metadata": metadata, "spec": {**pod["spec"], **self.pod_spec(gang)}}


def _least(case: Case) -> int:
    return case.size if case.is_gang else 1


def _volcano(case: Case) -> Json:
    priority = {"priorityClassName": case.priority} if case.priority else {}
    return {"minMember": _least(case), "queue": case.queue, **priority}


VOLCANO = Dialect(
    PODGROUPS,
    _volcano,
    metadata=lambda gang: {"annotations": {wellknown.GROUP_NAME: gang}},
)
KUBERNETES = Dialect(
    resource("scheduling.k8s.io/v1alpha2", "podgroups", kind="PodGroup"),
    lambda case: {"schedulingPolicy": {"gang": {"minCount": _least(case)}}},
    pod_spec=lambda gang: {"schedulingGroup": {"podGroupName": gang}},
)
COSCHEDULING = Dialect(
    resource("scheduling.x-k8s.io/v1alpha1", "podgroups", kind="PodGroup"),
    lambda case: {"minMember": _least(case)},
    metadata=lambda gang: {"labels": {"scheduling.x-k8s.io/pod-group": gang}},
)


@dataclass(frozen=True)
class JobDialect:
    """The kind of a Job, and how a gang is written as one."""

    kind: Resource[Json]
    body: Callable[[Case, str, str], Json]
    """Arguments: the case, the name of the gang and of the scheduler."""


def _kueue_job(case: Case, name: str, scheduler: str) -> Json:
    return {
        "apiVersion": BATCH_JOBS.api_version,
        "kind": BATCH_JOBS.kind,
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {kueue.QUEUE_LABEL: kueue.QUEUE},
        },
        # As Kueue's admission sets it: suspended until Kueue admits it.
        "spec": {
            "suspend": True,
            "parallelism": case.size,
            "completions": case.size,
            "template": {"spec": {**cases.pod_spec(), "schedulerName": scheduler}},
        },
    }


VOLCANO_JOB = JobDialect(JOBS, cases.job)
KUEUE_JOB = JobDialect(BATCH_JOBS, _kueue_job)
