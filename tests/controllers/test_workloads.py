"""Kubernetes' own workloads on the embedded server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hekla.controllers.runner import WORKLOADS, selected
from hekla.kube.resources import (
    BATCH_CRON_JOBS,
    BATCH_JOBS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    EVENTS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_QUOTAS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)
from hekla.units.clock import ManualClock
from hekla.units.objects import Object

from .cluster import Cluster, running_cluster
from .workloads import EVERY, batch_job, keep_ready, make_ready, template, workload


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path / "data", start=False) as running:
        running.select = [*EVERY]
        await running.start()
        yield running


async def get(cluster: Cluster, kind: Resource[Any], name: str) -> Object:
    return await cluster.client.get(kind, name, namespace="default")


async def change(cluster: Cluster, kind: Resource[Any], name: str, **spec: Any) -> None:
    await cluster.client.patch(kind, name, {"spec": spec}, namespace="default")


async def create(cluster: Cluster, kind: Resource[Any], body: Object) -> Object:
    return await cluster.client.create(kind, body, namespace="default")


async def sets(cluster: Cluster) -> dict[int, Object]:
    """Return replica sets by revision."""
    found = (await cluster.client.list(REPLICA_SETS, namespace="default")).items
    return {
        int(each["metadata"]["annotations"]["deployment.kubernetes.io/revision"]): each
        for each in found
    }


def conditions(obj: Object) -> dict[str, tuple[str, str]]:
    found = (obj.get("status") or {}).get("conditions") or ()
    return {each["type"]: (each["status"], each["reason"]) for each in found}


def test_workload_controllers_run_only_if_named() -> None:
    assert not set(selected(["*"])) & set(WORKLOADS)
    assert set(WORKLOADS) == set(EVERY)
    assert set(selected(["*", *WORKLOADS])) >= set(WORKLOADS)


# Replica sets


@pytest.mark.parametrize("kind", [REPLICA_SETS, REPLICATION_CONTROLLERS], ids=str)
async def test_a_replica_set_keeps_its_number_of_pods(
    cluster: Cluster, kind: Resource[Any]
) -> None:
    body = workload("web", 3)
    if kind is REPLICATION_CONTROLLERS:
        body["spec"]["selector"] = {"app": "web"}
    await create(cluster, kind, body)
    await cluster.has_pods(3)
    await keep_ready(cluster)
    found = await get(cluster, kind, "web")
    counts = {"replicas": 3, "readyReplicas": 3, "availableReplicas": 3}
    assert counts.items() <= found["status"].items()
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
    gone = next(iter(await cluster.pods()))
    await cluster.client.delete(PODS, gone, namespace="default", grace_period_s=0)
    await cluster.has_pods(3)
    assert gone not in await cluster.pods()
    await keep_ready(cluster)
    await change(cluster, kind, "web", replicas=1)
    await cluster.has_pods(1)


async def test_scale_down_deletes_unready_pods_first(cluster: Cluster) -> None:
    await create(cluster, REPLICA_SETS, workload("web", 3))
    names = sorted(await cluster.has_pods(3))
    await make_ready(cluster, names[1])
    await cluster.settle()
    await change(cluster, REPLICA_SETS, "web", replicas=1)
    assert list(await cluster.has_pods(1)) == [names[1]]


async def test_matching_orphans_are_adopted_and_other_pods_released(cluster: Cluster) -> None:
    stray = {"metadata": {"name": "stray", "labels": {"app": "web"}}, "spec": template()["spec"]}
    await create(cluster, PODS, stray)
    await create(cluster, REPLICA_SETS, workload("web", 2))
    await cluster.settle()
    pods = await cluster.has_pods(2)
    assert pods["stray"]["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"
    await cluster.client.patch(
        PODS, "stray", {"metadata": {"labels": {"app": "other"}}}, namespace="default"
    )
    await cluster.has_pods(3)
    await cluster.settle()
    assert not (await cluster.pods())["stray"]["metadata"].get("ownerReferences")


async def test_set_refused_by_a_quota_reports_it_and_retries(cluster: Cluster) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}
    await create(cluster, RESOURCE_QUOTAS, quota)
    await create(cluster, REPLICA_SETS, workload("web", 50))

    async def reported() -> bool:
        found = await get(cluster, REPLICA_SETS, "web")
        return conditions(found).get("ReplicaFailure") == ("True", "FailedCreate")

    await cluster.until(reported, "the condition")
    assert cluster.control is not None
    tries = [each for each in cluster.control.writes if each.endswith("/pods")]
    assert len(tries) < 20, "a refused pod is not tried fifty times"
    await cluster.client.patch(
        RESOURCE_QUOTAS, "few", {"spec": {"hard": {"pods": "50"}}}, namespace="default"
    )
    await cluster.has_pods(50)
    await cluster.settle()
    assert "ReplicaFailure" not in conditions(await get(cluster, REPLICA_SETS, "web"))


# Deployments


async def deployed(cluster: Cluster, replicas: int = 3, **spec: Any) -> None:
    await create(cluster, DEPLOYMENTS, workload("web", replicas, **spec))
    await cluster.has_pods(replicas)
    await keep_ready(cluster)


async def test_a_deployment_becomes_available(cluster: Cluster) -> None:
    await deployed(cluster)
    found = await get(cluster, DEPLOYMENTS, "web")
    assert conditions(found) == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }
    assert found["status"]["updatedReplicas"] == found["status"]["availableReplicas"] == 3
    assert found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
    (only,) = (await sets(cluster)).values()
    digest = only["metadata"]["labels"]["pod-template-hash"]
    assert only["metadata"]["name"] == f"web-{digest}"
    for pod in (await cluster.pods()).values():
        assert pod["metadata"]["labels"]["pod-template-hash"] == digest


async def test_update_rolls_within_its_bounds_and_can_be_undone(cluster: Cluster) -> None:
    strategy = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}
    await deployed(cluster, 4, strategy=strategy)
    most = least_ready = 4

    def watch(table: str, event: Any) -> None:
        nonlocal most, least_ready
        if table == "pods":
            alive = [
                each
                for each in cluster.server.store.table("pods").entries.values()
                if b'"deletionTimestamp"' not in each.body
            ]
            most = max(most, len(alive))
            ready = sum(b'"type":"Ready","status":"True"' in each.body for each in alive)
            least_ready = min(least_ready, ready)

    cluster.server.store.subscribe(watch)
    await change(cluster, DEPLOYMENTS, "web", template=template("web", A="2"))
    await keep_ready(cluster)
    assert (most, least_ready) == (5, 3)
    found = await sets(cluster)
    assert {number: each["spec"]["replicas"] for number, each in found.items()} == {1: 0, 2: 4}
    old = found[1]["spec"]["template"]
    del old["metadata"]["labels"]["pod-template-hash"]
    await cluster.client.patch(
        DEPLOYMENTS,
        "web",
        [{"op": "replace", "path": "/spec/template", "value": old}],
        kind="json",
        namespace="default",
    )
    await keep_ready(cluster)
    found = await sets(cluster)
    assert {number: each["spec"]["replicas"] for number, each in found.items()} == {2: 0, 3: 4}
    annotations = found[3]["metadata"]["annotations"]
    assert annotations["deployment.kubernetes.io/revision-history"] == "1"


async def test_recreate_waits_until_the_last_old_pod_has_ended(cluster: Cluster) -> None:
    await deployed(cluster, 2, strategy={"type": "Recreate"})
    old = set(await cluster.pods())
    await cluster.client.create(NODES, {"metadata": {"name": "n"}})
    for name in old:
        await cluster.client.bind(name, "n", namespace="default")
    await change(cluster, DEPLOYMENTS, "web", template=template("web", A="2"))
    await cluster.has_pods(0)
    await cluster.settle()
    assert len(await sets(cluster)) == 1, "old pods are still terminating"
    for name in old:
        await cluster.client.delete(PODS, name, namespace="default", grace_period_s=0)
    await cluster.has_pods(2)
    assert not old & set(await cluster.pods())


async def test_paused_deployment_scales_but_does_not_roll(cluster: Cluster) -> None:
    await deployed(cluster, 2)
    await change(cluster, DEPLOYMENTS, "web", paused=True, template=template("web", A="2"))
    await change(cluster, DEPLOYMENTS, "web", replicas=3)
    await cluster.has_pods(3)
    await keep_ready(cluster)
    assert list(await sets(cluster)) == [1]
    found = await get(cluster, DEPLOYMENTS, "web")
    assert conditions(found)["Progressing"] == ("Unknown", "DeploymentPaused")
    await change(cluster, DEPLOYMENTS, "web", paused=False)
    await keep_ready(cluster)
    assert (await sets(cluster))[2]["spec"]["replicas"] == 3
    found = await get(cluster, DEPLOYMENTS, "web")
    assert conditions(found)["Progressing"] == ("True", "NewReplicaSetAvailable")


async def test_history_is_kept_up_to_its_limit(cluster: Cluster) -> None:
    await deployed(cluster, 1, revisionHistoryLimit=1)
    for version in "234":
        await change(cluster, DEPLOYMENTS, "web", template=template("web", A=version))
        await keep_ready(cluster)
    assert sorted(await sets(cluster)) == [3, 4]


async def test_deleting_a_deployment_deletes_all_its_objects(cluster: Cluster) -> None:
    await deployed(cluster)
    await cluster.client.delete(DEPLOYMENTS, "web", namespace="default")
    await cluster.has_pods(0)

    async def none() -> bool:
        return not (await cluster.client.list(REPLICA_SETS, namespace="default")).items

    await cluster.until(none, "no sets")


# Stateful sets


async def test_stateful_pods_are_created_in_order_and_deleted_in_reverse(cluster: Cluster) -> None:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    body = workload("db", 3, serviceName="db", volumeClaimTemplates=[claim])
    await create(cluster, STATEFUL_SETS, body)
    for number in range(3):
        await cluster.has_pods(number + 1)
        await cluster.settle()
        assert sorted(await cluster.pods()) == [f"db-{each}" for each in range(number + 1)]
        await make_ready(cluster, f"db-{number}")
    await cluster.settle()
    pod = (await cluster.pods())["db-1"]
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("db-1", "db")
    assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "1"
    assert pod["spec"]["volumes"][-1]["persistentVolumeClaim"]["claimName"] == "data-db-1"
    found = await get(cluster, STATEFUL_SETS, "db")
    assert found["status"]["currentRevision"] == found["status"]["updateRevision"]
    assert found["status"]["readyReplicas"] == found["status"]["updatedReplicas"] == 3
    await change(cluster, STATEFUL_SETS, "db", replicas=1)
    await cluster.has_pods(1)
    assert list(await cluster.pods()) == ["db-0"]
    claims = (await cluster.client.list(PERSISTENT_VOLUME_CLAIMS, namespace="default")).items
    assert len(claims) == 3, "data outlives pods"


async def test_a_stateful_update_goes_from_the_last_down_to_the_partition(
    cluster: Cluster,
) -> None:
    parallel = {"podManagementPolicy": "Parallel", "serviceName": "db"}
    await create(cluster, STATEFUL_SETS, workload("db", 3, **parallel))
    await cluster.has_pods(3)
    await keep_ready(cluster)
    partition = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    before = {name: pod["metadata"]["uid"] for name, pod in (await cluster.pods()).items()}
    await change(
        cluster, STATEFUL_SETS, "db", updateStrategy=partition, template=template("db", A="2")
    )
    await cluster.settle()
    now = {name: pod["metadata"]["uid"] for name, pod in (await cluster.pods()).items()}
    assert [name for name in now if now[name] != before[name]] == ["db-2"]
    await keep_ready(cluster)
    now = {name: pod["metadata"]["uid"] for name, pod in (await cluster.pods()).items()}
    assert now["db-0"] == before["db-0"]
    assert now["db-1"] != before["db-1"]
    found = await get(cluster, STATEFUL_SETS, "db")
    assert found["status"]["currentRevision"] != found["status"]["updateRevision"]
    assert len((await cluster.client.list(CONTROLLER_REVISIONS, namespace="default")).items) == 2
    partition["rollingUpdate"] = {"partition": 0}
    await change(cluster, STATEFUL_SETS, "db", updateStrategy=partition)
    await keep_ready(cluster)
    found = await get(cluster, STATEFUL_SETS, "db")
    assert found["status"]["currentRevision"] == found["status"]["updateRevision"]


# Endpoints


async def test_endpoints_follow_the_readiness_of_pods(cluster: Cluster) -> None:
    spec = {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}
    await create(cluster, SERVICES, {"metadata": {"name": "web"}, "spec": spec})
    await deployed(cluster, 2)
    names = sorted(await cluster.pods())

    async def behind(ready: list[str], waiting: list[str]) -> bool:
        found = await cluster.client.find(ENDPOINTS, "web", namespace="default")
        subsets = (found or {}).get("subsets") or [{}]
        return [
            sorted(each["targetRef"]["name"] for each in subsets[0].get(field) or ())
            for field in ("addresses", "notReadyAddresses")
        ] == [ready, waiting]

    await cluster.until(lambda: behind(names, []), "both pods are addresses")
    await make_ready(cluster, names[0], ready=False)
    await cluster.until(lambda: behind(names[1:], names[:1]), "one pod is not ready")
    await cluster.settle()
    (piece,) = (await cluster.client.list(ENDPOINT_SLICES, namespace="default")).items
    assert piece["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
    assert piece["ports"] == [{"name": "http", "protocol": "TCP", "port": 8080}]
    ready = {e["targetRef"]["name"]: e["conditions"]["ready"] for e in piece["endpoints"]}
    assert ready == {names[0]: False, names[1]: True}
    await change(cluster, DEPLOYMENTS, "web", replicas=0)
    await cluster.until(lambda: behind([], []), "no addresses")
    await cluster.client.delete(SERVICES, "web", namespace="default")

    async def gone() -> bool:
        return not (await cluster.client.list(ENDPOINT_SLICES, namespace="default")).items

    await cluster.until(gone, "slices are deleted with the service")


# Jobs


async def finished(cluster: Cluster, name: str = "work") -> Object:
    async def over() -> bool:
        found = conditions(await get(cluster, BATCH_JOBS, name))
        return "Complete" in found or "Failed" in found

    await cluster.until(over, f"{name} has finished")
    await cluster.settle()
    return await get(cluster, BATCH_JOBS, name)


async def test_an_indexed_job_runs_every_index_once(cluster: Cluster) -> None:
    await create(
        cluster,
        BATCH_JOBS,
        batch_job("work", completions=3, parallelism=2, completionMode="Indexed"),
    )
    pods = await cluster.has_pods(2, "Pending")
    index = "batch.kubernetes.io/job-completion-index"
    assert sorted(p["metadata"]["annotations"][index] for p in pods.values()) == ["0", "1"]
    variables = next(iter(pods.values()))["spec"]["containers"][0]["env"]
    assert "JOB_COMPLETION_INDEX" in [each["name"] for each in variables]
    await make_ready(cluster)
    await cluster.succeed()
    (last,) = (await cluster.has_pods(1, "Pending")).values()
    assert last["metadata"]["labels"][index] == "2"
    await make_ready(cluster)
    await cluster.succeed()
    found = await finished(cluster)
    status = found["status"]
    assert (status["succeeded"], status["completedIndexes"]) == (3, "0-2")
    assert status["uncountedTerminatedPods"] == {}
    assert conditions(found)["Complete"] == ("True", "CompletionsReached")
    assert status["startTime"] <= status["completionTime"]
    for pod in (await cluster.pods()).values():
        assert not pod["metadata"].get("finalizers")


async def test_deleted_pods_are_counted_before_their_finalizer_is_removed(cluster: Cluster) -> None:
    await create(cluster, BATCH_JOBS, batch_job("work", backoffLimit=0))
    (name,) = await cluster.has_pods(1, "Pending")
    await cluster.client.delete(PODS, name, namespace="default")
    found = await finished(cluster)
    assert found["status"]["failed"] == 1
    assert conditions(found)["Failed"] == ("True", "BackoffLimitExceeded")
    assert await cluster.pods() == {}


async def test_suspended_job_deletes_its_pods_without_counting_failures(cluster: Cluster) -> None:
    await create(cluster, BATCH_JOBS, batch_job("work", parallelism=2, completions=2))
    await cluster.has_pods(2, "Pending")
    await change(cluster, BATCH_JOBS, "work", suspend=True)
    await cluster.has_pods(0)
    await cluster.settle()
    found = await get(cluster, BATCH_JOBS, "work")
    assert conditions(found)["Suspended"] == ("True", "JobSuspended")
    assert "failed" not in found["status"]
    await change(cluster, BATCH_JOBS, "work", suspend=False)
    await cluster.has_pods(2, "Pending")
    await make_ready(cluster)
    await cluster.succeed()
    assert "Complete" in conditions(await finished(cluster))


async def test_pod_failure_policy_on_exit_codes_fails_the_job(cluster: Cluster) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    body = batch_job("work", parallelism=2, completions=2, podFailurePolicy={"rules": [rule]})
    await create(cluster, BATCH_JOBS, body)
    pods = sorted(await cluster.has_pods(2, "Pending"))
    await make_ready(cluster)
    await cluster.fail(pods[0], 42)
    found = await finished(cluster)
    assert conditions(found)["Failed"] == ("True", "PodFailurePolicy")


async def test_deleted_job_leaves_no_pod_with_its_finalizer(cluster: Cluster) -> None:
    await create(cluster, BATCH_JOBS, batch_job("work", parallelism=3))
    await cluster.has_pods(3, "Pending")
    await cluster.client.delete(BATCH_JOBS, "work", namespace="default", propagation="Background")

    async def none() -> bool:
        return not (await cluster.client.list(PODS, namespace="default")).items

    await cluster.until(none, "no pods at all")


@pytest.fixture
async def timed(tmp_path: Path) -> AsyncIterator[tuple[Cluster, ManualClock]]:
    """A cluster with a manual clock."""
    clock = ManualClock(float(int(time.time())))  # certificates are checked against the real date
    async with running_cluster(tmp_path / "data", clock=clock, start=False) as running:
        running.select = [*EVERY]
        await running.start()
        yield running, clock


async def test_cron_job_starts_its_runs_on_schedule(timed: tuple[Cluster, ManualClock]) -> None:
    cluster, clock = timed
    inner = batch_job("x")["spec"]
    spec: Object = {
        "schedule": "*/5 * * * *",
        "timeZone": "Etc/UTC",
        "jobTemplate": {"spec": inner},
    }
    spec["successfulJobsHistoryLimit"] = 1
    await create(cluster, BATCH_CRON_JOBS, {"metadata": {"name": "often"}, "spec": spec})
    await cluster.settle()
    assert await cluster.pods() == {}
    for _ in range(3):
        await clock.advance(300.2)
        await cluster.has_pods(1, "Pending")
        await make_ready(cluster)
        await cluster.succeed()

        async def remembered() -> bool:
            status = (await get(cluster, BATCH_CRON_JOBS, "often"))["status"]
            return bool(status.get("lastSuccessfulTime")) and not status.get("active")

        await cluster.until(remembered, "the run has finished")
        await cluster.settle()
    jobs = (await cluster.client.list(BATCH_JOBS, namespace="default")).items
    assert len(jobs) == 1, "one succeeded job is kept"
    due = (int(clock.now()) // 300) * 300
    assert jobs[0]["metadata"]["name"] == f"often-{due // 60}"


async def test_job_deadline_and_ttl_follow_the_clock(
    timed: tuple[Cluster, ManualClock],
) -> None:
    cluster, clock = timed
    spec = {"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 30}
    await create(cluster, BATCH_JOBS, batch_job("work", **spec))
    await cluster.has_pods(1, "Pending")
    await cluster.settle()
    await clock.advance(59)
    await cluster.settle()
    assert "Failed" not in conditions(await get(cluster, BATCH_JOBS, "work"))
    await clock.advance(2)
    found = await finished(cluster)
    assert conditions(found)["Failed"] == ("True", "DeadlineExceeded")
    await clock.advance(31)

    async def gone() -> bool:
        return await cluster.client.find(BATCH_JOBS, "work", namespace="default") is None

    await cluster.until(gone, "the job is deleted after its TTL")


async def test_rollout_without_progress_exceeds_its_deadline(
    timed: tuple[Cluster, ManualClock],
) -> None:
    cluster, clock = timed
    await create(cluster, DEPLOYMENTS, workload("web", 2, progressDeadlineSeconds=30))
    await cluster.has_pods(2)
    await cluster.settle()
    await clock.advance(31)

    async def missed() -> bool:
        found = conditions(await get(cluster, DEPLOYMENTS, "web"))
        return found.get("Progressing") == ("False", "ProgressDeadlineExceeded")

    await cluster.until(missed, "the deadline")
    await keep_ready(cluster)
    found = conditions(await get(cluster, DEPLOYMENTS, "web"))
    assert found["Progressing"] == ("True", "NewReplicaSetAvailable")


async def test_actions_emit_events(cluster: Cluster) -> None:
    await deployed(cluster, 1)

    async def reported() -> bool:
        found = (await cluster.client.list(EVENTS, namespace="default")).items
        return {"ScalingReplicaSet", "SuccessfulCreate"} <= {each["reason"] for each in found}

    await cluster.until(reported, "events")
