"""Defaults of apps/v1 and batch/v1."""

from __future__ import annotations

from hekla.api.defaults import core, pods
from hekla.units.objects import Object

MAX_INT32 = 2**31 - 1


def deployment(obj: Object) -> None:
    spec = obj.get("spec")
    if spec is None:
        return
    _fill(spec, {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600})
    strategy = _sub(spec, "strategy")
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        _fill(_sub(strategy, "rollingUpdate"), {"maxUnavailable": "25%", "maxSurge": "25%"})
    pods.template(spec)


def replica_set(obj: Object) -> None:
    spec = obj.get("spec")
    if spec is not None:
        _fill(spec, {"replicas": 1})
        pods.template(spec)


def stateful_set(obj: Object) -> None:
    spec = obj.get("spec")
    if spec is None:
        return
    _fill(spec, {"replicas": 1, "revisionHistoryLimit": 10})
    if not spec.get("podManagementPolicy"):
        spec["podManagementPolicy"] = "OrderedReady"
    strategy = _sub(spec, "updateStrategy")
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        _sub(strategy, "rollingUpdate")
    if strategy.get("rollingUpdate") is not None:
        _fill(strategy["rollingUpdate"], {"partition": 0})
    retention = _sub(spec, "persistentVolumeClaimRetentionPolicy")
    _fill(retention, {"whenDeleted": "Retain", "whenScaled": "Retain"})
    for claim in spec.get("volumeClaimTemplates") or ():
        _fill(claim, {"apiVersion": "v1", "kind": "PersistentVolumeClaim"})
        core.claim(claim)
    pods.template(spec)


def daemon_set(obj: Object) -> None:
    spec = obj.get("spec")
    if spec is None:
        return
    _fill(spec, {"revisionHistoryLimit": 10})
    strategy = _sub(spec, "updateStrategy")
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        _fill(_sub(strategy, "rollingUpdate"), {"maxUnavailable": 1, "maxSurge": 0})
    pods.template(spec)


def job(obj: Object) -> None:
    spec = obj.get("spec")
    if spec is None:
        return
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    per_index = spec.get("backoffLimitPerIndex") is not None
    _fill(
        spec,
        {
            "parallelism": 1,
            # With a limit per index, the common limit must not apply first.
            "backoffLimit": MAX_INT32 if per_index else 6,
            "completionMode": "NonIndexed",
            "suspend": False,
            "manualSelector": False,
            "podReplacementPolicy": "Failed"
            if spec.get("podFailurePolicy")
            else "TerminatingOrFailed",
        },
    )
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            if not pattern.get("status"):
                pattern["status"] = "True"
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    metadata = obj.setdefault("metadata", {})
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)
    pods.template(spec)


def select_own_pods(job: Object) -> None:
    """Set labels that are unique to the job's pods, and the selector for them, unless given.

    Note: it needs the job's UID, so it runs when the job is created.
    """
    spec = job.get("spec")
    if not spec or spec.get("manualSelector"):
        return
    uid, name = job["metadata"]["uid"], job["metadata"]["name"]
    template = spec.setdefault("template", {})
    metadata = template.get("metadata")
    if metadata is None:
        metadata = template["metadata"] = {}
    labels = {**(metadata.get("labels") or {})}
    # The short labels are older, and many tools still use them.
    labels |= {"batch.kubernetes.io/controller-uid": uid, "controller-uid": uid}
    labels |= {"batch.kubernetes.io/job-name": name, "job-name": name}
    metadata["labels"] = labels
    selector = spec.get("selector")
    if selector is None:
        selector = spec["selector"] = {}
    matched = {**(selector.get("matchLabels") or {}), "batch.kubernetes.io/controller-uid": uid}
    selector["matchLabels"] = matched


def cron_job(obj: Object) -> None:
    spec = obj.get("spec")
    if spec is None:
        return
    if not spec.get("concurrencyPolicy"):
        spec["concurrencyPolicy"] = "Allow"
    _fill(spec, {"suspend": False, "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1})
    # The job's own defaults apply when a job is created; only its pods get them here.
    inner = (spec.get("jobTemplate") or {}).get("spec")
    if inner:
        pods.template(inner)


def _fill(target: Object, defaults: Object) -> None:
    for field, default in defaults.items():
        if target.get(field) is None:
            target[field] = default


def _sub(parent: Object, field: str) -> Object:
    value: Object | None = parent.get(field)
    if value is None:
        value = parent[field] = {}
    return value


TABLE = (
    ("apps/v1", "Deployment", deployment),
    ("apps/v1", "ReplicaSet", replica_set),
    ("apps/v1", "StatefulSet", stateful_set),
    ("apps/v1", "DaemonSet", daemon_set),
    ("batch/v1", "Job", job),
    ("batch/v1", "CronJob", cron_job),
)
