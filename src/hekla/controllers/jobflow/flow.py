"""Decide which jobs of a JobFlow to create and delete, and its status.

`next_step` is pure: the flow, its templates, its jobs and the results of probes in, effects out.
Volcano accepts and ignores `patch` and `probe`; here `patch` changes the template's job, and
`probe` lets a job start while the jobs it depends on still run. Templates that appear late and jobs
that disappear are handled.

Note: without a probe, `dependsOn` means Completed. With one, it means that every probe succeeds at
every target that is not Completed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from hekla.api import wellknown
from hekla.api.wellknown import FlowPhase, FlowReason, JobPhase, PodPhase
from hekla.controllers.effects import CreateJob, DeleteJob, EmitEvent, RequeueAfter, SetStatus
from hekla.controllers.objects import (
    act_for_submitter,
    created_at,
    is_deleting,
    job_phase,
    key_of,
    owner_reference,
    status_of,
)
from hekla.units.durations import DurationError, parse_duration
from hekla.units.objects import Object
from hekla.units.patches import create_merge_patch, merge_patch
from hekla.units.selectors import label_value_problem
from hekla.units.timestamps import format_time

PROBE_PERIOD_S: Final = 2.0

_LISTS: Final = {
    JobPhase.PENDING: "pendingJobs",
    JobPhase.RUNNING: "runningJobs",
    JobPhase.FAILED: "failedJobs",
    JobPhase.COMPLETED: "completedJobs",
    JobPhase.TERMINATED: "terminatedJobs",
}
_IN_NO_LIST: Final = (JobPhase.COMPLETING, JobPhase.TERMINATING)
_UNKNOWN: Final = "unKnowJobs"


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe of every pod of one task of a job."""

    kind: Literal["http", "tcp"]
    job: str
    task: str
    port: int
    path: str = ""
    header: tuple[str, str] | None = None


Effect = CreateJob | DeleteJob | SetStatus | EmitEvent | RequeueAfter


@dataclass(frozen=True)
class FlowView:
    """The input of a decision about one flow."""

    flow: Object
    jobs: Sequence[Object] = ()
    """The jobs that the flow owns."""
    templates: Mapping[str, Object] = field(default_factory=dict)
    probe_results: Mapping[Probe, bool] = field(default_factory=dict)

    @property
    def phase(self) -> str:
        return str((status_of(self.flow).get("state") or {}).get("phase") or FlowPhase.PENDING)

    @property
    def flows(self) -> list[Object]:
        found: list[Object] = self.flow["spec"].get("flows") or []
        return found

    def job(self, flow: str) -> Object | None:
        name = job_name(self.flow, flow)
        return next((job for job in self.jobs if job["metadata"]["name"] == name), None)


def job_name(flow: Object, name: str) -> str:
    """Return the name of the job of a step."""
    return f"{flow['metadata']['name']}-{name}"


def next_step(view: FlowView) -> list[Effect]:
    """Return the effects that reconcile a flow."""
    if is_deleting(view.flow):
        return []
    effects: list[Effect] = []
    is_over = view.phase in (FlowPhase.SUCCEED, FlowPhase.FAILED, FlowPhase.TERMINATING)
    if view.phase == FlowPhase.SUCCEED:
        if view.flow["spec"].get("jobRetainPolicy") == "delete":
            return [DeleteJob(job) for job in view.jobs if not is_deleting(job)]
    elif not is_over:
        effects += _deploy(view)
    if not status_of(view.flow) and not view.jobs and not _creates(effects):
        # Nothing to report. A first status would make the creator's own first update fail.
        return effects
    patch = create_merge_patch(status_of(view.flow), _status(view))
    return effects + ([SetStatus(patch)] if patch else [])


def _creates(effects: Sequence[Effect]) -> bool:
    return any(isinstance(effect, CreateJob) for effect in effects)


def _deploy(view: FlowView) -> list[Effect]:
    effects: list[Effect] = []
    is_probing = False
    for flow in view.flows:
        if view.job(flow["name"]) is not None or not _may_start(view, flow):
            is_probing |= view.job(flow["name"]) is None and bool(pending_probes(view, flow))
            continue
        template = view.templates.get(flow["name"])
        if template is None:
            message = f"JobTemplate {flow['name']} does not exist; create it to continue the flow"
            effects.append(EmitEvent("Warning", FlowReason.MISSING_TEMPLATE, message))
            continue
        body = job_of(view.flow, flow, template)
        effects.append(CreateJob(body))
        message = f"job {body['metadata']['name']} is created"
        effects.append(EmitEvent("Normal", FlowReason.JOB_CREATED, message))
    return [*effects, RequeueAfter(PROBE_PERIOD_S)] if is_probing else effects


# Dependencies


def _may_start(view: FlowView, flow: Object) -> bool:
    needs = flow.get("dependsOn") or {}
    return all(
        _is_satisfied(view, target, needs.get("probe")) for target in needs.get("targets") or ()
    )


def _is_satisfied(view: FlowView, target: str, probe: Object | None) -> bool:
    job = view.job(target)
    if job is None:
        return False
    if job_phase(job) == JobPhase.COMPLETED:
        return True
    if not probe or job_phase(job) in JobPhase.FINISHED:
        return False
    statuses = [
        _task_is(job, each) for each in probe.get("taskStatusList") or () if _has_task(job, each)
    ]
    results = [view.probe_results.get(each, False) for each in _probes(job, probe)]
    # A probe that names no task of this job does not apply to it: the job must complete.
    return bool(statuses or results) and all(statuses) and all(results)


def pending_probes(view: FlowView, flow: Object) -> list[Probe]:
    """Return the probes that decide whether a step may start."""
    needs = flow.get("dependsOn") or {}
    probe: Object = needs.get("probe") or {}
    found: list[Probe] = []
    for target in needs.get("targets") or ():
        job = view.job(target)
        if job is not None and job_phase(job) not in JobPhase.FINISHED:
            found += _probes(job, probe)
    return found


def all_probes(view: FlowView) -> list[Probe]:
    """Return the probes of all steps that have not started."""
    return [
        probe
        for flow in view.flows
        if view.job(flow["name"]) is None
        for probe in pending_probes(view, flow)
    ]


def _probes(job: Object, probe: Object) -> list[Probe]:
    name = job["metadata"]["name"]
    found = []
    for each in probe.get("httpGetList") or ():
        if _has_task(job, each):
            header = each.get("httpHeader") or {}
            pair = (header["name"], header.get("value") or "") if header.get("name") else None
            port, path = each.get("port") or 80, each.get("path") or "/"
            found.append(Probe("http", name, each["taskName"], port, path, pair))
    for each in probe.get("tcpSocketList") or ():
        if _has_task(job, each):
            found.append(Probe("tcp", name, each["taskName"], each["port"]))
    return found


def _task(job: Object, name: str) -> Object | None:
    return next((task for task in job["spec"]["tasks"] if task.get("name") == name), None)


def _has_task(job: Object, probe: Object) -> bool:
    return _task(job, probe.get("taskName") or "") is not None


def _task_is(job: Object, probe: Object) -> bool:
    """Return whether `minAvailable` pods are in the phase; a succeeded pod counts as running."""
    task = _task(job, probe["taskName"])
    assert task is not None
    counts = (status_of(job).get("taskStatusCount") or {}).get(probe["taskName"]) or {}
    phases = counts.get("phase") or {}
    number = phases.get(probe.get("phase")) or 0
    if probe.get("phase") == PodPhase.RUNNING:
        number += phases.get(PodPhase.SUCCEEDED) or 0
    least = task.get("minAvailable")
    return bool(number >= max(1, task.get("replicas", 1) if least is None else least))


# Jobs


def job_of(flow: Object, one: Object, template: Object) -> Object:
    """Return the job of one step of a flow: its template, patched."""
    namespace = flow["metadata"]["namespace"]
    marks = {
        wellknown.CREATED_BY_JOB_TEMPLATE: f"{namespace}.{template['metadata']['name']}",
        wellknown.CREATED_BY_JOB_FLOW: f"{namespace}.{flow['metadata']['name']}",
    }
    spec = template["spec"]
    patch = (one.get("patch") or {}).get("jobSpec")
    metadata = {
        "name": job_name(flow, one["name"]),
        "namespace": namespace,
        "annotations": dict(marks),
        # A name too long for a label value is only in the annotation.
        "labels": {key: text for key, text in marks.items() if not label_value_problem(text)},
        "ownerReferences": [owner_reference(wellknown.FLOW_API, "JobFlow", flow)],
    }
    act_for_submitter(metadata, flow)
    return {
        "apiVersion": wellknown.BATCH_API,
        "kind": "Job",
        "metadata": metadata,
        "spec": patched_job_spec(spec, patch) if patch else spec,
    }


def patched_job_spec(spec: Object, patch: Object) -> Object:
    """Return a job spec with a patch: fields are merged, tasks by name."""
    changes = {key: value for key, value in patch.items() if key != "tasks"}
    new: Object = merge_patch(spec, changes)
    if "tasks" not in patch:
        return new
    tasks = {task.get("name"): task for task in spec.get("tasks") or ()}
    for task in patch["tasks"] or ():
        name = task.get("name")
        tasks[name] = merge_patch(tasks[name], task) if name in tasks else task
    return {**new, "tasks": list(tasks.values())}


# Status


def _status(view: FlowView) -> Object:
    old = status_of(view.flow)
    lists: dict[str, list[str]] = {name: [] for name in (*_LISTS.values(), _UNKNOWN)}
    for job in sorted(view.jobs, key=key_of):
        phase = job_phase(job)
        if phase not in _IN_NO_LIST:
            lists[_LISTS.get(phase, _UNKNOWN)].append(job["metadata"]["name"])
    new: Object = {
        **old,
        **{name: found for name, found in lists.items() if found or old.get(name)},
        "state": {"phase": _phase(view, lists)},
    }
    histories = {each["name"]: each for each in old.get("jobStatusList") or ()}
    jobs = sorted(view.jobs, key=key_of)
    if jobs or old.get("jobStatusList"):
        new["jobStatusList"] = [
            _job_status(job, histories.get(job["metadata"]["name"])) for job in jobs
        ]
        new["conditions"] = {job["metadata"]["name"]: _condition(job) for job in jobs}
    return new


def _phase(view: FlowView, lists: Mapping[str, list[str]]) -> str:
    has_failed = bool(lists["failedJobs"] or lists["terminatedJobs"])
    if view.phase == FlowPhase.PENDING:
        if (lists["runningJobs"] or lists["completedJobs"]) and not lists["failedJobs"]:
            return FlowPhase.RUNNING
        return FlowPhase.FAILED if has_failed else FlowPhase.PENDING
    if view.phase == FlowPhase.RUNNING:
        names = {job_name(view.flow, flow["name"]) for flow in view.flows}
        if names and names <= set(lists["completedJobs"]):
            return FlowPhase.SUCCEED
        return FlowPhase.FAILED if has_failed else FlowPhase.RUNNING
    return view.phase


def _job_status(job: Object, before: Object | None) -> Object:
    status = status_of(job)
    phase = job_phase(job)
    found: Object = {
        "name": job["metadata"]["name"],
        "state": phase,
        "startTimestamp": job["metadata"].get("creationTimestamp"),
        "restartCount": status.get("retryCount") or 0,
    }
    if phase in JobPhase.FINISHED and (lasted := _duration_s(status)) is not None:
        found["endTimestamp"] = format_time(created_at(job) + lasted)
    since = (status.get("state") or {}).get("lastTransitionTime")
    histories: list[Object] = list((before or {}).get("runningHistories") or ())
    if phase and (not histories or histories[-1].get("state") != phase):
        if histories:
            histories[-1] = {**histories[-1], "endTimestamp": since}
        histories.append({"startTimestamp": since, "state": phase})
    if histories:
        found["runningHistories"] = histories
    return found


def _duration_s(status: Object) -> float | None:
    try:
        return parse_duration(status["runningDuration"])
    except (KeyError, DurationError):
        return None


def _condition(job: Object) -> Object:
    status = status_of(job)
    found: dict[str, Any] = {
        "phase": job_phase(job),
        "createTime": job["metadata"].get("creationTimestamp"),
        "runningDuration": status.get("runningDuration"),
        "taskStatusCount": status.get("taskStatusCount"),
    }
    return {name: value for name, value in found.items() if value}
