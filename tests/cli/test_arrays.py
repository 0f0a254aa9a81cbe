"""Job arrays in the commands and the SDK: submission, view, retry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hekla import AsyncJobHandle, CannotRetry, Job, Task
from hekla.api import wellknown
from hekla.cli.failure_report import failed_containers, report
from hekla.cli.progress import Jobs, PlainScreen, panel
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.resources import JOBS, PODS
from hekla.kube.sync_client import SyncClient
from hekla.sdk.array_status import array_status, failure_of, retries_by_count
from hekla.sdk.job_retry import names, retry_of
from hekla.units.objects import Object
from tests.cli.conftest import Run

Make = Callable[..., dict[str, Any]]


def stored(phase: str = "Failed", *, indices: str = "1-4", count: int = 4, **status: Any) -> Object:
    """Return an array as the server stores it."""
    made = Job.array("sweep", indices, command="true").manifest()
    made["metadata"] |= {"uid": "u1", "namespace": "ml"}
    assert made["spec"]["tasks"][0]["replicas"] == count
    return {**made, "status": {"state": {"phase": phase}, **status}}


def pod(index: int, phase: str, code: int = 0, reason: str = "Error") -> Object:
    container: Object = {"name": "main"}
    if code:
        container["state"] = {"terminated": {"exitCode": code, "reason": reason}}
    return {
        "metadata": {
            "name": f"sweep-worker-{index}",
            "namespace": "ml",
            "labels": {wellknown.ARRAY_INDEX: str(index)},
            "ownerReferences": [{"uid": "u1"}],
        },
        "status": {"phase": phase, "containerStatuses": [container]},
    }


PODS_OF_SWEEP = (pod(1, "Succeeded"), pod(2, "Failed", 1), pod(4, "Failed", 137, "OOMKilled"))


def test_builder_makes_a_job_of_one_replica_for_each_index() -> None:
    made = Job.array("sweep", "0-9%3", retries=2, command="true", memory="1Gi").manifest()
    assert made["metadata"]["annotations"] == {
        "hekla.io/array-indices": "0-9",
        "hekla.io/array-parallelism": "3",
        "hekla.io/array-retries": "2",
    }
    (task,) = made["spec"]["tasks"]
    assert (task["name"], task["replicas"], task["minAvailable"]) == ("worker", 10, 1)
    assert "policies" not in made["spec"]


def test_builder_refuses_replicas_beside_an_array() -> None:
    with pytest.raises(ValueError, match="leave replicas out"):
        Job("sweep", [Task(array="0-9", replicas=3)]).manifest()


def test_retries_of_a_plain_job_restart_it_when_a_pod_failed() -> None:
    spec = Job("train", [Task(command="true")], retries=3).manifest()["spec"]
    assert spec["policies"] == [{"event": "PodFailed", "action": "RestartJob"}]
    assert spec["maxRetry"] == 3
    with pytest.raises(ValueError, match="keep the retries"):
        Job("train", [Task()], retries=3, policies={"PodFailed": "AbortJob"}).manifest()


def test_vsub_submits_an_array(tool: Run, admin: SyncClient, namespace: str) -> None:
    done = tool("vsub", "-n", "sub", "--array", "1,3,5-9:2%2", "-c", "date")
    assert (done.code, done.out) == (0, "run job sub successfully\n"), done.err
    made = admin.get(JOBS, "sub", namespace=namespace)
    assert made["spec"]["tasks"][0]["replicas"] == 5
    assert made["metadata"]["annotations"][wellknown.ARRAY_PARALLELISM] == "2"


@pytest.mark.parametrize(
    ("flags", "want"),
    {
        "no indices": (("--array", "x"), "'x' is not an index or a range"),
        "replicas too": (("--array", "0-9", "-r", "3"), "has a replica for each index"),
    }.values(),
)
def test_vsub_refuses(tool: Run, flags: tuple[str, ...], want: str) -> None:
    done = tool("vsub", "-n", "sub", *flags)
    assert done.code != 0
    assert want in done.err


def test_the_signal_that_ended_an_index_is_named() -> None:
    def why(code: int, reason: str) -> str:
        state = {"terminated": {"exitCode": code, "reason": reason}}
        return failure_of({"status": {"containerStatuses": [{"state": state}]}})

    assert why(139, "Error") == "exit code 139, SIGSEGV"
    assert why(137, "OOMKilled") == "exit code 137, OOMKilled"
    assert why(3, "Error") == "exit code 3"


def test_status_has_the_indices_by_state_and_the_failures_by_exit_code() -> None:
    status = array_status(stored("Running"), PODS_OF_SWEEP)
    assert status is not None
    assert str(status) == "3/4 done, 2 failed"
    assert status.by_state["not started"] == (3,)
    assert status.failures == {"exit code 1": (2,), "exit code 137, OOMKilled": (4,)}


def test_failure_report_lists_indices_by_reason() -> None:
    failed = [one for each in PODS_OF_SWEEP[1:] for one in failed_containers(each)]
    lines = list(report(stored(), "Failed", failed, "`hekla explain sweep`"))
    assert lines == [
        "job sweep ended as Failed",
        "  failed indices 2: exit code 1",
        "  failed indices 4: exit code 137, OOMKilled",
        "  a container needed more memory than its limit; --memory (limits.memory) raises it",
        "  next: `hekla explain sweep`",
    ]


def counted(**phases: int) -> Object:
    return stored("Running", taskStatusCount={"worker": {"phase": phases}})


def test_panel_shows_done_and_failed_indices() -> None:
    job = counted(Succeeded=1, Failed=1, Running=2)
    lines = list(panel(Jobs({"u1": job}), 0.0))
    assert lines[1].endswith("2/4 done, 1 failed, 2 running")


def test_plain_output_shows_the_progress_of_an_array_at_each_tenth(capsys: Any) -> None:
    made = stored(indices="1-1000", count=1000)
    jobs = Jobs({"u1": made})
    screen = PlainScreen(jobs)
    for done in range(1001):
        made["status"] = {
            "state": {"phase": "Running"},
            "taskStatusCount": {"worker": {"phase": {"Succeeded": done}}},
        }
        screen.changed()
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["job sweep: Running", "job sweep: 100/1000 done"]
    assert len(lines) == 11


def test_retry_has_only_the_indices_that_did_not_succeed() -> None:
    job = stored(succeeded=1, failed=2)
    job["metadata"]["annotations"][wellknown.ARRAY_RETRIED] = '{"1": "2"}'
    retry = retry_of(job, PODS_OF_SWEEP)
    assert retry["metadata"]["name"] == "sweep-retry-1"
    assert retry["metadata"]["annotations"] == {
        "hekla.io/array-indices": "2-4",
        "hekla.io/array-whole": "1-4",
    }
    assert (retry["spec"]["tasks"][0]["replicas"], retry["spec"]["minSuccess"]) == (3, 3)


REFUSED: dict[str, tuple[Object, str]] = {
    "a completed job": (stored("Completed"), "has completed"),
    "a running job": (stored("Running"), "`hekla job wait sweep` waits for its end"),
    "an aborted job": (stored("Aborted"), "`hekla job resume sweep`"),
    "an array whose pods are deleted": (stored(succeeded=3), "submit a new job with --array"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_retry_is_refused_for(case: str) -> None:
    job, want = REFUSED[case]
    with pytest.raises(CannotRetry, match=want):
        retry_of(job, PODS_OF_SWEEP)


def test_names_of_retries_count_on_and_fit_the_names_of_pods() -> None:
    job = stored()
    job["metadata"]["name"] = "sweep-retry-4"
    assert next(names(job)) == "sweep-retry-5"
    job["metadata"]["name"] = "x" * 53
    assert f"{next(names(job))}-worker-4" == "x" * 46 + "-retry-1-worker-4"


def test_view_and_retry_of_a_failed_array(
    vcctl: Run, tool: Run, admin: SyncClient, namespace: str
) -> None:
    assert tool("vsub", "-n", "sweep", "--array", "1-4", "-c", "date").code == 0
    made = admin.get(JOBS, "sweep", namespace=namespace)
    owner = {"apiVersion": made["apiVersion"], "kind": "Job", "name": "sweep", "controller": True}
    for each in PODS_OF_SWEEP:
        body = {**each, "apiVersion": "v1", "kind": "Pod"}
        body["metadata"] = {
            **each["metadata"],
            "namespace": namespace,
            "labels": {**each["metadata"]["labels"], wellknown.JOB_NAME: "sweep"},
            "ownerReferences": [{**owner, "uid": made["metadata"]["uid"]}],
        }
        body["spec"] = {"containers": [{"name": "main", "image": "busybox"}]}
        created = admin.create(PODS, body, namespace=namespace)
        ended = (each["status"]["containerStatuses"][0].get("state") or {}).get("terminated")
        shape = {"name": "main", "image": "", "imageID": "", "ready": False, "restartCount": 0}
        state = {"terminated": ended or {"exitCode": 0}}
        admin.patch_status(
            PODS,
            created["metadata"]["name"],
            {"phase": each["status"]["phase"], "containerStatuses": [{**shape, "state": state}]},
            namespace=namespace,
        )
    status = {"state": {"phase": "Failed"}, "succeeded": 1, "failed": 2}
    admin.patch_status(JOBS, "sweep", status, namespace=namespace)
    shown = vcctl("job", "view", "sweep").lines
    at = shown.index("Array:\t3/4 done, 2 failed")
    assert shown[at + 1 : at + 6] == [
        "  Succeeded:\t1",
        "  Failed:\t2,4",
        "  Not started:\t3",
        "    2: exit code 1",
        "    4: exit code 137, OOMKilled",
    ]
    done = vcctl("job", "retry", "sweep")
    assert (done.code, done.out) == (0, "run job sweep-retry-1 successfully\n"), done.err
    assert "indices 2-4" in done.err
    assert vcctl("job", "retry", "sweep").out == "run job sweep-retry-2 successfully\n"
    refused = vcctl("job", "retry", "sweep-retry-1")
    assert refused.code == 255
    assert "is Pending; `hekla job wait sweep-retry-1`" in refused.err


async def test_async_handle_has_the_status_of_an_array_and_retries_it(
    tool: Run, admin: SyncClient, server: Path, namespace: str
) -> None:
    assert tool("vsub", "-n", "sweep", "--array", "1-4", "-c", "date").code == 0
    admin.patch_status(JOBS, "sweep", {"state": {"phase": "Failed"}}, namespace=namespace)
    async with Client(kubeconfig.load(server), component="test") as client:
        job = await AsyncJobHandle.of("sweep", namespace=namespace, client=client)
        status = await job.array_status()
        assert status is not None
        assert status.by_state["not started"] == (1, 2, 3, 4)
        assert (await job.retry()).name == "sweep-retry-1"


def test_view_shows_how_often_indices_were_retried() -> None:
    job = stored()
    job["metadata"]["annotations"][wellknown.ARRAY_RETRIED] = '{"1": "3,7-9", "2": "5"}'
    assert retries_by_count(job) == {1: "3,7-9", 2: "5"}
    job["metadata"]["annotations"][wellknown.ARRAY_RETRIED] = "nonsense"
    assert retries_by_count(job) == {}
