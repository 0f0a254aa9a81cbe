"""Rules of apps/v1 and batch/v1: replicas, selectors that match the template, immutable fields."""

from __future__ import annotations

from typing import Any, Final

from hekla.api.rules import pods
from hekla.api.rules.claims import claim_spec
from hekla.api.rules.fields import (
    FieldErrors,
    at_least,
    forbidden,
    invalid,
    one_of,
    required,
)
from hekla.api.rules.placement import label_selector
from hekla.units.errors import SelectorError
from hekla.units.objects import Object
from hekla.units.selectors import LabelSelector

ALWAYS: Final = ("Always",)
ENDING: Final = ("Never", "OnFailure")
MAX_INDEXES: Final = 100_000
COUNTS: Final = (
    "activeDeadlineSeconds",
    "backoffLimit",
    "completions",
    "failedJobsHistoryLimit",
    "minReadySeconds",
    "parallelism",
    "progressDeadlineSeconds",
    "replicas",
    "revisionHistoryLimit",
    "startingDeadlineSeconds",
    "successfulJobsHistoryLimit",
    "ttlSecondsAfterFinished",
)


def replicas(path: str, spec: Object, selector: Object | None) -> FieldErrors:
    """Check the common part of workloads: counts, selector, matching template."""
    yield from counts(path, spec)
    template = spec.get("template")
    yield from pods.template(f"{path}.template", template, ALWAYS)
    yield from label_selector(f"{path}.selector", selector)
    if selector is None:
        yield required(f"{path}.selector")
        return
    if not any(selector.values()):
        yield invalid(f"{path}.selector", selector, "an empty selector would own every pod")
        return
    try:
        matcher = LabelSelector.from_dict(_filled(selector))
    except SelectorError:
        return  # reported already
    labels = ((template or {}).get("metadata") or {}).get("labels") or {}
    if not matcher.matches(labels):
        yield invalid(
            f"{path}.template.metadata.labels", labels, "`selector` does not match these labels"
        )


def _filled(selector: Object) -> Object:
    return {name: value for name, value in selector.items() if value}


def counts(path: str, spec: Object) -> FieldErrors:
    for field in COUNTS:
        if spec.get(field) is not None:
            yield from at_least(f"{path}.{field}", spec[field], 0)


def deployment(obj: Object, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    yield from replicas("spec", spec, spec.get("selector"))
    kind = (spec.get("strategy") or {}).get("type")
    yield from one_of("spec.strategy.type", kind, ("Recreate", "RollingUpdate"))
    yield from _same_selector(spec, old)


def replica_set(obj: Object, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    yield from replicas("spec", spec, spec.get("selector"))
    yield from _same_selector(spec, old)


def daemon_set(obj: Object, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    yield from replicas("spec", spec, spec.get("selector"))
    kind = (spec.get("updateStrategy") or {}).get("type")
    yield from one_of("spec.updateStrategy.type", kind, ("OnDelete", "RollingUpdate"))
    yield from _same_selector(spec, old)


_STATEFUL_MUTABLE: Final = {
    "minReadySeconds",
    "ordinals",
    "persistentVolumeClaimRetentionPolicy",
    "replicas",
    "revisionHistoryLimit",
    "template",
    "updateStrategy",
}


def stateful_set(obj: Object, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    claims = spec.get("volumeClaimTemplates") or ()
    for index, claim in enumerate(claims):
        yield from claim_spec(f"spec.volumeClaimTemplates[{index}].spec", claim.get("spec") or {})
    # Claims become volumes of the pods, so mounts may refer to them.
    yield from replicas("spec", _with_claims(spec, claims), spec.get("selector"))
    policy = spec.get("podManagementPolicy")
    yield from one_of("spec.podManagementPolicy", policy, ("OrderedReady", "Parallel"))
    kind = (spec.get("updateStrategy") or {}).get("type")
    yield from one_of("spec.updateStrategy.type", kind, ("OnDelete", "RollingUpdate"))
    if old is not None:
        before = old.get("spec") or {}
        fixed = (spec.keys() | before.keys()) - _STATEFUL_MUTABLE
        changed = sorted(f for f in fixed if (spec.get(f) or None) != (before.get(f) or None))
        if changed:
            yield forbidden(
                "spec",
                f"only {', '.join(sorted(_STATEFUL_MUTABLE))} may change; changed: "
                + ", ".join(changed),
            )


def _with_claims(spec: Object, claims: Any) -> Object:
    template = spec.get("template") or {}
    if not claims or not template.get("spec"):
        return spec
    named: list[Object] = [
        {"name": (c.get("metadata") or {}).get("name"), "emptyDir": {}} for c in claims
    ]
    inner = template["spec"]
    taken = {v["name"] for v in named}
    kept = [v for v in inner.get("volumes") or () if v.get("name") not in taken]
    return {**spec, "template": {**template, "spec": {**inner, "volumes": kept + named}}}


def _same_selector(spec: Object, old: Object | None) -> FieldErrors:
    if old is not None:
        before = (old.get("spec") or {}).get("selector")
        if spec.get("selector") != before:
            yield invalid("spec.selector", spec.get("selector"), "field is immutable")


def job(obj: Object, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    yield from job_spec("spec", spec)
    if old is None:
        return
    before = old.get("spec") or {}
    fixed = ["completionMode", "podFailurePolicy", "backoffLimitPerIndex"]
    if spec.get("completionMode") != "Indexed":
        fixed.append("completions")  # an indexed job may scale with its parallelism
    if before.get("selector"):
        fixed.append("selector")
    if not before.get("suspend"):
        fixed.append("template")  # a suspended job may still change its node selection
    for field in fixed:
        if spec.get(field) != before.get(field):
            yield invalid(f"spec.{field}", spec.get(field), "field is immutable")


def job_spec(path: str, spec: Object) -> FieldErrors:
    yield from counts(path, spec)
    if spec.get("completionMode"):
        mode = spec["completionMode"]
        yield from one_of(f"{path}.completionMode", mode, ("Indexed", "NonIndexed"))
        if mode == "Indexed" and spec.get("completions") is None:
            yield required(f"{path}.completions", "an Indexed job has a number of completions")
        for field in ("completions", "parallelism"):
            if mode == "Indexed" and (spec.get(field) or 0) > MAX_INDEXES:
                yield invalid(f"{path}.{field}", spec[field], f"must be at most {MAX_INDEXES}")
    yield from pods.template(f"{path}.template", spec.get("template"), ENDING)


def cron_job(obj: Object, old: Object | None) -> FieldErrors:
    name = (obj.get("metadata") or {}).get("name") or ""
    if len(name) > 52:
        # Job names append a time of 11 characters.
        yield invalid("metadata.name", name, "must be no more than 52 characters")
    spec = obj.get("spec") or {}
    yield from counts("spec", spec)
    schedule = spec.get("schedule") or ""
    if not schedule:
        yield required("spec.schedule")
    elif "TZ" in schedule:
        yield invalid("spec.schedule", schedule, "use timeZone instead of TZ or CRON_TZ")
    elif not schedule.startswith("@") and len(schedule.split()) != 5:
        yield invalid(
            "spec.schedule", schedule, "must have five fields, or be a name such as @hourly"
        )
    policy = spec.get("concurrencyPolicy")
    yield from one_of("spec.concurrencyPolicy", policy, ("Allow", "Forbid", "Replace"))
    inner = (spec.get("jobTemplate") or {}).get("spec")
    if not inner:
        yield required("spec.jobTemplate.spec")
    else:
        yield from job_spec("spec.jobTemplate.spec", inner)


def controller_revision(obj: Object, old: Object | None) -> FieldErrors:
    if old is not None and obj.get("data") != old.get("data"):
        yield invalid("data", obj.get("data"), "field is immutable")


TABLE = (
    ("apps/v1", "Deployment", deployment),
    ("apps/v1", "ReplicaSet", replica_set),
    ("apps/v1", "StatefulSet", stateful_set),
    ("apps/v1", "DaemonSet", daemon_set),
    ("apps/v1", "ControllerRevision", controller_revision),
    ("batch/v1", "Job", job),
    ("batch/v1", "CronJob", cron_job),
)
