"""Why a job does not run, from its pods, its PodGroup and its events."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.cli import reason_log
from hekla.cli.reason_log import ReasonLog
from hekla.sdk import pending_reasons


def pod(name: str = "a-w-0", uid: str = "p0", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": uid},
        "spec": more.pop("spec", {}),
        "status": {"phase": "Pending", **more},
    }


def container(state: dict[str, Any], last: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": "main", "state": state, "lastState": last or {}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return container({"waiting": {"reason": reason, "message": message}})


SUCCEEDED = {"terminated": {"exitCode": 0}}
EXITED_3 = {"terminated": {"exitCode": 3}}
PODS = {
    "an image that cannot run": (
        pod(containerStatuses=[waiting("ImageNotMapped", "image 'x' is not mapped")]),
        "pod a-w-0 cannot start: ImageNotMapped: image 'x' is not mapped",
        "image: host",
    ),
    "an image of an init container": (
        pod(initContainerStatuses=[waiting("ImagePullBackOff")]),
        "pod a-w-0 cannot start: ImagePullBackOff",
        "check the name of the image",
    ),
    "an image that is being pulled": (
        pod(
            containerStatuses=[
                waiting("ContainerCreating", 'pulling image "r:5000/x:1": 3 of 9 MiB')
            ]
        ),
        'pod a-w-0 waits: pulling image "r:5000/x:1": 3 of 9 MiB',
        "",
    ),
    "a missing volume": (
        pod(containerStatuses=[waiting("CreateContainerConfigError", "ConfigMap 'c' is missing")]),
        "pod a-w-0 cannot start: CreateContainerConfigError: ConfigMap 'c' is missing",
        "create what it names",
    ),
    "a scheduling gate": (
        pod(spec={"schedulingGates": [{"name": "example.com/wait"}]}),
        "pod a-w-0 is held by its scheduling gate example.com/wait",
        "kubectl -n ml patch pod a-w-0",
    ),
    "the gate of its queue, which the scheduler removes": (
        pod(spec={"schedulingGates": [{"name": "scheduling.volcano.sh/queue-allocation-gate"}]}),
        "pod a-w-0 waits for its queue",
        "`hekla queue top` shows its use",
    ),
    "no feasible node": (
        pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]),
        "pod a-w-0 cannot be placed: 0/1 nodes",
        "",
    ),
    "a crash loop": (
        pod(
            phase="Running",
            containerStatuses=[
                container({"waiting": {"reason": "CrashLoopBackOff"}}, EXITED_3),
            ],
        ),
        "container main of pod a-w-0 ended with exit code 3 and is restarted",
        "correct the command",
    ),
    "a command that succeeds again and again": (
        pod(
            phase="Running",
            containerStatuses=[
                container({"waiting": {"reason": "CrashLoopBackOff"}}, SUCCEEDED),
            ],
        ),
        "container main of pod a-w-0 ended with exit code 0 and is restarted",
        "set restartPolicy: OnFailure or Never",
    ),
    "a pod of a cluster that is shut down": (
        pod(phase="Running", containerStatuses=[waiting("NodeShutdown", "it starts again")]),
        "pod a-w-0 is suspended: it starts again",
        "`hekla up`",
    ),
    "an evicted pod": (
        pod(phase="Failed", reason="Evicted", message="the node is full"),
        "pod a-w-0 failed: Evicted: the node is full",
        "raise the pod's requests",
    ),
}


@pytest.mark.parametrize("case", PODS)
def test_pod_gives_its_reason_and_the_next_step(case: str) -> None:
    given, want_text, want_hint = PODS[case]
    (reason,) = pending_reasons.of_pod(given)
    assert reason.text.startswith(want_text)
    assert want_hint in reason.hint


def test_starting_running_succeeded_and_terminating_pods_have_no_reason() -> None:
    starting = pod(containerStatuses=[waiting("ContainerCreating")])
    deleted = pod(containerStatuses=[waiting("ErrImagePull")])
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    done = pod(phase="Succeeded", containerStatuses=[waiting("CrashLoopBackOff")])
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    opened = pod(conditions=[gated])  # its gates are gone, and no cycle has seen it yet
    assert [
        r for each in (starting, deleted, done, opened) for r in pending_reasons.of_pod(each)
    ] == []


def event(reason: str, message: str, uid: str = "j", **more: Any) -> dict[str, Any]:
    about = {"kind": more.get("kind", "Job"), "name": more.get("name", "a"), "uid": uid}
    return {"type": "Warning", "reason": reason, "message": message, "involvedObject": about}


def texts(log: ReasonLog, group: Any = None) -> list[str]:
    return [reason.text for reason in log.new("j", group)]


def test_a_refused_pod_is_a_reason_of_its_job_once() -> None:
    log = ReasonLog()
    log.add_owner("j", "j")
    log.on_event(event("FailedCreate", "1 of 2 pods: exceeded quota: small"))
    log.on_event(event("FailedCreate", "1 of 1 pods: exceeded quota: small"))
    (reason,) = log.new("j", None)
    assert reason.text == "FailedCreate: 1 of 2 pods: exceeded quota: small"
    assert "raise the quota" in reason.hint
    assert texts(log) == []


def test_an_event_that_arrives_before_its_pod_is_kept_for_it() -> None:
    log = ReasonLog()
    log.on_event(event("FailedMount", "no volume v", "p0", kind="Pod", name="a-w-0"))
    assert texts(log) == []
    log.on_pod("j", pod())
    assert texts(log) == ["pod a-w-0: FailedMount: no volume v"]


def test_an_event_that_repeats_a_status_is_not_printed() -> None:
    log = ReasonLog()
    log.on_pod("j", pod(containerStatuses=[waiting("ErrImagePull", "no such image")]))
    assert len(texts(log)) == 1
    log.on_event(event("Failed", "no such image", "p0", kind="Pod", name="a-w-0"))
    inspected = event("InspectFailed", "Failed to apply: wrong name", "p0", kind="Pod", name="a")
    log.on_event(inspected)
    log.on_event(event("FailedScheduling", "0/1 nodes", "p0", kind="Pod", name="a-w-0"))
    assert texts(log) == []


def test_an_event_before_the_status_that_it_repeats_is_not_printed() -> None:
    log = ReasonLog()
    log.on_pod("j", pod())
    log.on_event(event("ImageNotMapped", "no such image", "p0", kind="Pod", name="a-w-0"))
    assert texts(log) == []
    log.on_pod("j", pod(containerStatuses=[waiting("ImageNotMapped", "no such image")]))
    assert texts(log) == ["pod a-w-0 cannot start: ImageNotMapped: no such image"]


def test_events_of_other_objects_and_normal_events_are_no_reasons() -> None:
    log = ReasonLog()
    log.add_owner("j", "j")
    log.on_event(event("FailedCreate", "of another job", uid="other"))
    log.on_event({**event("Started", "fine"), "type": "Normal"})
    assert texts(log) == []


def test_the_verdict_of_the_scheduler_comes_first() -> None:
    log = ReasonLog()
    log.on_pod("j", pod(containerStatuses=[waiting("ErrImagePull")]))
    condition = {"type": "Unschedulable", "status": "True", "message": "1 of 2 fit"}
    assert texts(log, {"status": {"conditions": [condition]}})[0] == "1 of 2 fit"


def test_the_verdict_is_printed_without_the_count_that_it_repeats() -> None:
    message = "2/2 tasks in gang unschedulable: 0/2 tasks fit; no node has nvidia.com/gpu"
    condition = {"type": "Unschedulable", "status": "True", "message": message}
    group = {"status": {"conditions": [condition]}}
    assert texts(ReasonLog(), group) == ["0/2 tasks fit; no node has nvidia.com/gpu"]


def test_early_events_and_reasons_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reason_log, "MAX_EARLY_EVENTS", 3)
    monkeypatch.setattr(reason_log, "MAX_REASONS", 2)
    log = ReasonLog()
    for number in range(5):
        log.on_event(event("FailedMount", f"early {number}", f"p{number}", kind="Pod"))
    for number in range(5):
        log.on_pod("j", pod(uid=f"p{number}"))
    assert texts(log) == ["pod a: FailedMount: early 2", "pod a: FailedMount: early 3"]


def test_a_verdict_is_one_reason_while_other_jobs_change_what_is_used() -> None:
    def verdict(used: str) -> dict[str, Any]:
        text = f"overused cpu; cpu: asked 50, used {used} of 2.4 (the cluster's 2)"
        condition = {"type": "Unschedulable", "status": "True", "message": text}
        return {"status": {"conditions": [condition]}}

    log = ReasonLog()
    assert [len(list(log.new("job", verdict(used)))) for used in ("0", "1.5", "500m")] == [1, 0, 0]
