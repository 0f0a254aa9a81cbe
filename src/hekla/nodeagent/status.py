"""The status of a pod, from its record. Pure."""

from __future__ import annotations

from hekla.api.history import USAGE_CONDITION, usage_condition
from hekla.api.wellknown import PodCondition, PodPhase, PodReason
from hekla.nodeagent.lifecycle import (
    SHUTDOWN_MESSAGE,
    ContainerRecord,
    ContainerRun,
    PodRecord,
    is_sidecar,
    pod_usage,
)
from hekla.units.objects import Object
from hekla.units.timestamps import format_time

MAX_MESSAGE = 2048


def pod_status(
    pod: Object, record: PodRecord, *, phase: str, pod_ip: str, host_ip: str, now: float
) -> Object:
    """Return the status without fields of others (the PodScheduled condition, the QoS class)."""
    spec = pod["spec"]
    inits = spec.get("initContainers") or []
    initialized = all(_is_through(c, record.of(c["name"])) for c in inits)
    over = phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)
    ready = not over and all(record.of(c["name"]).ready for c in spec["containers"])
    ready = ready and all(record.of(c["name"]).ready for c in inits if is_sidecar(c))
    status: Object = {
        "phase": phase,
        "startTime": format_time(record.accepted_at),
        "hostIP": host_ip,
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "containerStatuses": [
            container_status(c, record.of(c["name"]), initialized) for c in spec["containers"]
        ],
        "conditions": _conditions(pod, initialized=initialized, ready=ready, over=phase, now=now),
    }
    if over and (usage := pod_usage(pod, record)) is not None:
        status["conditions"].append(usage_condition(usage, _ended_at(record, now)))
    if inits:
        status["initContainerStatuses"] = [
            container_status(c, record.of(c["name"]), True) for c in inits
        ]
    if record.failed_reason:
        status["reason"] = record.failed_reason
        status["message"] = record.failed_message[:MAX_MESSAGE]
    elif record.shutdown_at is not None and phase not in (PodPhase.SUCCEEDED, PodPhase.FAILED):
        status["reason"], status["message"] = PodReason.NODE_SHUTDOWN, SHUTDOWN_MESSAGE
    elif (pod.get("status") or {}).get("reason") == PodReason.NODE_SHUTDOWN:
        status["reason"] = status["message"] = None  # a merge patch removes them
    return status


def _ended_at(record: PodRecord, now: float) -> str:
    """Return the end of the last run: the same time in every report."""
    runs = (known.current for known in record.containers.values())
    ends = [run.finished_at for run in runs if run is not None and run.finished_at is not None]
    return format_time(max(ends, default=now))


def _is_through(container: Object, known: ContainerRecord) -> bool:
    if is_sidecar(container):
        return known.started
    return known.current is not None and known.current.exit_code == 0


def container_status(container: Object, known: ContainerRecord, initialized: bool) -> Object:
    """Return the status of one container."""
    status: Object = {
        "name": container["name"],
        "image": container["image"],
        "imageID": known.image_id,
        "ready": known.ready,
        "started": known.started,
        "restartCount": known.restarts,
        "state": _state(known, initialized),
        "lastState": {"terminated": _terminated(known.previous)} if known.previous else {},
    }
    return status


def _state(known: ContainerRecord, initialized: bool) -> Object:
    run = known.current
    if run is not None and not run.is_over:
        return {"running": {"startedAt": format_time(run.started_at)}}
    if known.waiting_reason:
        return {
            "waiting": {
                "reason": known.waiting_reason,
                "message": known.waiting_message[:MAX_MESSAGE],
            }
        }
    if run is not None:
        return {"terminated": _terminated(run)}
    return {"waiting": {"reason": "ContainerCreating" if initialized else "PodInitializing"}}


def _terminated(run: ContainerRun) -> Object:
    assert run.exit_code is not None
    result: Object = {
        "exitCode": run.exit_code,
        "reason": run.reason or ("Completed" if run.exit_code == 0 else "Error"),
        "startedAt": format_time(run.started_at),
        "finishedAt": format_time(run.finished_at or run.started_at),
    }
    if run.exit_code > 128:
        result["signal"] = run.exit_code - 128
    if run.message:
        result["message"] = run.message[:MAX_MESSAGE]
    return result


def _conditions(
    pod: Object, *, initialized: bool, ready: bool, over: str, now: float
) -> list[Object]:
    """Return our conditions with their transition times; conditions of others stay."""
    old = {c["type"]: c for c in (pod.get("status") or {}).get("conditions") or ()}
    completed = over == PodPhase.SUCCEEDED
    wanted = {
        PodCondition.INITIALIZED: initialized or completed,
        PodCondition.READY: ready,
        PodCondition.CONTAINERS_READY: ready,
    }
    result = [c for kind, c in old.items() if kind not in wanted and kind != USAGE_CONDITION]
    for kind, holds in wanted.items():
        text = "True" if holds else "False"
        known = old.get(kind) or {}
        same = known.get("status") == text
        condition = {
            "type": kind,
            "status": text,
            "lastProbeTime": None,
            "lastTransitionTime": known["lastTransitionTime"] if same else format_time(now),
        }
        if not holds:
            condition["reason"] = "PodCompleted" if completed else "ContainersNotReady"
        result.append(condition)
    return result
