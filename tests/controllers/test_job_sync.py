"""Pure decisions about a job."""

from typing import Any

import pytest

from hekla.api import wellknown
from hekla.api.wellknown import JobPhase
from hekla.controllers.job.effects import (
    CreateClaim,
    CreateGroup,
    CreatePod,
    DeleteGroup,
    DeletePod,
    DropObjects,
    Effect,
    EmitEvent,
    FinishCommand,
    MarkPod,
    PatchGroup,
    PatchJob,
    RequeueAfter,
    SetStatus,
)
from hekla.controllers.job.sync import next_step
from hekla.controllers.job.view import JobView
from hekla.units.objects import Object
from hekla.units.patches import merge_patch

from .builders import NOW, command, group, job, pod, recorded, task


def steps(of: Object, pods: list[Object] | None = None, **more: Any) -> list[Effect]:
    more.setdefault("group", group(of))
    now = more.pop("now", NOW)
    return next_step(JobView(of, now, pods=pods or [], **more))


def only(effects: list[Effect], kind: type) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


def names(effects: list[Effect], kind: type) -> list[str]:
    found = []
    for effect in only(effects, kind):
        found.append((effect.body if kind is CreatePod else effect.pod)["metadata"]["name"])
    return found


def status(of: Object, effects: list[Effect]) -> Object:
    """The job's status after the effects."""
    now: Object = of["status"]
    for effect in only(effects, SetStatus):
        now = merge_patch(now, effect.patch)
    return now


def test_a_new_job_gets_its_group_and_is_pending() -> None:
    new = job()
    effects = steps(new, group=None)
    assert len(only(effects, CreateGroup)) == 1
    assert names(effects, CreatePod) == []
    assert status(new, effects)["state"]["phase"] == JobPhase.PENDING
    assert status(new, effects)["minAvailable"] == 2


@pytest.mark.parametrize("phase", ["", "Pending"])
def test_pods_wait_until_the_group_is_admitted(phase: str) -> None:
    waiting = recorded(job(), [], "Pending")
    assert names(steps(waiting, group=group(waiting, phase)), CreatePod) == []


def test_all_pods_are_created_at_once_when_the_group_is_admitted() -> None:
    waiting = recorded(job(), [], "Pending")
    effects = steps(waiting)
    assert names(effects, CreatePod) == ["train-worker-0", "train-worker-1"]
    assert only(effects, SetStatus) == []


def test_counts_and_phase_follow_the_pods() -> None:
    of = recorded(job(), [], "Pending")
    pods = [pod(of, "worker", 0), pod(of, "worker", 1)]
    after = status(of, steps(of, pods))
    assert (after["state"]["phase"], after["running"]) == (JobPhase.RUNNING, 2)
    assert after["taskStatusCount"] == {"worker": {"phase": {"Running": 2}}}


def test_unchanged_job_needs_no_effects() -> None:
    of = job()
    pods = [pod(of, "worker", 0), pod(of, "worker", 1)]
    of = recorded(of, pods)
    wanted = group(of)
    wanted["spec"] = only(steps(of, pods, group=None), CreateGroup)[0].body["spec"]
    assert steps(of, pods, group=wanted) == []


def test_transition_time_does_not_change_with_the_counts() -> None:
    of = job(tasks=[task(replicas=3)], minAvailable=1)
    pods = [pod(of, "worker", i) for i in range(3)]
    of = recorded(of, pods)
    pods[0] = pod(of, "worker", 0, "Succeeded")
    after = status(of, steps(of, pods, now=NOW + 50))
    assert after["succeeded"] == 1
    assert of["status"]["state"] == after["state"]
    assert of["status"]["conditions"] == after["conditions"]


def test_reentered_phase_moves_its_condition_to_the_end() -> None:
    of = recorded(recorded(job(), [], "Pending"), [], "Running")
    of = recorded(of, [], "Pending")
    assert [each["status"] for each in of["status"]["conditions"]] == ["Running", "Pending"]


def policy(action: str, **when: Any) -> list[Object]:
    return [{"action": action, **(when or {"event": "PodFailed"})}]


def failing(action: str, **when: Any) -> tuple[Object, list[Object]]:
    """A running job of two tasks, with one pod that failed with exit code 3."""
    tasks = [task("ps", 1), task("worker", 4, partitionPolicy={
        "totalPartitions": 2, "partitionSize": 2})]  # fmt: skip
    of = job(tasks=tasks, policies=policy(action, **when))
    pods = [pod(of, "ps", 0), *(pod(of, "worker", i) for i in range(4))]
    of = recorded(of, pods)
    pods[1] = pod(of, "worker", 0, "Failed", exit_code=3)
    return of, pods


ACTIONS = {
    "RestartJob": ("Restarting", 1, 1, ["ps-0", "worker-0", "worker-1", "worker-2", "worker-3"]),
    "RestartTask": ("Restarting", 0, 1, ["worker-0", "worker-1", "worker-2", "worker-3"]),
    "RestartPartition": ("Restarting", 0, 1, ["worker-0", "worker-1"]),
    "RestartPod": ("Restarting", 0, 1, ["worker-0"]),
    "AbortJob": ("Aborting", 1, 0, ["ps-0", "worker-1", "worker-2", "worker-3"]),
    "TerminateJob": ("Terminating", 1, 0, ["ps-0", "worker-1", "worker-2", "worker-3"]),
    "CompleteJob": ("Completing", 1, 0, ["ps-0", "worker-1", "worker-2", "worker-3"]),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_failed_pod_triggers_the_action_of_the_policy(action: str) -> None:
    of, pods = failing(action)
    want_phase, want_version, want_retries, want_killed = ACTIONS[action]
    effects = steps(of, pods)
    after = status(of, effects)
    assert want_phase == after["state"]["phase"]
    assert want_version == after.get("version", 0)
    assert want_retries == after.get("retryCount", 0)
    assert [f"train-{name}" for name in want_killed] == names(effects, DeletePod)
    assert action == after["state"]["reason"]
    assert "train-worker-0 failed with exit code 3" in after["state"]["message"]


@pytest.mark.parametrize("action", ["RestartJob", "AbortJob", "RestartPod"])
def test_status_is_written_before_pods_are_deleted(action: str) -> None:
    kinds = [type(each) for each in steps(*failing(action))]
    assert kinds.index(SetStatus) < kinds.index(DeletePod)


def test_other_pods_of_a_task_are_annotated_before_the_status_write() -> None:
    effects = steps(*failing("RestartTask"))
    kinds = [type(each) for each in effects]
    assert max(i for i, kind in enumerate(kinds) if kind is MarkPod) < kinds.index(SetStatus)
    assert "train-worker-0" not in names(effects, MarkPod)


def test_exit_code_of_any_container_matches() -> None:
    of, pods = failing("RestartJob", exitCode=7)
    pods[1]["status"]["containerStatuses"].append(
        {"name": "side", "state": {"terminated": {"exitCode": 7}}}
    )
    assert status(of, steps(of, pods))["state"]["phase"] == JobPhase.RESTARTING


def test_other_exit_code_does_not_match() -> None:
    of, pods = failing("RestartJob", exitCode=7)
    assert status(of, steps(of, pods))["state"]["phase"] == JobPhase.RUNNING


def test_policy_of_the_task_precedes_that_of_the_job() -> None:
    of, pods = failing("RestartJob")
    of["spec"]["tasks"][1]["policies"] = policy("TerminateJob")
    assert status(of, steps(of, pods))["state"]["phase"] == JobPhase.TERMINATING


def test_any_event_matches_failures_but_not_pending_pods() -> None:
    of = job(policies=policy("RestartJob", event="*"))
    pods = [pod(of, "worker", 0, "Pending"), pod(of, "worker", 1)]
    of = recorded(of, pods)
    assert "retryCount" not in status(of, steps(of, pods))
    pods[0] = pod(of, "worker", 0, "Failed")
    assert status(of, steps(of, pods))["retryCount"] == 1


def test_last_retry_runs_and_the_next_restart_fails_the_job() -> None:
    of, pods = failing("RestartJob")
    of["status"]["retryCount"] = 2
    assert status(of, steps(of, pods))["state"]["phase"] == JobPhase.RESTARTING
    of["status"]["retryCount"] = 3
    effects = steps(of, pods)
    after = status(of, effects)
    assert (after["state"]["phase"], after["retryCount"]) == (JobPhase.FAILED, 3)
    assert "train-worker-0" not in names(effects, DeletePod), "finished pods keep their logs"
    assert "all 3 retries are used" in after["state"]["message"]


def test_restarting_job_continues_its_deletions_after_a_crash() -> None:
    of, pods = failing("RestartJob")
    of = {**of, "status": status(of, steps(of, pods))}
    assert len(names(steps(of, pods), DeletePod)) == 5
    assert "retryCount" not in str(steps(of, pods))


def test_restarted_task_continues_its_deletions_after_a_crash() -> None:
    of, pods = failing("RestartTask")
    of = {**of, "status": status(of, steps(of, pods))}
    for each in pods[2:]:
        each["metadata"]["annotations"][wellknown.OUT_OF_SYNC] = "true"
    left = [each for each in pods if each["metadata"]["name"] != "train-worker-0"]
    assert names(steps(of, left), DeletePod) == [
        "train-worker-1",
        "train-worker-2",
        "train-worker-3",
    ]


def test_restarting_job_is_pending_only_after_its_deletions_are_observed() -> None:
    of, pods = failing("RestartJob")
    of = {**of, "status": status(of, steps(of, pods))}
    assert status(of, steps(of, pods))["state"]["phase"] == JobPhase.RESTARTING
    assert status(of, steps(of, []))["state"]["phase"] == JobPhase.PENDING


def test_group_is_kept_through_a_job_restart() -> None:
    of, pods = failing("RestartJob")
    assert only(steps(of, pods), DeleteGroup) == []


def test_targeted_restart_does_not_change_the_plugins_objects() -> None:
    of, pods = failing("RestartPod")
    of["spec"]["plugins"] = {"svc": [], "ssh": []}
    assert only(steps(of, pods), DropObjects) == []


def evicted(**policies: Any) -> tuple[Object, list[Object]]:
    of = job(**policies)
    pods = [pod(of, "worker", 0), pod(of, "worker", 1)]
    return recorded(of, pods), pods


def test_deleted_pod_is_an_eviction_even_if_its_deletion_was_not_observed() -> None:
    of, pods = evicted(policies=policy("RestartJob", event="PodEvicted"))
    after = status(of, steps(of, pods[:1]))
    assert after["state"]["phase"] == JobPhase.RESTARTING
    assert "retryCount" not in after, "an eviction is no failure"
    assert "pod train-worker-1 was deleted or evicted" in after["state"]["message"]


LOST = {
    "evicted by the scheduler": (
        {"status": "True", "message": "evicted by reclaim for job a/b: its queue uses less"},
        "pod train-worker-1 was evicted by reclaim for job a/b: its queue uses less",
    ),
    "evicted through the API": (
        {"status": "True", "message": "Eviction API: evicting"},
        "pod train-worker-1 was evicted; by policy",
    ),
    "an eviction that did not happen": ({"status": "False"}, "pod train-worker-1 was deleted;"),
}


@pytest.mark.parametrize("case", LOST)
def test_message_of_a_restart_says_by_what_its_pod_was_lost(case: str) -> None:
    condition, want = LOST[case]
    of, pods = evicted(policies=policy("RestartJob", event="PodEvicted"))
    lost = pod(of, "worker", 1, deleting=True)
    lost["status"]["conditions"] = [{"type": "DisruptionTarget", **condition}]
    after = status(of, steps(of, [pods[0], lost]))
    assert want in after["state"]["message"]


def test_terminating_pod_is_an_eviction() -> None:
    of, pods = evicted(policies=policy("AbortJob", event="PodEvicted"))
    pods[1] = pod(of, "worker", 1, deleting=True)
    assert status(of, steps(of, pods))["state"]["phase"] == JobPhase.ABORTING


@pytest.mark.parametrize("action", ["RestartJob", "RestartPod"])
def test_evictions_do_not_use_up_the_retries(action: str) -> None:
    """Preemption is no failure: a job whose retries are used restarts, and keeps the count."""
    of, pods = evicted(policies=policy(action, event="PodEvicted"))
    of["status"]["retryCount"] = 3
    of = {**of, "status": status(of, steps(of, pods[:1]))}
    assert of["status"]["state"]["phase"] == JobPhase.RESTARTING
    assert of["status"]["retryCount"] == 3


def test_an_eviction_is_handled_once() -> None:
    of, pods = evicted(policies=policy("RestartPod", event="PodEvicted"))
    of = {**of, "status": status(of, steps(of, pods[:1]))}
    of = {**of, "status": status(of, steps(of, pods[:1]))}
    assert of["status"]["state"]["phase"] == JobPhase.PENDING
    effects = steps(of, pods[:1])
    assert names(effects, CreatePod) == ["train-worker-1"]
    assert status(of, effects)["state"]["phase"] == JobPhase.PENDING


def test_eviction_with_a_timeout_is_stored_and_fires_if_the_pod_does_not_return() -> None:
    of, pods = evicted(policies=policy("RestartJob", event="PodEvicted", timeout="30s"))
    effects = steps(of, pods[:1])
    assert [each.after_s for each in only(effects, RequeueAfter)] == [30.0]
    of["metadata"] = merge_patch(of["metadata"], only(effects, PatchJob)[0].patch["metadata"])
    of = {**of, "status": status(of, effects)}
    waiting = [pods[0], pod(of, "worker", 1, "Pending")]

    def phase_at(later_s: int, pods: list[Any]) -> str:
        return str(status(of, steps(of, pods, now=NOW + later_s))["state"]["phase"])

    assert phase_at(29, waiting) != JobPhase.RESTARTING
    assert phase_at(30, waiting) == JobPhase.RESTARTING
    assert phase_at(31, pods) != JobPhase.RESTARTING, "the pod has returned"


def test_scale_down_is_no_eviction() -> None:
    of, pods = evicted(policies=policy("RestartJob", event="PodEvicted"))
    of["spec"]["tasks"][0]["replicas"] = 1
    effects = steps(of, pods)
    assert names(effects, DeletePod) == ["train-worker-1"]
    assert "retryCount" not in status(of, steps(of, pods[:1]))


def test_scale_up_adds_the_higher_indices() -> None:
    of, pods = evicted()
    of["spec"]["tasks"][0]["replicas"] = 4
    assert names(steps(of, pods), CreatePod) == ["train-worker-2", "train-worker-3"]


def test_a_pod_that_stays_pending_too_long_is_restarted() -> None:
    of = job(policies=policy("RestartPod", event="PodPending", timeout="5m"))
    pods = [pod(of, "worker", 0), pod(of, "worker", 1, "Pending", created=NOW - 200)]
    of = recorded(of, pods)
    early = steps(of, pods)
    assert [each.after_s for each in only(early, RequeueAfter)] == [100.0]
    late = steps(of, pods, now=NOW + 100)
    assert names(late, DeletePod) == ["train-worker-1"]


def test_timeout_of_a_failure_counts_from_the_time_of_the_failure() -> None:
    of, pods = failing("AbortJob", event="PodFailed", timeout="10s")
    assert [each.after_s for each in only(steps(of, pods), RequeueAfter)] == [9.0]
    assert status(of, steps(of, pods, now=NOW + 9))["state"]["phase"] == JobPhase.ABORTING


def test_a_completed_task_can_complete_the_job() -> None:
    of = job(tasks=[task("master", 1), task("worker", 2)])
    of["spec"]["tasks"][0]["policies"] = policy("CompleteJob", event="TaskCompleted")
    pods = [pod(of, "master", 0), pod(of, "worker", 0), pod(of, "worker", 1)]
    of = recorded(of, pods)
    pods[0] = pod(of, "master", 0, "Succeeded")
    effects = steps(of, pods)
    assert status(of, effects)["state"]["phase"] == JobPhase.COMPLETING
    assert names(effects, DeletePod) == ["train-worker-0", "train-worker-1"]


def test_containers_restarted_too_often_fail_the_task() -> None:
    of = job(policies=policy("RestartTask", event="TaskFailed"))
    pods = [pod(of, "worker", 0, restarts=2), pod(of, "worker", 1, restarts=0)]
    of = recorded(of, pods)
    assert "retryCount" not in status(of, steps(of, pods))
    pods[1] = pod(of, "worker", 1, restarts=1)
    assert status(of, steps(of, pods))["retryCount"] == 1


def test_job_unknown_policy_fires_again_after_a_restart() -> None:
    of = job(policies=policy("RestartJob", event="Unknown"))
    pods = [pod(of, "worker", 0), pod(of, "worker", 1, "Pending")]
    of = recorded(of, pods)
    unknown = group(of, "Unknown")
    of = {**of, "status": status(of, steps(of, pods, group=unknown))}
    assert of["status"]["retryCount"] == 1
    effects = steps(of, [], group=unknown)
    assert [e.patch for e in only(effects, PatchGroup)] == [{"status": {"phase": "Inqueue"}}]
    of = {**of, "status": status(of, steps(of, [], group=group(of)))}
    assert of["status"]["state"]["phase"] == JobPhase.PENDING
    pods = [pod(of, "worker", 0), pod(of, "worker", 1)]
    assert status(of, steps(of, pods, group=unknown))["retryCount"] == 2


def test_pods_of_an_earlier_version_cause_no_events() -> None:
    of, pods = failing("RestartJob")
    of["status"]["version"] = 1
    assert "retryCount" not in status(of, steps(of, pods))


def test_suspend_and_resume_by_command() -> None:
    of, pods = evicted()
    suspend = command("AbortJob", of)
    effects = steps(of, pods, commands=[suspend])
    assert isinstance(effects[0], SetStatus)
    assert [suspend] == [each.command for each in only(effects, FinishCommand)]
    of = {**of, "status": status(of, effects)}
    assert of["status"]["state"]["phase"] == JobPhase.ABORTING
    of = {**of, "status": status(of, steps(of, []))}
    assert of["status"]["state"]["phase"] == JobPhase.ABORTED
    assert len(only(steps(of, []), DeleteGroup)) == 1
    of = {**of, "status": status(of, steps(of, [], commands=[command("ResumeJob", of, "c2")]))}
    assert of["status"]["state"]["phase"] == JobPhase.RESTARTING
    of = {**of, "status": status(of, steps(of, []))}
    assert (
        of["status"]["state"]["phase"],
        of["status"].get("retryCount", 0),
    ) == (JobPhase.PENDING, 0)


def test_command_is_carried_out_once_even_if_its_deletion_was_lost() -> None:
    of, pods = evicted()
    again = command("RestartJob", of)
    of = {**of, "status": status(of, steps(of, pods, commands=[again]))}
    effects = steps(of, pods, commands=[again])
    assert [again] == [each.command for each in only(effects, FinishCommand)]
    assert status(of, effects)["retryCount"] == 1


def test_resumed_job_keeps_its_finished_pods() -> None:
    of = job(tasks=[task(replicas=2)])
    pods = [pod(of, "worker", 0, "Succeeded"), pod(of, "worker", 1)]
    of = recorded(of, pods)
    of = {**of, "status": status(of, steps(of, pods, commands=[command("AbortJob", of)]))}
    of = {**of, "status": status(of, steps(of, pods[:1]))}
    of = {**of, "status": status(of, steps(of, pods[:1], commands=[command("ResumeJob", of, "r")]))}
    assert names(steps(of, pods[:1]), DeletePod) == []
    of = {**of, "status": status(of, steps(of, pods[:1]))}
    assert of["status"]["state"]["phase"] == JobPhase.PENDING
    assert names(steps(of, pods[:1]), CreatePod) == ["train-worker-1"]


def finished() -> tuple[Object, list[Object]]:
    of = job(tasks=[task(replicas=2)], plugins={"svc": []}, minSuccess=1)
    pods = [pod(of, "worker", 0, "Succeeded"), pod(of, "worker", 1)]
    of = recorded(of, pods, controlled={"plugin-svc": "svc", "volume-pvc-x": "x"})
    return {**of, "status": status(of, steps(of, pods))}, pods


def test_min_success_completes_the_job_and_deletes_running_pods() -> None:
    of, pods = finished()
    assert of["status"]["state"]["phase"] == JobPhase.COMPLETED
    assert names(steps(of, pods), DeletePod) == ["train-worker-1"]


def test_finished_job_keeps_its_counts_and_deletes_its_group_and_objects() -> None:
    of, pods = finished()
    effects = steps(of, pods[:1])
    after = status(of, effects)
    assert (after["succeeded"], after["running"]) == (1, 0)
    assert after["taskStatusCount"] == {"worker": {"phase": {"Succeeded": 1}}}
    assert after["controlledResources"] == {"volume-pvc-x": "x"}
    assert len(only(effects, DropObjects)[0].objects) == 3
    assert len(only(effects, DeleteGroup)) == 1
    of = {**of, "status": after}
    assert steps(of, [], group=None) == [], "its pods may be deleted"


def test_finished_job_ignores_commands_and_keeps_its_version() -> None:
    of, pods = finished()
    for action in ("RestartJob", "AbortJob", "ResumeJob", "TerminateJob"):
        effects = steps(of, pods[:1], commands=[command(action, of)])
        after = status(of, effects)
        assert of["status"]["state"] == after["state"]
        assert of["status"].get("version") == after.get("version")
        assert len(only(effects, FinishCommand)) == 1


DEPENDS = {
    "all: one is not ready": (None, ["Running", "Pending"], False),
    "all: every one is ready": (None, ["Running", "Running"], True),
    "any: one is ready": ("any", ["Running", "Pending"], True),
    "any: none is ready": ("any", ["Pending", "Pending"], False),
}


@pytest.mark.parametrize("case", DEPENDS)
def test_task_waits_for_the_tasks_it_depends_on(case: str) -> None:
    iteration, phases, want_started = DEPENDS[case]
    needs: Object = {"name": ["a", "b"]}
    if iteration:
        needs["iteration"] = iteration
    of = job(tasks=[task("a", 1), task("b", 1), task("c", 1, dependsOn=needs)])
    of = recorded(of, [], "Pending")
    pods = [pod(of, "a", 0, phases[0]), pod(of, "b", 0, phases[1])]
    assert want_started == (names(steps(of, pods), CreatePod) == ["train-c-0"])


def test_terminating_job_has_no_effects() -> None:
    of, pods = evicted()
    of["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert steps(of, pods[:1]) == []


def test_job_waits_for_a_named_claim() -> None:
    of = recorded(job(volumes=[{"mountPath": "/d", "volumeClaimName": "data"}]), [], "Pending")
    effects = steps(of, claims={"data": False})
    assert [each.reason for each in only(effects, EmitEvent)] == ["PVCError"]
    assert names(effects, CreatePod) == []
    assert len(names(steps(of, claims={"data": True}), CreatePod)) == 2


def test_claim_is_named_before_creation_with_a_stable_name() -> None:
    of = recorded(job(volumes=[{"mountPath": "/d", "volumeClaim": {"x": 1}}]), [], "Pending")
    (patch,) = [each.patch for each in only(steps(of), PatchJob)]
    assert [patch] == [each.patch for each in only(steps(of), PatchJob)]
    of["spec"] = merge_patch(of["spec"], patch["spec"])
    name = of["spec"]["volumes"][0]["volumeClaimName"]
    assert name.startswith("train-pvc-")
    effects = steps(of)
    assert [name] == [each.body["metadata"]["name"] for each in only(effects, CreateClaim)]
    mounts = only(effects, CreatePod)[0].body["spec"]["containers"][0]["volumeMounts"]
    assert [each["mountPath"] for each in mounts] == ["/d"]


def test_a_queue_that_extends_to_other_clusters_forwards_its_jobs() -> None:
    of = recorded(job(), [], "Pending")
    queue = {"spec": {"extendClusters": [{"name": "other"}]}}
    (patch,) = [each.patch for each in only(steps(of, queue=queue), PatchJob)]
    assert patch["metadata"]["annotations"] == {wellknown.JOB_FORWARDING: "true"}
