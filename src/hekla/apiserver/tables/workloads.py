"""Columns of workloads: deployments, sets, jobs, templates and budgets."""

from __future__ import annotations

from typing import Any

from hekla.apiserver.tables.age import age, human_duration
from hekla.apiserver.tables.columns import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    SELECTOR,
    Column,
    Printer,
    flag,
    number,
    printer,
)
from hekla.apiserver.tables.formats import (
    NONE,
    UNSET,
    age_of,
    is_terminating,
    is_true,
    labels_text,
    name_of,
    part,
    selector_text,
    template_texts,
)
from hekla.units.objects import Object
from hekla.units.timestamps import TimestampError, parse_time

_DESIRED = number("Desired", "Desired number of pods.")
_CURRENT = number("Current", "Number of pods.")
_READY = number("Ready", "Number of ready pods.")


def _template(obj: Object) -> Object:
    template: Object = part(obj, "spec", "template")
    return template


def _deployment(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    return [
        name_of(obj),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age_of(obj, now),
        *template_texts(_template(obj)),
        selector_text(spec.get("selector")),
    ]


def _replicas(obj: Object, now: float) -> list[Any]:
    """Return the cells of replica sets and replication controllers."""
    spec, status = part(obj, "spec"), part(obj, "status")
    selector = spec.get("selector")
    is_controller = obj.get("kind") == "ReplicationController"  # it has a plain label selector
    return [
        name_of(obj),
        spec.get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        age_of(obj, now),
        *template_texts(_template(obj)),
        labels_text(selector) if is_controller else selector_text(selector),
    ]


def _stateful_set(obj: Object, now: float) -> list[Any]:
    ready = part(obj, "status").get("readyReplicas", 0)
    return [
        name_of(obj),
        f"{ready}/{part(obj, 'spec').get('replicas', 0)}",
        age_of(obj, now),
        *template_texts(_template(obj)),
    ]


def _daemon_set(obj: Object, now: float) -> list[Any]:
    status = part(obj, "status")
    return [
        name_of(obj),
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        labels_text(part(_template(obj), "spec").get("nodeSelector")),
        age_of(obj, now),
        *template_texts(_template(obj)),
        selector_text(part(obj, "spec").get("selector")),
    ]


def _controller_revision(obj: Object, now: float) -> list[Any]:
    controller = NONE
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            group = owner["apiVersion"].rpartition("/")[0]
            kind = f"{owner['kind']}.{group}" if group else owner["kind"]
            controller = f"{kind.lower()}/{owner['name']}"
    return [name_of(obj), controller, obj.get("revision", 0), age_of(obj, now)]


# Jobs

# The first condition that is true is the job's status.
_JOB_CONDITIONS = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def _job_status(job: Object) -> str:
    conditions = part(job, "status").get("conditions")
    for kind in ("Complete", "Failed"):
        if is_true(conditions, kind):
            return kind
    if is_terminating(job):
        return "Terminating"
    return next((kind for kind in _JOB_CONDITIONS if is_true(conditions, kind)), "Running")


def _job_completions(job: Object) -> str:
    spec, done = part(job, "spec"), part(job, "status").get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(job: Object, now: float) -> str:
    status = part(job, "status")
    if not status.get("startTime"):
        return ""
    try:
        end = parse_time(status["completionTime"]) if status.get("completionTime") else now
        return human_duration(end - parse_time(status["startTime"]))
    except TimestampError:
        return ""


def _job(job: Object, now: float) -> list[Any]:
    return [
        name_of(job),
        _job_status(job),
        _job_completions(job),
        _job_duration(job, now),
        age_of(job, now),
        *template_texts(_template(job)),
        selector_text(part(job, "spec").get("selector")),
    ]


def _cron_job(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    last = status.get("lastScheduleTime")
    job = part(spec, "jobTemplate")
    return [
        name_of(obj),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        # A string in a boolean column, as upstream: kubectl would print true and false.
        str(spec["suspend"]) if "suspend" in spec else UNSET,
        len(status.get("active") or ()),
        age(last, now) if last else NONE,
        age_of(obj, now),
        *template_texts(_template(job)),
        selector_text(part(job, "spec").get("selector")),
    ]


# Templates and budgets


def _pod_template(obj: Object, now: float) -> list[Any]:
    template = part(obj, "template")
    labels = part(template, "metadata").get("labels")
    return [name_of(obj), *template_texts(template), labels_text(labels)]


def _disruption_budget(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    bounds = (spec.get("minAvailable"), spec.get("maxUnavailable"))
    return [
        name_of(obj),
        *("N/A" if bound is None else str(bound) for bound in bounds),
        part(obj, "status").get("disruptionsAllowed", 0),
        age_of(obj, now),
    ]


def _scale(obj: Object, now: float) -> list[Any]:
    desired, current = part(obj, "spec"), part(obj, "status")
    return [name_of(obj), desired.get("replicas", 0), current.get("replicas", 0), age_of(obj, now)]


SCALE = printer((NAME, _DESIRED, number("Available", "Number of pods."), AGE), _scale)
_REPLICAS = printer(
    (NAME, _DESIRED, _CURRENT, _READY, AGE, CONTAINERS, IMAGES, SELECTOR), _replicas
)

WORKLOADS: dict[str, Printer] = {
    "apps/deployments": printer(
        (
            NAME,
            Column("Ready", "Ready and desired number of pods."),
            Column("Up-to-date", "Pods of the newest template."),
            Column("Available", "Available pods."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ),
        _deployment,
    ),
    "apps/replicasets": _REPLICAS,
    "replicationcontrollers": _REPLICAS,
    "apps/statefulsets": printer(
        (NAME, Column("Ready", "Ready and desired number of pods."), AGE, CONTAINERS,
         IMAGES),
        _stateful_set,
    ),
    "apps/daemonsets": printer(
        (
            NAME,
            _DESIRED,
            _CURRENT,
            _READY,
            number("Up-to-date", "Pods of the newest template."),
            number("Available", "Available pods."),
            Column("Node Selector", "Labels of the nodes it covers."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ),
        _daemon_set,
    ),
    "apps/controllerrevisions": printer(
        (
            NAME,
            Column("Controller", "The controller of this revision."),
            Column("Revision", "Number of the revision."),
            AGE,
        ),
        _controller_revision,
    ),
    "batch/jobs": printer(
        (
            NAME,
            Column("Status", "Running, or how it ended."),
            Column("Completions", "Succeeded pods and required completions."),
            Column("Duration", "Time from start to completion, or until now."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ),
        _job,
    ),
    "batch/cronjobs": printer(
        (
            NAME,
            Column("Schedule", "The schedule in cron notation."),
            Column("Timezone", "The time zone of the schedule."),
            flag("Suspend", "Whether it is suspended."),
            number("Active", "Jobs that are running."),
            Column("Last Schedule", "Time since the last job was created."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ),
        _cron_job,
    ),
    "podtemplates": printer(
        (
            NAME,
            Column("Containers", CONTAINERS.description),
            Column("Images", IMAGES.description),
            Column("Pod Labels", "Labels of the pods."),
        ),
        _pod_template,
    ),
    "policy/poddisruptionbudgets": printer(
        (
            NAME,
            Column("Min Available", "Minimum number or percentage of available pods."),
            Column("Max Unavailable", "Maximum number or percentage of unavailable pods."),
            number("Allowed Disruptions", "Allowed disruptions."),
            AGE,
        ),
        _disruption_budget,
    ),
}  # fmt: skip
