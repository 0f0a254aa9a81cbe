"""Crash consistency: controllers that crash after any write end with the same objects.

A lifecycle runs once and its writes are counted. Then it runs once for each of them, with
controllers that crash after that write and are restarted. The final objects must be equal, no pod
may be created more often than before, and no policy may fire twice or be missed (as shown by retry
count and version).
"""

from __future__ import annotations

import calendar
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hekla.kube.resources import (
    COMMANDS,
    CONFIGMAPS,
    CRON_JOBS,
    JOB_FLOWS,
    JOB_TEMPLATES,
    JOBS,
    NAMESPACES,
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    PODGROUPS,
    PODS,
    SECRETS,
    SERVICES,
)

from .cluster import Cluster, running_cluster
from .manifests import job, on, task

Life = Callable[[Cluster], Awaitable[None]]
KINDS = (
    JOBS,
    PODS,
    PODGROUPS,
    SERVICES,
    CONFIGMAPS,
    SECRETS,
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    COMMANDS,
    JOB_FLOWS,
    CRON_JOBS,
)
ALSO = {
    "one_after_the_other": ("jobflow-controller", "jobtemplate-controller"),
    "by_the_calendar": ("cronjob-controller",),
}
MAX_WRITES = 120


async def submit(cluster: Cluster, *tasks: Any, **spec: Any) -> None:
    made = job("train", *tasks, namespace=cluster.namespace, **spec)
    await cluster.client.create(JOBS, made)


async def start(cluster: Cluster, count: int) -> None:
    await cluster.has_pods(count, "Pending")
    await cluster.run()
    await cluster.reaches("Running")
    await cluster.settle()


async def retried(cluster: Cluster, count: int, pending: int) -> None:
    """Wait for the restart, and run its pods."""

    async def there() -> bool:
        status = (await cluster.job())["status"]
        return status.get("retryCount") == count and len(await cluster.pods("Pending")) == pending

    await cluster.until(there, f"restart {count}")
    await cluster.run()
    await cluster.reaches("Running")
    await cluster.settle()


async def run_to_completion(cluster: Cluster) -> None:
    await submit(cluster, task("worker", 2), plugins={"svc": [], "env": []})
    await start(cluster, 2)
    await cluster.succeed()
    await cluster.reaches("Completed")


async def restart_job(cluster: Cluster) -> None:
    await submit(cluster, task("worker", 2), policies=on("RestartJob"))
    await start(cluster, 2)
    await cluster.fail("train-worker-0")
    await retried(cluster, 1, 2)
    await cluster.succeed()
    await cluster.reaches("Completed")


async def restart_task(cluster: Cluster) -> None:
    await submit(cluster, task("ps", 1), task("worker", 3), policies=on("RestartTask"))
    await start(cluster, 4)
    await cluster.fail("train-worker-1")
    await retried(cluster, 1, 3)
    await cluster.succeed()
    await cluster.reaches("Completed")


async def restart_pod(cluster: Cluster) -> None:
    await submit(cluster, task("worker", 2), policies=on("RestartPod"))
    await start(cluster, 2)
    await cluster.fail("train-worker-1")
    await retried(cluster, 1, 1)
    await cluster.succeed()
    await cluster.reaches("Completed")


async def retries_spent(cluster: Cluster) -> None:
    await submit(cluster, task("worker", 1), policies=on("RestartJob"), maxRetry=1)
    await start(cluster, 1)
    await cluster.fail("train-worker-0")
    await retried(cluster, 1, 1)
    await cluster.fail("train-worker-0")
    await cluster.reaches("Failed")


async def evicted_task(cluster: Cluster) -> None:
    await submit(cluster, task("worker", 3), policies=on("RestartTask", "PodEvicted"))
    await start(cluster, 3)
    await cluster.client.delete(
        PODS, "train-worker-1", namespace=cluster.namespace, grace_period_s=0
    )
    await start(cluster, 3)
    await cluster.succeed()
    await cluster.reaches("Completed")


async def suspend_and_resume(cluster: Cluster) -> None:
    await submit(cluster, task("worker", 2))
    await start(cluster, 2)
    await cluster.succeed("train-worker-0")
    await cluster.command("AbortJob")
    await cluster.reaches("Aborted")
    await cluster.settle()
    await cluster.command("ResumeJob")
    await cluster.has_pods(1, "Pending")
    await cluster.run()
    await cluster.reaches("Running")
    await cluster.succeed()
    await cluster.reaches("Completed")


async def completed_by_one_task(cluster: Cluster) -> None:
    master = task("master", 1, policies=on("CompleteJob", "TaskCompleted"))
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volumes = [{"mountPath": "/data", "volumeClaim": claim}]
    await submit(cluster, master, task("worker", 2), volumes=volumes)
    await start(cluster, 3)
    await cluster.succeed("train-master-0")
    await cluster.reaches("Completed")


async def array_with_retries(cluster: Cluster) -> None:
    """Three indices, two at a time; one fails and is retried."""
    made = job(
        "train",
        {**task("worker", 3), "minAvailable": 1},
        namespace=cluster.namespace,
        minAvailable=1,
        minSuccess=3,
    )
    marks = {"indices": "5,7,9", "parallelism": "2", "retries": "1"}
    made["metadata"]["annotations"] = {f"hekla.io/array-{k}": v for k, v in marks.items()}
    await cluster.client.create(JOBS, made)
    await cluster.has_pods(2, "Pending")
    await cluster.run()
    await cluster.reaches("Running")
    assert set(await cluster.pods()) == {"train-worker-5", "train-worker-7"}
    await cluster.fail("train-worker-5", 3)
    await cluster.has_pods(1, "Pending")
    await cluster.settle()
    await cluster.run()
    await cluster.succeed()
    await cluster.has_pods(1, "Pending")
    await cluster.settle()
    await cluster.run()
    await cluster.succeed()
    await cluster.reaches("Completed")


async def one_after_the_other(cluster: Cluster) -> None:
    """A flow of two steps, each a job from a template."""
    spec = job("x", task("worker", 1))["spec"]
    for name in "ab":
        meta = {"name": name, "namespace": cluster.namespace}
        await cluster.client.create(JOB_TEMPLATES, {"metadata": meta, "spec": spec})
    flows = [{"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"]}}]
    meta = {"name": "f", "namespace": cluster.namespace}
    body = {"metadata": meta, "spec": {"jobRetainPolicy": "retain", "flows": flows}}
    await cluster.client.create(JOB_FLOWS, body)
    for name in ("f-a", "f-b"):
        await cluster.has_pods(1, "Pending")
        await cluster.run()
        await cluster.reaches("Running", name)
        await cluster.succeed()
        await cluster.reaches("Completed", name)

    async def succeeded() -> bool:
        found = await cluster.client.get(JOB_FLOWS, "f", namespace=cluster.namespace)
        return ((found.get("status") or {}).get("state") or {}).get("phase") == "Succeed"

    await cluster.until(succeeded, "the flow succeeds")


async def by_the_calendar(cluster: Cluster) -> None:
    """A missed yearly run is started once."""
    year = time.gmtime(cluster.clock.now()).tm_year
    meta = {"name": "yearly", "namespace": cluster.namespace}
    template = {"spec": job("x", task("worker", 1))["spec"]}
    spec = {"schedule": "0 0 1 1 *", "timeZone": "UTC", "jobTemplate": template}
    await cluster.client.create(CRON_JOBS, {"metadata": meta, "spec": spec})
    await cluster.client.patch_status(
        CRON_JOBS,
        "yearly",
        {"lastScheduleTime": f"{year - 1}-01-01T00:00:00Z"},
        namespace=cluster.namespace,
    )
    name = f"yearly-{calendar.timegm((year, 1, 1, 0, 0, 0)) // 60}"
    await cluster.has_pods(1, "Pending")
    await cluster.run()
    await cluster.reaches("Running", name)
    await cluster.succeed()
    await cluster.reaches("Completed", name)

    async def remembered() -> bool:
        found = await cluster.client.get(CRON_JOBS, "yearly", namespace=cluster.namespace)
        return bool(found["status"].get("lastSuccessfulTime")) and not found["status"].get("active")

    await cluster.until(remembered, "the run is in the status")


LIVES: dict[str, Life] = {
    life.__name__: life
    for life in (
        run_to_completion,
        restart_job,
        restart_task,
        restart_pod,
        retries_spent,
        evicted_task,
        suspend_and_resume,
        completed_by_one_task,
        array_with_retries,
        one_after_the_other,
        by_the_calendar,
    )
}


async def play(cluster: Cluster, life: Life, name: str, crash_after: int | None) -> tuple[Any, int]:
    """Run one lifecycle in a new namespace; return its final objects and the number of writes."""
    cluster.namespace = name
    await cluster.client.create(NAMESPACES, {"metadata": {"name": name}})
    await cluster.start(crash_after=crash_after)
    first = cluster.control
    assert first is not None
    await life(cluster)
    await cluster.settle()
    left = {str(kind): await _left(cluster, kind) for kind in KINDS}
    made = {key.split("/")[1]: n for key, n in cluster.made.items() if key.startswith(f"{name}/")}
    await cluster.stop()
    return (left, made), len(first.writes)


async def _left(cluster: Cluster, kind: Any) -> list[Any]:
    found = (await cluster.client.list(kind, namespace=cluster.namespace)).items
    return sorted((_essence(each) for each in found), key=lambda each: str(each["name"]))


def _essence(obj: Any) -> Any:
    """Return an object without fields that differ between runs: times, identities, keys."""
    metadata = obj["metadata"]
    uid = (metadata.get("ownerReferences") or [{"uid": "?"}])[0]["uid"]
    status = obj.get("status") or {}
    name = metadata["name"].replace(uid, "UID")
    if obj.get("kind") == "PersistentVolumeClaim":
        name = "claim"
    essence: dict[str, Any] = {"name": name}
    if obj.get("kind") in ("JobFlow", "CronJob"):
        times = ("lastScheduleTime", "lastSuccessfulTime")
        essence["times"] = [key for key in times if status.get(key)]
        essence["active"] = [each["name"] for each in status.get("active") or ()]
        essence["phase"] = (status.get("state") or {}).get("phase")
        essence["jobs"] = {k: v for k, v in sorted(status.items()) if k.endswith("Jobs") and v}
    elif "retryCount" in str(status) or "taskStatusCount" in status or "state" in status:
        state = status.get("state") or {}
        counts = ("succeeded", "failed", "running", "pending", "terminating", "version")
        essence["phase"] = state.get("phase")
        essence["reason"] = state.get("reason")
        essence["conditions"] = [each["status"] for each in status.get("conditions") or ()]
        essence["counts"] = {key: status.get(key) or 0 for key in (*counts, "retryCount")}
        essence["tasks"] = status.get("taskStatusCount")
        essence["controlled"] = sorted(
            value.split("-")[0] for value in (status.get("controlledResources") or {}).values()
        )
    elif "containerStatuses" in status:
        essence["phase"] = status["phase"]
        essence["annotations"] = {
            key: value.replace(uid, "UID") for key, value in metadata["annotations"].items()
        }
    return essence


@pytest.mark.slow
@pytest.mark.parametrize("life", LIVES)
async def test_restart_after_any_write_gives_the_same_final_objects(
    life: str, tmp_path: Path
) -> None:
    async with running_cluster(tmp_path / "data", start=False) as cluster:
        cluster.select = ["job-controller", "queue-controller", *ALSO.get(life, ())]
        want, writes = await play(cluster, LIVES[life], "undisturbed", None)
        assert 3 < writes < MAX_WRITES
        for number in range(1, writes + 1):
            found, _ = await play(cluster, LIVES[life], f"crash-{number}", number)
            assert want == found, f"after write {number}"
        # The number of writes depends on timing: simultaneous changes are written once.
        assert cluster.crashes > writes / 2
