"""Reconcile Kubernetes' Jobs: run pods until enough have succeeded. Pure.

`next_step` has two parts. First it counts the ended pods (`job_tracking`) and checks whether the
job is finished; a finished job gets a condition (`SuccessCriteriaMet`, `FailureTarget`), its
running pods are deleted, and it ends when they have. For any other job it then creates or deletes
pods.

Note: the status is written before finalizers are removed and before pods are created. What a crash
loses can then be decided again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hekla.controllers.objects import is_deleting, seconds, status_of
from hekla.controllers.workloads import indexes
from hekla.controllers.workloads.effects import (
    Delete,
    Effect,
    EmitEvent,
    RequeueAfter,
    SetStatus,
    requeue,
)
from hekla.controllers.workloads.job_pods import sync_pods, without_finalizer
from hekla.controllers.workloads.job_tracking import (
    PodCounts,
)
from hekla.controllers.workloads.job_view import JobView
from hekla.controllers.workloads.pods import (
    condition,
    is_active,
    is_finished,
    is_ready,
    label_selector,
    release_and_adopt,
    with_condition,
)
from hekla.kube.resources import BATCH_JOBS, PODS
from hekla.units.objects import Object
from hekla.units.patches import create_merge_patch
from hekla.units.timestamps import format_time

MANAGER: Final = "kubernetes.io/job-controller"
COMPLETE, FAILED = "Complete", "Failed"
MET, TARGET, SUSPENDED = "SuccessCriteriaMet", "FailureTarget", "Suspended"


@dataclass(frozen=True)
class FinishedCondition:
    """The condition by which a job is going to finish."""

    kind: str
    reason: str
    message: str


def holds(job: Object, kind: str) -> bool:
    """Return whether a condition of a job is True."""
    return (condition(job, kind) or {}).get("status") == "True"


def is_job_finished(job: Object) -> bool:
    return holds(job, COMPLETE) or holds(job, FAILED)


def next_step(view: JobView) -> list[Effect]:
    """Return the effects that reconcile a job."""
    if view.spec.get("managedBy") not in (None, "", MANAGER):
        return []
    if is_job_finished(view.job):
        return _after_finish(view)
    selector = label_selector(view.spec.get("selector"))
    taken = release_and_adopt(BATCH_JOBS, view.job, selector, PODS, view.pods, view.orphans)
    if taken:
        return [*taken, RequeueAfter(0.0)]
    counts = PodCounts.of(view.job, view.pods)
    finished = _finished_condition(view, counts)
    effects: list[Effect] = []
    patch = create_merge_patch(status_of(view.job), _status(view, counts, finished))
    if patch:
        effects.append(SetStatus(patch))
    effects += _events(view, finished, patch)
    effects += [without_finalizer(pod) for pod in counts.to_release]
    if is_deleting(view.job):
        return effects
    if finished is not None:
        to_delete = (pod for pod in view.pods if is_active(pod))
        return [*effects, *(Delete(PODS, pod) for pod in to_delete)]
    deadline_s = _deadline_in(view)
    return [*effects, *sync_pods(view, counts), *requeue(deadline_s)]


def _after_finish(view: JobView) -> list[Effect]:
    """Delete a finished job after `ttlSecondsAfterFinished`, counted from its end."""
    ttl_s = view.spec.get("ttlSecondsAfterFinished")
    ended = condition(view.job, COMPLETE if holds(view.job, COMPLETE) else FAILED) or {}
    ended_at = seconds(ended.get("lastTransitionTime"))
    leftover: list[Effect] = [Delete(PODS, pod) for pod in view.pods if is_active(pod)]
    leftover += [without_finalizer(pod) for pod in PodCounts.of(view.job, view.pods).to_release]
    if ttl_s is None or ended_at is None or is_deleting(view.job):
        return leftover
    left_s = ended_at + float(ttl_s) - view.now
    return [*leftover, Delete(BATCH_JOBS, view.job) if left_s <= 0 else RequeueAfter(left_s + 0.01)]


# Finished condition


def _finished_condition(view: JobView, counts: PodCounts) -> FinishedCondition | None:
    """Return the condition by which the job finishes, if any; an existing condition stays."""
    for kind in (TARGET, MET):
        known = condition(view.job, kind)
        if known is not None and known.get("status") == "True":
            return FinishedCondition(
                kind, str(known.get("reason")), str(known.get("message") or "")
            )
    return _failure(view, counts) or _success(view, counts)


def _failure(view: JobView, counts: PodCounts) -> FinishedCondition | None:
    if counts.fails_job:
        return FinishedCondition(TARGET, "PodFailurePolicy", counts.fails_job)
    limit = view.number("backoffLimit", 6)
    if counts.failed > limit or _restarts(view) > max(limit - 1, 0):
        message = "Job has reached the specified backoff limit"
        return FinishedCondition(TARGET, "BackoffLimitExceeded", message)
    deadline_s = _deadline_in(view)
    if deadline_s is not None and deadline_s <= 0:
        message = "Job was active longer than specified deadline"
        return FinishedCondition(TARGET, "DeadlineExceeded", message)
    if view.spec.get("backoffLimitPerIndex") is not None:
        most = view.spec.get("maxFailedIndexes")
        if most is not None and len(counts.failed_indexes) > int(most):
            message = "Job has exceeded the specified maximal number of failed indexes"
            return FinishedCondition(TARGET, "MaxFailedIndexesExceeded", message)
        over = len(counts.completed | counts.failed_indexes)
        if counts.failed_indexes and over >= view.number("completions"):
            return FinishedCondition(TARGET, "FailedIndexes", "Job has failed indexes")
    return None


def _restarts(view: JobView) -> int:
    """Count container restarts, which are failures if the restart policy is OnFailure."""
    if (view.spec["template"].get("spec") or {}).get("restartPolicy") != "OnFailure":
        return 0
    return sum(
        each.get("restartCount") or 0
        for pod in view.pods
        if not is_finished(pod)
        for each in status_of(pod).get("containerStatuses") or ()
    )


def _success(view: JobView, counts: PodCounts) -> FinishedCondition | None:
    if view.is_indexed and _meets_policy(view, counts):
        return FinishedCondition(MET, "SuccessPolicy", "Matched rules at index 0")
    reached = FinishedCondition(
        MET, "CompletionsReached", "Reached expected number of succeeded pods"
    )
    completions = view.spec.get("completions")
    if completions is None:
        is_busy = any(not is_finished(pod) for pod in view.pods)
        return reached if counts.succeeded > 0 and not is_busy else None
    return reached if counts.succeeded >= int(completions) else None


def _meets_policy(view: JobView, counts: PodCounts) -> bool:
    completions = view.number("completions")
    for rule in (view.spec.get("successPolicy") or {}).get("rules") or ():
        named = rule.get("succeededIndexes")
        among = set(range(completions)) if named is None else indexes.parse(named, completions)
        need = rule.get("succeededCount")
        if len(among & counts.completed) >= (len(among) if need is None else int(need)):
            return True
    return False


def _deadline_in(view: JobView) -> float | None:
    limit_s = view.spec.get("activeDeadlineSeconds")
    started = seconds(status_of(view.job).get("startTime"))
    if limit_s is None or started is None or view.is_suspended:
        return None
    return max(0.0, started + float(limit_s) - view.now)


# Status


def _status(view: JobView, counts: PodCounts, finished: FinishedCondition | None) -> Object:
    old, now = status_of(view.job), format_time(view.now)
    active = [pod for pod in view.pods if is_active(pod)]
    terminating = sum(1 for pod in view.pods if is_deleting(pod) and not is_finished(pod))
    is_per_index = view.spec.get("backoffLimitPerIndex") is not None
    new: Object = {
        "active": len(active),
        "ready": sum(map(is_ready, active)),
        "terminating": terminating,
        **counts.status(view.is_indexed, is_per_index),
    }
    for count in ("active", "succeeded", "failed"):
        if not new[count]:
            del new[count]
    conditions: list[Object] = list(old.get("conditions") or [])
    was_suspended = holds(view.job, SUSPENDED)
    if finished is None and view.is_suspended and not was_suspended:
        conditions = _set_condition(
            conditions, SUSPENDED, True, "JobSuspended", "Job suspended", now
        )
    elif was_suspended and not view.is_suspended:
        conditions = _set_condition(conditions, SUSPENDED, False, "JobResumed", "Job resumed", now)
    if not view.is_suspended:
        new["startTime"] = now if was_suspended else old.get("startTime") or now
    elif old.get("startTime") and not was_suspended:
        new["startTime"] = old["startTime"]
    if finished is not None:
        conditions = _set_condition(
            conditions, finished.kind, True, finished.reason, finished.message, now
        )
        quiet = not active and not terminating and not any(counts.uncounted.values())
        if quiet and not counts.to_release:
            end = COMPLETE if finished.kind == MET else FAILED
            conditions = _set_condition(
                conditions, end, True, finished.reason, finished.message, now
            )
            if end == COMPLETE:
                new["completionTime"] = now
    if conditions:
        new["conditions"] = conditions
    return new


def _set_condition(
    conditions: list[Object], kind: str, is_true: bool, reason: str, message: str, now: str
) -> list[Object]:
    if any(e["type"] == kind and e["status"] == str(is_true) for e in conditions):
        return conditions
    stamped = {"lastProbeTime": now, "lastTransitionTime": now}
    return with_condition(conditions, kind, is_true, reason, message, now, stamped=stamped)


def _events(view: JobView, finished: FinishedCondition | None, patch: Object) -> list[Effect]:
    set_now = {e["type"]: e for e in patch.get("conditions") or ()}
    if COMPLETE in set_now:
        return [EmitEvent("Normal", "Completed", "Job completed")]
    if FAILED in set_now and finished is not None:
        return [EmitEvent("Warning", finished.reason, finished.message)]
    if SUSPENDED in set_now and view.is_suspended != holds(view.job, SUSPENDED):
        change = "Suspended" if view.is_suspended else "Resumed"
        return [EmitEvent("Normal", change, f"Job {change.lower()}")]
    return []
