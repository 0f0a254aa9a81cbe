"""How a gang is written for each scheduler: the same load in the words that it knows.

What a newcomer gets wrong: Volcano's PodGroup, Kubernetes' own and Coscheduling's are three kinds
of three API groups that share a name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.sidebyside.cases import NAMESPACE, Case
from hekla.api import wellknown
from hekla.kube.resources import PODGROUPS, Resource, resource

Json = dict[str, Any]


@dataclass(frozen=True)
class Dialect:
    """The kind of a gang's own object, what it says, and how its pods name it."""

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
        """The pod as a member of the gang."""
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
