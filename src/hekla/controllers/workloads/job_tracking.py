"""Count the ended pods of a Job, each exactly once. Pure.

Every pod of a Job has a finalizer, so none disappears uncounted. The UID of an ended pod is first
added to `status.uncountedTerminatedPods`, then the finalizer is removed, and then the UID moves
from the list into the counts. After a crash between two of these, the next reconciliation
continues.

Note: `succeeded` and `failed` in the status lag. The true number is the count plus the list; only
`PodCounts` adds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hekla.api.wellknown import PodPhase
from hekla.controllers.objects import annotations_of, is_deleting, status_of, uid_of
from hekla.controllers.workloads import indexes
from hekla.controllers.workloads.pod_failure_policy import (
    FAIL_INDEX,
    FAIL_JOB,
    IGNORE,
    failure_action,
)
from hekla.controllers.workloads.pods import phase_of
from hekla.units.objects import Object

FINALIZER: Final = "batch.kubernetes.io/job-tracking"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
MAX_UNCOUNTED: Final = 500


def index_of(pod: Object) -> int | None:
    """Return the completion index of a pod."""
    text = annotations_of(pod).get(INDEX, "")
    return int(text) if text.isdecimal() else None


def is_tracked(pod: Object) -> bool:
    """Return whether a pod has the tracking finalizer."""
    return FINALIZER in (pod["metadata"].get("finalizers") or ())


def is_failed(job: Object, pod: Object) -> bool:
    """Return whether a pod counts as failed.

    A deleted pod counts before it has ended, unless `podReplacementPolicy` is Failed.
    """
    if phase_of(pod) == PodPhase.SUCCEEDED:
        return False
    if phase_of(pod) == PodPhase.FAILED:
        return True
    waits_for_end = job["spec"].get("podReplacementPolicy") == "Failed"
    return is_deleting(pod) and (not waits_for_end or not pod["spec"].get("nodeName"))


@dataclass
class PodCounts:
    """The pod counts of a job, and what of them must be written."""

    succeeded: int
    failed: int
    completed: set[int] = field(default_factory=set)
    failed_indexes: set[int] = field(default_factory=set)
    uncounted: dict[str, list[str]] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    """The counts in the status, without the lists."""
    to_release: list[Object] = field(default_factory=list)
    """Pods whose finalizer can be removed once the lists are written."""
    fails_job: str = ""
    """Why a failed pod fails the job, by the pod failure policy."""

    @classmethod
    def of(cls, job: Object, pods: Sequence[Object]) -> PodCounts:
        spec, status = job["spec"], status_of(job)
        is_indexed = spec.get("completionMode") == "Indexed"
        limit = int(spec.get("completions") or 0)
        counts = cls(int(status.get("succeeded") or 0), int(status.get("failed") or 0))
        if is_indexed:
            counts.completed = indexes.parse(status.get("completedIndexes"), limit)
            counts.failed_indexes = indexes.parse(status.get("failedIndexes"), limit)
        counts._settle_uncounted(status, {uid_of(pod): pod for pod in pods})
        for pod in pods:
            if sum(map(len, counts.uncounted.values())) >= MAX_UNCOUNTED:
                break
            counts._count_pod(job, pod, is_indexed, limit)
        counts.succeeded = counts.counted["succeeded"] + len(counts.uncounted["succeeded"])
        counts.failed = counts.counted["failed"] + len(counts.uncounted["failed"])
        if is_indexed:
            counts.succeeded = counts.counted["succeeded"] = len(counts.completed)
        return counts

    def _settle_uncounted(self, status: Object, pods: Mapping[str, Object]) -> None:
        """Move UIDs of deleted pods and pods without the finalizer from the lists to the counts."""
        self.counted = {"succeeded": self.succeeded, "failed": self.failed}
        listed = status.get("uncountedTerminatedPods") or {}
        for outcome in ("succeeded", "failed"):
            waiting = []
            for uid in listed.get(outcome) or ():
                if uid in pods and is_tracked(pods[uid]):
                    waiting.append(uid)
                    self.to_release.append(pods[uid])
                else:
                    self.counted[outcome] += 1
            self.uncounted[outcome] = waiting

    def _count_pod(self, job: Object, pod: Object, is_indexed: bool, limit: int) -> None:
        uid = uid_of(pod)
        if not is_tracked(pod) or any(uid in listed for listed in self.uncounted.values()):
            return
        index = index_of(pod)
        if phase_of(pod) == PodPhase.SUCCEEDED:
            if not is_indexed:
                self.uncounted["succeeded"].append(uid)
            elif index is not None and index < limit:
                self.completed.add(index)
        elif is_failed(job, pod):
            action, why = failure_action(job, pod)
            self.fails_job = self.fails_job or (why if action == FAIL_JOB else "")
            if is_indexed and index is not None and index < limit:
                self._count_index(job, pod, index, action)
            if action != IGNORE:
                self.uncounted["failed"].append(uid)
        else:
            return
        self.to_release.append(pod)

    def _count_index(self, job: Object, pod: Object, index: int, action: str) -> None:
        limit = job["spec"].get("backoffLimitPerIndex")
        if limit is None or index in self.completed:
            return
        if action == FAIL_INDEX or (action != IGNORE and failures(pod) >= int(limit)):
            self.failed_indexes.add(index)

    def status(self, is_indexed: bool, is_per_index: bool) -> Object:
        """Return the count fields of the status."""
        result: Object = {
            "succeeded": self.counted["succeeded"],
            "failed": self.counted["failed"],
            "uncountedTerminatedPods": {k: v for k, v in self.uncounted.items() if v},
        }
        if is_indexed and self.completed:
            result["completedIndexes"] = indexes.write(self.completed)
        if is_per_index:
            result["failedIndexes"] = indexes.write(self.failed_indexes)
        return result


def failures(pod: Object) -> int:
    """Return how often the pod's index had failed before."""
    text = annotations_of(pod).get(FAILURES, "0")
    return int(text) if text.isdecimal() else 0
