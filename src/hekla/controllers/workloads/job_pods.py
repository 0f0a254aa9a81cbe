"""Decide which pods of a Kubernetes Job to create and delete. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from hekla.api.wellknown import PodPhase
from hekla.controllers.objects import is_deleting, seconds, status_of, uid_of
from hekla.controllers.workloads.effects import (
    MAX_BURST,
    Create,
    Delete,
    Effect,
    Patch,
    RequeueAfter,
    requeue,
)
from hekla.controllers.workloads.job_tracking import (
    FAILURES,
    FINALIZER,
    INDEX,
    PodCounts,
    failures,
    index_of,
    is_tracked,
)
from hekla.controllers.workloads.job_view import JobView
from hekla.controllers.workloads.pods import (
    deletion_order,
    from_template,
    is_active,
    is_finished,
    phase_of,
)
from hekla.kube.resources import BATCH_JOBS, PODS
from hekla.units.objects import Object

FIRST_BACKOFF_S: Final = 10.0
MAX_BACKOFF_S: Final = 600.0


def without_finalizer(pod: Object) -> Effect:
    """Remove the finalizer of a pod that is counted or has no job."""
    kept = [each for each in pod["metadata"].get("finalizers") or () if each != FINALIZER]
    return Patch(PODS, pod, {"metadata": {"uid": uid_of(pod), "finalizers": kept or None}})


def sync_pods(view: JobView, counts: PodCounts) -> Iterable[Effect]:
    active = [pod for pod in view.pods if is_active(pod)]
    wanted = _wanted_active(view, counts, len(active))
    if len(active) > wanted:
        to_delete = _surplus_first(view, active)[: min(len(active) - wanted, MAX_BURST)]
        # The finalizer is removed first: a pod that the controller deletes has not failed.
        yield from (without_finalizer(pod) for pod in to_delete if is_tracked(pod))
        yield from (Delete(PODS, pod) for pod in to_delete)
        return
    terminating = [pod for pod in view.pods if is_deleting(pod) and not is_finished(pod)]
    waits_for_end = view.spec.get("podReplacementPolicy") == "Failed"
    missing = min(wanted - len(active) - (len(terminating) if waits_for_end else 0), MAX_BURST)
    if missing <= 0:
        return
    if view.is_indexed:
        yield from _create_indexed(
            view, counts, active + (terminating if waits_for_end else []), missing
        )
        return
    if (wait_s := backoff_s(view.pods, view.now)) > 0:
        yield RequeueAfter(wait_s + 0.01)
        return
    yield from (Create(PODS, _pod(view)) for _ in range(missing))


def _surplus_first(view: JobView, active: list[Object]) -> list[Object]:
    """Order pods for deletion; those of removed indexes come first."""
    limit = view.number("completions")
    ranked = deletion_order(active)
    if view.is_indexed:
        ranked.sort(key=lambda pod: (index_of(pod) or 0) < limit)
    return ranked


def _wanted_active(view: JobView, counts: PodCounts, active: int) -> int:
    if view.is_suspended:
        return 0
    parallelism = view.number("parallelism", 1)
    if view.spec.get("completions") is None:
        return min(active, parallelism) if counts.succeeded else parallelism
    left = view.number("completions") - counts.succeeded
    if view.is_indexed:
        left -= len(counts.failed_indexes - counts.completed)
    return max(0, min(parallelism, left))


def _create_indexed(
    view: JobView, counts: PodCounts, occupied: Sequence[Object], missing: int
) -> Iterable[Effect]:
    """Create one pod for each of the lowest free indexes."""
    taken = {index_of(pod) for pod in occupied} | counts.completed | counts.failed_indexes
    per_index = view.spec.get("backoffLimitPerIndex") is not None
    waits: list[float] = []
    common_s = 0.0 if per_index else backoff_s(view.pods, view.now)
    created = 0
    by_index: dict[int | None, list[Object]] = {}
    for pod in view.pods:
        by_index.setdefault(index_of(pod), []).append(pod)
    for index in range(view.number("completions")):
        if created >= missing:
            break
        if index in taken:
            continue
        earlier = by_index.get(index, [])
        wait_s = backoff_s(earlier, view.now) if per_index else common_s
        if wait_s > 0 and (per_index or earlier):
            waits.append(wait_s)
            continue
        failed = [failures(pod) + 1 for pod in earlier if phase_of(pod) == PodPhase.FAILED]
        created += 1
        yield Create(PODS, _pod(view, index, max(failed, default=0) if per_index else None))
    yield from requeue(min(waits, default=None))


def backoff_s(pods: Sequence[Object], now: float) -> float:
    """Return how long the next pod waits after the failures since the last success."""
    ended = [(at, phase_of(pod)) for pod in pods if is_finished(pod) and (at := _ended_at(pod))]
    good = max((at for at, phase in ended if phase == PodPhase.SUCCEEDED), default=0.0)
    bad = [at for at, phase in ended if phase == PodPhase.FAILED and at > good]
    if not bad:
        return 0.0
    delay = min(FIRST_BACKOFF_S * 2 ** min(len(bad) - 1, 16), MAX_BACKOFF_S)
    left_s: float = max(bad) + delay - now
    return max(0.0, left_s)


def _ended_at(pod: Object) -> float | None:
    times = [
        seconds(((each.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for each in status_of(pod).get("containerStatuses") or ()
    ]
    return max((each for each in times if each is not None), default=None)


def _pod(view: JobView, index: int | None = None, failed: int | None = None) -> Object:
    name = view.job["metadata"]["name"]
    pod = from_template(BATCH_JOBS, view.job, view.spec["template"])
    metadata, spec = pod["metadata"], pod["spec"]
    metadata["generateName"] = f"{name}-" if index is None else f"{name}-{index}-"
    metadata["finalizers"] = [*(metadata.get("finalizers") or ()), FINALIZER]
    if index is None:
        return pod
    metadata["labels"][INDEX] = metadata["annotations"][INDEX] = str(index)
    if failed is not None:
        metadata["annotations"][FAILURES] = str(failed)
    spec["hostname"] = spec.get("hostname") or f"{name}-{index}"[:63]
    source = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        given = container.setdefault("env", [])
        if not any(each.get("name") == "JOB_COMPLETION_INDEX" for each in given):
            given.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
    return pod
