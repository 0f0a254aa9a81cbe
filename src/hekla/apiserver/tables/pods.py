"""Columns of pods: STATUS is computed from the whole object.

Note: STATUS is not `status.phase`. It is the first that applies of: the pod is being deleted; an
init container that has not finished; the state of the containers, the first container in the spec
taking precedence; the pod's reason; the phase.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hekla.apiserver.tables.age import age
from hekla.apiserver.tables.columns import AGE, NAME, Column, Printer, wide
from hekla.apiserver.tables.formats import NONE, age_of, is_terminating, is_true, name_of, part
from hekla.units.objects import Object

FINISHED = ("Succeeded", "Failed")
SCHEDULING_GATED = "SchedulingGated"
NODE_LOST = "NodeLost"


@dataclass(slots=True)
class _Tally:
    """Accumulates container statuses."""

    reason: str
    ready: int = 0
    restarts: int = 0
    last_restart: str = ""

    def count(self, status: Object) -> None:
        self.restarts += status.get("restartCount") or 0
        ended = part(status, "lastState", "terminated").get("finishedAt") or ""
        # RFC 3339 in UTC sorts by time.
        self.last_restart = max(self.last_restart, ended)


def _ended(terminated: Object) -> str:
    """Return why a container ended, in one word."""
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _first_reason(pod: Object) -> str:
    """Return the reason before containers are looked at: gated, the pod's reason or phase."""
    status = part(pod, "status")
    for item in status.get("conditions") or ():
        if item.get("type") == "PodScheduled" and item.get("reason") == SCHEDULING_GATED:
            return SCHEDULING_GATED
    return str(status.get("reason") or status.get("phase") or "")


def _sidecars(pod: Object) -> set[str]:
    """Return the sidecars: init containers that keep running."""
    containers = part(pod, "spec", "initContainers") or []
    return {c["name"] for c in containers if c.get("restartPolicy") == "Always"}


def _init_reason(status: Object, index: int, total: int) -> str:
    state = part(status, "state")
    if state.get("terminated") is not None:
        return f"Init:{_ended(state['terminated'])}"
    waiting = part(state, "waiting").get("reason") or ""
    if waiting and waiting != "PodInitializing":
        return f"Init:{waiting}"
    return f"Init:{index}/{total}"


def _count_init_containers(pod: Object, tally: _Tally, sidecars: set[str]) -> tuple[bool, _Tally]:
    """Return whether initialization is in progress, and the counts of the sidecars."""
    beside = _Tally("")
    total = len(part(pod, "spec", "initContainers") or ())
    for index, status in enumerate(part(pod, "status", "initContainerStatuses") or ()):
        tally.count(status)
        is_sidecar = status.get("name") in sidecars
        if is_sidecar:
            beside.count(status)
        terminated = part(status, "state").get("terminated")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if is_sidecar and status.get("started"):
            tally.ready += bool(status.get("ready"))
            continue
        tally.reason = _init_reason(status, index, total)
        return True, beside
    return False, beside


def _count_containers(pod: Object, tally: _Tally) -> None:
    has_running = False
    failure = ""
    # Backwards, so that the first container in the spec takes precedence.
    for status in reversed(part(pod, "status", "containerStatuses") or []):
        tally.count(status)
        state = part(status, "state")
        terminated = state.get("terminated")
        if part(state, "waiting").get("reason"):
            tally.reason = state["waiting"]["reason"]
        elif terminated is not None:
            tally.reason = _ended(terminated)
            if terminated.get("exitCode", 0) != 0:
                failure = tally.reason
        elif status.get("ready") and state.get("running") is not None:
            has_running = True
            tally.ready += 1
    if tally.reason == "Completed":
        # This container is done. The pod is done only if no other runs and none has failed.
        if has_running and is_true(part(pod, "status").get("conditions"), "Ready"):
            tally.reason = "Running"
        elif failure:
            tally.reason = failure
        elif has_running:
            tally.reason = "NotReady"


def _tally(pod: Object) -> _Tally:
    tally = _Tally(_first_reason(pod))
    initializing, beside = _count_init_containers(pod, tally, _sidecars(pod))
    status = part(pod, "status")
    if not initializing or is_true(status.get("conditions"), "Initialized"):
        # Restarts of finished init containers do not count.
        tally.restarts, tally.last_restart = beside.restarts, beside.last_restart
        _count_containers(pod, tally)
    if is_terminating(pod):
        if status.get("reason") == NODE_LOST:
            tally.reason = "Unknown"
        elif status.get("phase") not in FINISHED:
            tally.reason = "Terminating"
    return tally


def status_of(pod: Object) -> str:
    """The STATUS column."""
    return _tally(pod).reason


def _readiness_gates(pod: Object) -> str:
    gates = part(pod, "spec", "readinessGates") or []
    if not gates:
        return NONE
    conditions = part(pod, "status").get("conditions")
    met = sum(is_true(conditions, gate.get("conditionType", "")) for gate in gates)
    return f"{met}/{len(gates)}"


def _pod_ips(pod: Object) -> Iterator[str]:
    status = part(pod, "status")
    for item in status.get("podIPs") or ():
        yield item.get("ip") or ""
    yield status.get("podIP") or ""


def _cells(pod: Object, now: float) -> list[Any]:
    tally = _tally(pod)
    spec, status = part(pod, "spec"), part(pod, "status")
    total = len(spec.get("containers") or ()) + len(_sidecars(pod))
    restarts = str(tally.restarts)
    if tally.restarts and tally.last_restart:
        restarts += f" ({age(tally.last_restart, now)} ago)"
    return [
        name_of(pod),
        f"{tally.ready}/{total}",
        tally.reason,
        restarts,
        age_of(pod, now),
        next(filter(None, _pod_ips(pod)), NONE),
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _readiness_gates(pod),
    ]


_ENDINGS = {"Succeeded": "The pod has run to its end.", "Failed": "The pod has failed."}


def _conditions(pod: Object) -> list[Object]:
    phase = part(pod, "status").get("phase")
    if phase not in _ENDINGS:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": _ENDINGS[phase]}]


PODS = Printer(
    (
        NAME,
        Column("Ready", "Ready containers and their total."),
        Column("Status", "The aggregate state of the containers."),
        Column("Restarts", "Number of container restarts, and the last one."),
        AGE,
        wide("IP", "The pod's address."),
        wide("Node", "The node it runs on."),
        wide("Nominated Node", "The node that preemption nominated."),
        wide("Readiness Gates", "Readiness gates that are true and their total."),
    ),
    _cells,
    _conditions,
)
