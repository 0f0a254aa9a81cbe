"""Lifecycles of jobs on the embedded server; the test plays kubelet and scheduler."""

import base64
import time
from pathlib import Path
from typing import Any

import pytest

from hekla.kube.resources import (
    COMMANDS,
    CONFIGMAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    JOBS,
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    PODGROUPS,
    PODS,
    SECRETS,
    SERVICES,
)
from hekla.units.clock import ManualClock
from hekla.units.objects import Object

from .cluster import Cluster, running_cluster
from .manifests import job, on, task


async def test_a_job_runs_to_completion(cluster: Cluster) -> None:
    await cluster.client.create(JOBS, job())
    await cluster.has_pods(2, "Pending")
    await cluster.run()
    await cluster.reaches("Running")
    await cluster.succeed()
    done = await cluster.reaches("Completed")
    await cluster.settle()
    done = await cluster.job()
    assert done["status"]["succeeded"] == 2
    assert done["status"]["taskStatusCount"] == {"worker": {"phase": {"Succeeded": 2}}}
    assert [each["status"] for each in done["status"]["conditions"]] == [
        "Pending",
        "Running",
        "Completed",
    ]
    assert (await cluster.client.list(PODGROUPS)).items == []
    assert len(await cluster.pods("Succeeded")) == 2, "finished pods are kept for their logs"


async def running(cluster: Cluster, **spec: Any) -> None:
    tasks = spec.pop("tasks", [task("ps", 1), task("worker", 2)])
    await cluster.client.create(JOBS, job("train", *tasks, **spec))
    count = sum(each["replicas"] for each in tasks)
    await cluster.has_pods(count, "Pending")
    await cluster.run()
    await cluster.reaches("Running")
    await cluster.settle()


async def uids(cluster: Cluster) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in (await cluster.pods()).items()}


RESTARTS = {
    "RestartJob": {"train-ps-0", "train-worker-0", "train-worker-1"},
    "RestartTask": {"train-worker-0", "train-worker-1"},
    "RestartPod": {"train-worker-0"},
}


@pytest.mark.parametrize("action", RESTARTS)
async def test_failed_pod_restarts_the_pods_of_the_policy(cluster: Cluster, action: str) -> None:
    await running(cluster, policies=on(action))
    before = await uids(cluster)
    group = (await cluster.client.list(PODGROUPS)).items[0]["metadata"]["uid"]
    await cluster.fail("train-worker-0", 3)

    async def replaced() -> bool:
        now = await uids(cluster)
        return len(now) == 3 and {n for n in now if now[n] != before[n]} == RESTARTS[action]

    await cluster.until(replaced, action)
    await cluster.run()
    again = await cluster.reaches("Running")
    assert again["status"]["retryCount"] == 1
    assert group == (await cluster.client.list(PODGROUPS)).items[0]["metadata"]["uid"]


async def test_restart_partition_restarts_only_that_partition(cluster: Cluster) -> None:
    parts = {"totalPartitions": 2, "partitionSize": 2}
    tasks = [task("worker", 4, partitionPolicy=parts)]
    await running(cluster, tasks=tasks, policies=on("RestartPartition"))
    before = await uids(cluster)
    await cluster.fail("train-worker-3")

    async def replaced() -> bool:
        now = await uids(cluster)
        changed = {name for name in now if now[name] != before[name]}
        return len(now) == 4 and changed == {"train-worker-2", "train-worker-3"}

    await cluster.until(replaced, "two of four pods are replaced")


ENDS = {"AbortJob": "Aborted", "TerminateJob": "Terminated", "CompleteJob": "Completed"}


@pytest.mark.parametrize("action", ENDS)
async def test_failed_pod_ends_the_job_by_policy(cluster: Cluster, action: str) -> None:
    await running(cluster, policies=on(action), plugins={"svc": []})
    await cluster.fail("train-worker-0")
    await cluster.reaches(ENDS[action])
    await cluster.settle()
    assert list(await cluster.pods()) == ["train-worker-0"]
    assert (await cluster.client.list(PODGROUPS)).items == []
    assert await cluster.client.find(SERVICES, "train", namespace="default") is None
    done = await cluster.job()
    assert (done["status"]["failed"], done["status"]["version"]) == (1, 1)
    assert (done["status"].get("controlledResources") or {}) == {}


async def test_job_restarts_max_retry_times_and_then_fails(cluster: Cluster) -> None:
    await running(cluster, tasks=[task("worker", 1)], maxRetry=2, policies=on("RestartJob"))
    for count in (1, 2):
        await cluster.fail("train-worker-0")

        async def again(count: int = count) -> bool:
            found = (await cluster.job())["status"]
            return found.get("retryCount") == count and bool(await cluster.pods("Pending"))

        await cluster.until(again, f"restart {count}")
        await cluster.run()
        await cluster.reaches("Running")
    await cluster.fail("train-worker-0")
    failed = await cluster.reaches("Failed")
    assert failed["status"]["retryCount"] == 2
    await cluster.settle()
    assert (await cluster.job())["status"]["failed"] == 1


async def test_suspend_and_resume_by_command(cluster: Cluster) -> None:
    await running(cluster)
    await cluster.command("AbortJob")
    await cluster.reaches("Aborted")
    await cluster.settle()
    assert await cluster.pods() == {}
    assert (await cluster.client.list(COMMANDS)).items == []
    await cluster.command("ResumeJob")
    await cluster.has_pods(3, "Pending")
    await cluster.run()
    resumed = await cluster.reaches("Running")
    assert resumed["status"].get("retryCount", 0) == 0

    async def messages() -> bool:
        return any(
            event["reason"] == "CommandIssued"
            for event in (await cluster.client.list(EVENTS)).items
        )

    await cluster.until(messages, "a CommandIssued event")


async def test_job_is_scaled_up_and_down(cluster: Cluster) -> None:
    await running(cluster, tasks=[task("worker", 2)], minAvailable=1, plugins={"svc": []})
    for replicas in (4, 1):
        body = {"replicas": replicas, "minAvailable": 1}
        tasks = [{**(await cluster.job())["spec"]["tasks"][0], **body}]
        patch = {"spec": {"tasks": tasks, "minAvailable": 1}}
        await cluster.client.patch(JOBS, "train", patch, namespace="default")
        await cluster.has_pods(replicas)
        await cluster.settle()
        hosts = await cluster.client.get(CONFIGMAPS, "train-svc", namespace="default")
        assert str(replicas) == hosts["data"]["VC_WORKER_NUM"]
    status = (await cluster.job())["status"]
    assert status.get("retryCount", 0) == 0
    assert (status["running"], status.get("pending", 0)) == (1, 0)


async def test_job_completes_at_min_success(cluster: Cluster) -> None:
    await running(cluster, tasks=[task("worker", 3)], minSuccess=1)
    await cluster.succeed("train-worker-1")
    await cluster.reaches("Completed")
    await cluster.has_pods(1)
    await cluster.settle()
    assert (await cluster.job())["status"]["succeeded"] == 1


async def test_a_task_starts_after_the_one_it_depends_on(cluster: Cluster) -> None:
    tasks = [
        task("ps", 1, minAvailable=1),
        task("worker", 2, minAvailable=0, dependsOn={"name": ["ps"]}),
    ]
    await cluster.client.create(JOBS, job("train", *tasks, minAvailable=1))
    await cluster.has_pods(1)
    await cluster.settle()
    assert list(await cluster.pods()) == ["train-ps-0"]
    await cluster.run()
    await cluster.has_pods(3)


async def test_a_jobs_volumes_are_claimed_and_mounted(cluster: Cluster) -> None:
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    volumes = [
        {"mountPath": "/data", "volumeClaim": claim},
        {"mountPath": "/shared", "volumeClaimName": "shared"},
    ]
    await cluster.client.create(JOBS, job("train", task("worker", 1), volumes=volumes))
    await cluster.settle()
    assert await cluster.pods() == {}, "a claim is missing"
    assert await cluster.phase() == "Pending"
    shared = {"metadata": {"name": "shared", "namespace": "default"}, "spec": claim}
    await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, shared)
    # The retry for a missing claim is timed; a change of the job reconciles at once.
    labels = {"metadata": {"labels": {"a": "b"}}}
    await cluster.client.patch(JOBS, "train", labels, namespace="default")
    pods = await cluster.has_pods(1)
    stored = await cluster.job()
    made = stored["spec"]["volumes"][0]["volumeClaimName"]
    owned = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, made, namespace="default")
    assert stored["metadata"]["uid"] == owned["metadata"]["ownerReferences"][0]["uid"]
    container = pods["train-worker-0"]["spec"]["containers"][0]
    paths = [each["mountPath"] for each in container["volumeMounts"]]
    assert {"/data", "/shared"} <= set(paths)
    await cluster.settle()
    marks = (await cluster.job())["status"]["controlledResources"]
    assert {f"volume-pvc-{made}": made, "volume-pvc-shared": "shared"} == marks


async def test_svc_and_ssh_objects_exist_while_the_job_runs(cluster: Cluster) -> None:
    tasks = [task("master", 1), task("worker", 2)]
    await running(cluster, tasks=tasks, plugins={"svc": [], "ssh": []}, policies=on("RestartPod"))

    async def objects() -> list[Object]:
        return [
            await cluster.client.get(kind, name, namespace="default")
            for kind, name in (
                (CONFIGMAPS, "train-svc"),
                (SERVICES, "train"),
                (NETWORK_POLICIES, "train"),
                (SECRETS, "train-ssh"),
            )
        ]

    before = await objects()
    key = base64.b64decode(before[3]["data"]["id_rsa"])
    assert key.startswith(b"-----BEGIN RSA PRIVATE KEY-----")
    config = base64.b64decode(before[3]["data"]["config"]).decode()
    assert "Host train-worker-1\n  HostName train-worker-1.train\n  Port 22" in config
    await cluster.fail("train-worker-0")
    await cluster.has_pods(1, "Pending")
    await cluster.run()
    await cluster.reaches("Running")
    assert before == await objects(), "a targeted restart does not change them"
    marks = (await cluster.job())["status"]["controlledResources"]
    assert marks == {"plugin-svc": "svc", "plugin-ssh": "ssh"}


async def test_service_of_another_owner_is_neither_used_nor_deleted(cluster: Cluster) -> None:
    foreign = {
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"ports": [{"port": 80}]},
    }
    made = await cluster.client.create(SERVICES, foreign)
    await cluster.client.create(JOBS, job("train", plugins={"svc": []}))

    async def messages() -> list[str]:
        events = (await cluster.client.list(EVENTS)).items
        return [event["message"] for event in events if event["reason"] == "PluginError"]

    (message,) = await cluster.until(messages, "a PluginError event")
    assert "Service default/train exists and is not owned by this job" in message
    await cluster.client.delete(JOBS, "train", namespace="default")
    found = await cluster.client.get(SERVICES, "train", namespace="default")
    assert made["metadata"]["uid"] == found["metadata"]["uid"]


async def test_evicted_pod_aborts_the_job_even_if_the_controllers_were_down(
    cluster: Cluster,
) -> None:
    await running(cluster, policies=on("AbortJob", "PodEvicted"))
    await cluster.stop()
    await cluster.client.delete(PODS, "train-worker-1", namespace="default", grace_period_s=0)
    await cluster.start()
    await cluster.reaches("Aborted")


async def test_pod_failure_while_the_controllers_were_down_is_handled(
    cluster: Cluster,
) -> None:
    await running(cluster, policies=on("TerminateJob"))
    await cluster.stop()
    await cluster.fail("train-worker-1")
    await cluster.start()
    await cluster.reaches("Terminated")


async def test_pod_of_the_same_name_with_another_owner_is_not_changed(cluster: Cluster) -> None:
    container = {"name": "main", "image": "host"}
    foreign = {
        "metadata": {"name": "train-worker-0", "namespace": "default"},
        "spec": {"containers": [container]},
    }
    made = await cluster.client.create(PODS, foreign)
    await cluster.client.create(JOBS, job("train", task("worker", 1)))

    async def messages() -> list[str]:
        events = (await cluster.client.list(EVENTS)).items
        return [event["message"] for event in events if event["reason"] == "FailedCreate"]

    await cluster.until(messages, "a PluginError event")
    found = (await cluster.pods())["train-worker-0"]
    assert made["metadata"]["uid"] == found["metadata"]["uid"]


async def test_counts_are_written_while_the_name_of_a_pod_is_taken(cluster: Cluster) -> None:
    foreign = {
        "metadata": {"name": "train-worker-2", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "host"}]},
    }
    await cluster.client.create(PODS, foreign)
    await cluster.client.create(JOBS, job("train", task("worker", 3), minAvailable=1))

    async def counts() -> bool:
        status = (await cluster.client.get(JOBS, "train", namespace="default")).get("status") or {}
        return bool(status.get("taskStatusCount") == {"worker": {"phase": {"Pending": 2}}})

    await cluster.until(counts, "the two pods of the job are counted")


async def test_deleting_a_job_deletes_all_its_objects(cluster: Cluster) -> None:
    await running(cluster, plugins={"svc": [], "ssh": []})
    await cluster.client.delete(JOBS, "train", namespace="default")

    async def empty() -> bool:
        for kind in (PODS, PODGROUPS, SECRETS, SERVICES, NETWORK_POLICIES):
            found = (await cluster.client.list(kind, namespace="default")).items
            if [each for each in found if each["metadata"]["name"].startswith("train")]:
                return False
        return True

    await cluster.until(empty, "all objects are deleted")


async def test_plugin_that_does_not_support_the_job_emits_an_event(cluster: Cluster) -> None:
    await cluster.client.create(JOBS, job("train", task("worker", 1), plugins={"ray": []}))

    async def messages() -> list[str]:
        events = (await cluster.client.list(EVENTS)).items
        return [event["message"] for event in events if event["reason"] == "PluginError"]

    (message,) = await cluster.until(messages, "a PluginError event")
    assert "there is no task 'head'; rename a task or set --head=TASK" in message


async def test_kind_that_the_server_lacks_blocks_only_its_controllers(
    cluster: Cluster,
) -> None:
    await cluster.stop()
    await cluster.client.delete(
        CUSTOM_RESOURCE_DEFINITIONS, "jobflows.flow.volcano.sh", missing_ok=True
    )
    await cluster.start()
    await cluster.client.create(JOBS, job())
    await cluster.has_pods(2, "Pending")


async def test_deadline_that_passes_while_the_controllers_are_down_is_kept(
    tmp_path: Path,
) -> None:
    clock = ManualClock(float(int(time.time())))
    async with running_cluster(tmp_path / "data", clock=clock) as cluster:
        late = on("AbortJob", "PodPending", timeout="10m")
        await cluster.client.create(JOBS, job("train", policies=late))
        await cluster.has_pods(2, "Pending")
        await cluster.run(["train-worker-0"])
        await cluster.settle()
        await cluster.stop()
        await clock.advance(599)
        await cluster.start()
        await cluster.settle()
        assert await cluster.phase() == "Pending"
        await clock.advance(2)
        await cluster.reaches("Aborted")
