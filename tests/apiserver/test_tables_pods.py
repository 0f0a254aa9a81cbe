"""Table rows of pods: READY, STATUS and RESTARTS."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.apiserver.tables.pods import PODS
from hekla.units.objects import Object
from hekla.units.timestamps import format_time

NOW = 1_000_000.0

RUNNING: Object = {"running": {"startedAt": format_time(NOW - 60)}}


def waiting(reason: str) -> Object:
    return {"waiting": {"reason": reason}}


def ended(code: int, reason: str = "", signal: int = 0) -> Object:
    state: Object = {"exitCode": code}
    if reason:
        state["reason"] = reason
    if signal:
        state["signal"] = signal
    return {"terminated": state}


def container(state: Object, *, name: str = "main", restarts: int = 0, **more: Any) -> Object:
    status = {"name": name, "state": state, "restartCount": restarts, "ready": "running" in state}
    return {**status, **more}


def pod(
    phase: str = "Running",
    containers: list[Object] | None = None,
    init: list[Object] | None = None,
    *,
    sidecars: tuple[str, ...] = (),
    leaving: bool = False,
    spec: Object | None = None,
    **status: Any,
) -> Object:
    containers = [] if containers is None else containers
    metadata = {"name": "p", "creationTimestamp": format_time(NOW - 90)}
    if leaving:
        metadata["deletionTimestamp"] = format_time(NOW)
    init_specs = [
        {"name": c["name"], **({"restartPolicy": "Always"} if c["name"] in sidecars else {})}
        for c in init or ()
    ]
    return {
        "metadata": metadata,
        "spec": {
            "containers": [{"name": c["name"]} for c in containers] or [{"name": "main"}],
            "initContainers": init_specs,
            **(spec or {}),
        },
        "status": {
            "phase": phase,
            "containerStatuses": containers,
            "initContainerStatuses": init or [],
            **status,
        },
    }


def conditions(**states: str) -> list[Object]:
    return [{"type": kind, "status": status} for kind, status in states.items()]


A_MINUTE_AGO = {"terminated": {"exitCode": 1, "finishedAt": format_time(NOW - 60)}}
TWO_MINUTES_AGO = {"terminated": {"exitCode": 1, "finishedAt": format_time(NOW - 120)}}

# sentence: (pod, READY, STATUS, RESTARTS)
CASES: dict[str, tuple[Object, str, str, str]] = {
    "an unbound pod": (pod("Pending"), "0/1", "Pending", "0"),
    "a pod that runs": (pod(containers=[container(RUNNING)]), "1/1", "Running", "0"),
    "a pod held by a scheduling gate": (
        pod(
            "Pending",
            conditions=[
                {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"},
            ],
        ),
        "0/1", "SchedulingGated", "0",
    ),
    "a pod that was evicted": (pod("Failed", reason="Evicted"), "0/1", "Evicted", "0"),
    "a container that is being created": (
        pod("Pending", [container(waiting("ContainerCreating"))]),
        "0/1", "ContainerCreating", "0",
    ),
    "a container in a crash loop": (
        pod(
            containers=[
                container(waiting("CrashLoopBackOff"), restarts=5, lastState=A_MINUTE_AGO),
            ]
        ),
        "0/1", "CrashLoopBackOff", "5 (60s ago)",
    ),
    "the newest restart counts": (
        pod(
            containers=[
                container(RUNNING, name="a", restarts=1, lastState=TWO_MINUTES_AGO),
                container(RUNNING, name="b", restarts=2, lastState=A_MINUTE_AGO),
            ]
        ),
        "2/2", "Running", "3 (60s ago)",
    ),
    "a pod that is done": (
        pod("Succeeded", [container(ended(0, "Completed"))]), "0/1", "Completed", "0",
    ),
    "one of two containers is done and the pod is ready": (
        pod(
            containers=[container(ended(0, "Completed"), name="a"), container(RUNNING, name="b")],
            conditions=conditions(Ready="True"),
        ),
        "1/2", "Running", "0",
    ),
    "one of two containers is done and the pod is not ready": (
        pod(containers=[container(ended(0, "Completed"), name="a"), container(RUNNING, name="b")]),
        "1/2", "NotReady", "0",
    ),
    "one is done and another failed": (
        pod(
            containers=[
                container(ended(0, "Completed"), name="a"),
                container(ended(2, "Error"), name="b"),
            ]
        ),
        "0/2", "Error", "0",
    ),
    "an end without a reason shows the exit code": (
        pod("Failed", [container(ended(137))]), "0/1", "ExitCode:137", "0",
    ),
    "an end by a signal shows the signal": (
        pod("Failed", [container(ended(137, signal=9))]), "0/1", "Signal:9", "0",
    ),
    "the first container takes precedence": (
        pod(
            containers=[
                container(waiting("ErrImagePull"), name="a"),
                container(waiting("CrashLoopBackOff"), name="b"),
            ]
        ),
        "0/2", "ErrImagePull", "0",
    ),
    "the first of two init containers runs": (
        pod(
            "Pending",
            [container(waiting("PodInitializing"))],
            [
                container(RUNNING, name="i1", ready=False),
                container(waiting("PodInitializing"), name="i2"),
            ],
        ),
        "0/1", "Init:0/2", "0",
    ),
    "the first init container is done": (
        pod(
            "Pending",
            init=[
                container(ended(0, "Completed"), name="i1"),
                container(waiting("PodInitializing"), name="i2"),
            ],
        ),
        "0/1", "Init:1/2", "0",
    ),
    "an init container fails": (
        pod(
            "Pending",
            init=[container(ended(1, "Error"), name="i1", restarts=2, lastState=A_MINUTE_AGO)],
        ),
        "0/1", "Init:Error", "2 (60s ago)",
    ),
    "an init container ends without a reason": (
        pod("Pending", init=[container(ended(3), name="i1")]), "0/1", "Init:ExitCode:3", "0",
    ),
    "an init container is killed": (
        pod("Pending", init=[container(ended(137, signal=9), name="i1")]),
        "0/1", "Init:Signal:9", "0",
    ),
    "an init container in a crash loop": (
        pod("Pending", init=[container(waiting("CrashLoopBackOff"), name="i1")]),
        "0/1", "Init:CrashLoopBackOff", "0",
    ),
    "restarts of finished init containers do not count": (
        pod(
            containers=[container(RUNNING)],
            init=[
                container(ended(0, "Completed"), name="i1", restarts=4, lastState=A_MINUTE_AGO)
            ],
        ),
        "1/1", "Running", "0",
    ),
    "a sidecar counts among the containers": (
        pod(
            containers=[container(RUNNING)],
            init=[container(RUNNING, name="proxy", started=True, restarts=1)],
            sidecars=("proxy",),
        ),
        "2/2", "Running", "1",
    ),
    "a sidecar that has not started delays the others": (
        pod(
            "Pending",
            [container(waiting("PodInitializing"))],
            [container(waiting("PodInitializing"), name="proxy", started=False)],
            sidecars=("proxy",),
        ),
        "0/2", "Init:0/1", "0",
    ),
    "a pod that is being deleted": (
        pod(containers=[container(RUNNING)], leaving=True), "1/1", "Terminating", "0",
    ),
    "a finished pod that is being deleted keeps its status": (
        pod("Succeeded", [container(ended(0, "Completed"))], leaving=True), "0/1", "Completed", "0",
    ),
    "a pod on a node that is lost": (
        pod(containers=[container(RUNNING)], leaving=True, reason="NodeLost"),
        "1/1", "Unknown", "0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_row_of_a_pod(case: str) -> None:
    subject, want_ready, want_status, want_restarts = CASES[case]
    cells = PODS.cells(subject, NOW)
    assert cells[:5] == ["p", want_ready, want_status, want_restarts, "90s"]
    assert len(cells) == len(PODS.columns)


def test_wide_columns_show_ip_and_node_of_a_pod() -> None:
    there = pod(
        containers=[container(RUNNING)],
        podIPs=[{"ip": "10.0.0.7"}, {"ip": "fd00::7"}],
        nominatedNodeName="n2",
        spec={"nodeName": "n1", "readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]},
        conditions=conditions(a="True", b="False"),
    )
    assert PODS.cells(there, NOW)[5:] == ["10.0.0.7", "n1", "n2", "1/2"]
    assert PODS.cells(pod("Pending"), NOW)[5:] == ["<none>"] * 4


@pytest.mark.parametrize(
    ("phase", "want_reasons"),
    [("Running", []), ("Succeeded", ["Succeeded"]), ("Failed", ["Failed"])],
)
def test_a_finished_pods_row_is_marked_as_completed(phase: str, want_reasons: list[str]) -> None:
    found = PODS.conditions(pod(phase))
    assert [item["reason"] for item in found] == want_reasons
    assert all(item["type"] == "Completed" and item["status"] == "True" for item in found)
