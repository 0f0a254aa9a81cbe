"""Gangs of other projects' workloads: their groups follow the workload, with its minimum."""

from typing import Any

import pytest

from hekla.controllers import gangs
from hekla.kube.resources import (
    BATCH_JOBS,
    CUSTOM_RESOURCE_DEFINITIONS,
    PODGROUPS,
    PODS,
    STATEFUL_SETS,
    Resource,
    resource,
)
from hekla.units.objects import Object

from .cluster import Cluster

JOB_SETS: Resource[Object] = resource("jobset.x-k8s.io/v1alpha2", "jobsets", kind="JobSet")
LEADER_WORKER_SETS: Resource[Object] = resource(
    "leaderworkerset.x-k8s.io/v1", "leaderworkersets", kind="LeaderWorkerSet"
)
MPI_JOBS: Resource[Object] = resource("kubeflow.org/v2beta1", "mpijobs", kind="MPIJob")
WORKFLOWS: Resource[Object] = resource("argoproj.io/v1alpha1", "workflows", kind="Workflow")


def template(cpu: str = "1", scheduler: str = "volcano") -> Object:
    container = {"name": "c", "image": "host", "resources": {"requests": {"cpu": cpu}}}
    return {"spec": {"schedulerName": scheduler, "containers": [container]}}


def job_spec(parallelism: int, cpu: str = "1", **more: Any) -> Object:
    spec = template(cpu)
    spec["spec"]["restartPolicy"] = "Never"
    return {"parallelism": parallelism, "template": spec, **more}


def replicated(name: str, replicas: int, parallelism: int, cpu: str = "1", **more: Any) -> Object:
    return {
        "name": name,
        "replicas": replicas,
        "template": {"spec": job_spec(parallelism, cpu)},
        **more,
    }


def ray(*workers: Object, **more: Any) -> Object:
    return {"headGroupSpec": {"template": template("2")}, "workerGroupSpecs": list(workers), **more}


def ray_workers(replicas: int, **more: Any) -> Object:
    return {"replicas": replicas, "template": template(), **more}


def roles(field: str, **counts: int) -> Object:
    return {field: {role: {"replicas": n, "template": template()} for role, n in counts.items()}}


CASES: dict[str, tuple[str, str, Object, int | None, str]] = {
    "all Jobs of a JobSet": (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {"replicatedJobs": [replicated("a", 2, 2), replicated("b", 1, 3, "2")]},
        7,
        "10",
    ),
    "completions limit the pods of a Job": (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {"replicatedJobs": [{"name": "a", "template": {"spec": job_spec(4, completions=3)}}]},
        3,
        "3",
    ),
    "Jobs that start in order are no gang": (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {
            "replicatedJobs": [replicated("a", 2, 2)],
            "startupPolicy": {"startupPolicyOrder": "InOrder"},
        },
        None,
        "",
    ),
    "Jobs that depend on others are no gang": (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {"replicatedJobs": [replicated("a", 1, 1), replicated("b", 1, 1, dependsOn=[{}])]},
        None,
        "",
    ),
    "a leader and its workers": (
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        {
            "leaderWorkerTemplate": {
                "size": 4,
                "leaderTemplate": template("2"),
                "workerTemplate": template(),
            }
        },
        4,
        "5",
    ),
    "workers that wait for their leader": (
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        {
            "startupPolicy": "LeaderReady",
            "leaderWorkerTemplate": {"size": 4, "workerTemplate": template()},
        },
        1,
        "1",
    ),
    "head and workers of Ray": ("ray.io/v1", "RayCluster", ray(ray_workers(3)), 4, "5"),
    "several hosts for each worker of Ray": (
        "ray.io/v1",
        "RayCluster",
        ray(ray_workers(2, numOfHosts=2), ray_workers(5, suspend=True)),
        5,
        "6",
    ),
    "an autoscaled Ray cluster needs its minimum": (
        "ray.io/v1",
        "RayCluster",
        ray(ray_workers(3, minReplicas=1), enableInTreeAutoscaling=True),
        2,
        "3",
    ),
    "launcher and workers of MPI": (
        "kubeflow.org/v2beta1",
        "MPIJob",
        roles("mpiReplicaSpecs", Launcher=1, Worker=4),
        5,
        "5",
    ),
    "a launcher that waits for its workers": (
        "kubeflow.org/v2beta1",
        "MPIJob",
        {
            **roles("mpiReplicaSpecs", Launcher=1, Worker=4),
            "launcherCreationPolicy": "WaitForWorkersReady",
        },
        4,
        "4",
    ),
    "the policy of a PyTorchJob": (
        "kubeflow.org/v1",
        "PyTorchJob",
        {
            **roles("pytorchReplicaSpecs", Master=1, Worker=7),
            "runPolicy": {"schedulingPolicy": {"minAvailable": 3}},
        },
        3,
        "3",
    ),
    "an elastic PyTorchJob": (
        "kubeflow.org/v1",
        "PyTorchJob",
        {
            **roles("pytorchReplicaSpecs", Master=1, Worker=7),
            "elasticPolicy": {"minReplicas": 2},
        },
        3,
        "3",
    ),
}


@pytest.mark.parametrize(("api", "kind", "spec", "want", "cpu"), CASES.values(), ids=CASES)
def test_minimum_of_a_workload(
    api: str, kind: str, spec: Object, want: int | None, cpu: str
) -> None:
    workload = gangs.workload_of({"apiVersion": api, "kind": kind})
    assert workload is not None
    gang = workload.gang({"spec": spec})
    if want is None:
        assert gang is None
        return
    assert gang is not None
    assert gang.min_member == want
    assert str(gang.resources(want)["cpu"]) == cpu


def test_only_pods_of_our_scheduler_count() -> None:
    spec = ray(ray_workers(3))
    spec["headGroupSpec"]["template"] = template(scheduler="default-scheduler")
    workload = gangs.workload_of({"apiVersion": "ray.io/v1", "kind": "RayCluster"})
    assert workload is not None
    gang = workload.gang({"spec": spec})
    assert gang is not None
    assert gang.scheduled_by(["volcano"]).min_member == 3


@pytest.mark.parametrize(
    "api", ["v1", "other.io/v1", "jobset.x-k8s.io/..", "jobset.x-k8s.io/v1/../..", ""]
)
def test_other_owners_are_no_workload(api: str) -> None:
    assert gangs.workload_of({"apiVersion": api, "kind": "JobSet"}) is None


async def install(cluster: Cluster, kind: Resource[Object]) -> None:
    group, _, version = kind.api_version.partition("/")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    await cluster.client.create(
        CUSTOM_RESOURCE_DEFINITIONS,
        {
            "metadata": {"name": f"{kind.plural}.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()},
                "versions": [
                    {
                        "name": version,
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": schema},
                    }
                ],
            },
        },
    )


def owned(obj: Object, kind: Resource[Object], owner: Object) -> Object:
    obj["metadata"]["ownerReferences"] = [
        {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
    ]
    return obj


def named(name: str, spec: Object) -> Object:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def groups_of(cluster: Cluster, pods: int) -> dict[str, set[str]]:
    """Return the pods by their group, once all have one."""

    async def grouped() -> bool:
        found = (await cluster.client.list(PODS)).items
        marks = [each["metadata"].get("annotations") or {} for each in found]
        return len([m for m in marks if "scheduling.k8s.io/group-name" in m]) == pods

    await cluster.until(grouped, "every pod has a group")
    found: dict[str, set[str]] = {}
    for each in (await cluster.client.list(PODS)).items:
        group = each["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
        found.setdefault(group, set()).add(each["metadata"]["name"])
    return found


async def test_pods_of_all_jobs_of_a_job_set_are_one_gang(cluster: Cluster) -> None:
    await install(cluster, JOB_SETS)
    body = named("js", {"replicatedJobs": [replicated("a", 2, 2, "500m")]})
    body["metadata"]["annotations"] = {"scheduling.volcano.sh/queue-name": "default"}
    job_set = await cluster.client.create(JOB_SETS, body)
    for index in range(2):
        job = await cluster.client.create(
            BATCH_JOBS, owned(named(f"js-a-{index}", job_spec(2)), JOB_SETS, job_set)
        )
        for number in range(2):
            pod = named(f"js-a-{index}-{number}", template("500m")["spec"])
            await cluster.client.create(PODS, owned(pod, BATCH_JOBS, job))
    name = f"podgroup-{job_set['metadata']['uid']}"
    assert await groups_of(cluster, 4) == {name: {"js-a-0-0", "js-a-0-1", "js-a-1-0", "js-a-1-1"}}
    group = await cluster.client.get(PODGROUPS, name, namespace="default")
    assert (group["spec"]["minMember"], group["spec"]["minResources"]["cpu"]) == (4, "2")
    (owner,) = group["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("JobSet", job_set["metadata"]["uid"])


async def test_each_job_is_a_gang_if_the_job_set_starts_them_in_order(cluster: Cluster) -> None:
    await install(cluster, JOB_SETS)
    spec = {
        "replicatedJobs": [replicated("a", 1, 3)],
        "startupPolicy": {"startupPolicyOrder": "InOrder"},
    }
    job_set = await cluster.client.create(JOB_SETS, named("js", spec))
    job = await cluster.client.create(
        BATCH_JOBS, owned(named("js-a-0", job_spec(3)), JOB_SETS, job_set)
    )
    await cluster.client.create(PODS, owned(named("js-a-0-0", template()["spec"]), BATCH_JOBS, job))
    name = f"podgroup-{job['metadata']['uid']}"
    assert await groups_of(cluster, 1) == {name: {"js-a-0-0"}}
    group = await cluster.client.get(PODGROUPS, name, namespace="default")
    assert group["spec"]["minMember"] == 3


async def test_a_leader_and_its_workers_are_one_gang(cluster: Cluster) -> None:
    await install(cluster, LEADER_WORKER_SETS)
    spec = {"leaderWorkerTemplate": {"size": 3, "workerTemplate": template()}}
    lws = await cluster.client.create(LEADER_WORKER_SETS, named("lws", spec))
    stateful = {
        "serviceName": "s",
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, **template()},
    }
    leaders = await cluster.client.create(
        STATEFUL_SETS, owned(named("lws", dict(stateful)), LEADER_WORKER_SETS, lws)
    )
    want: dict[str, set[str]] = {}
    for index in range(2):
        leader = await cluster.client.create(
            PODS, owned(named(f"lws-{index}", template()["spec"]), STATEFUL_SETS, leaders)
        )
        workers = await cluster.client.create(
            STATEFUL_SETS, owned(named(f"lws-{index}", dict(stateful)), PODS, leader)
        )
        worker = named(f"lws-{index}-1", template()["spec"])
        await cluster.client.create(PODS, owned(worker, STATEFUL_SETS, workers))
        name = f"podgroup-{leader['metadata']['uid']}"
        want[name] = {f"lws-{index}", f"lws-{index}-1"}
    assert await groups_of(cluster, 4) == want
    for name in want:
        group = await cluster.client.get(PODGROUPS, name, namespace="default")
        assert group["spec"]["minMember"] == 3
        assert group["metadata"]["ownerReferences"][0]["kind"] == "Pod"


async def test_launcher_and_workers_of_mpi_are_one_gang(cluster: Cluster) -> None:
    await install(cluster, MPI_JOBS)
    spec = {
        **roles("mpiReplicaSpecs", Launcher=1, Worker=2),
        "runPolicy": {"schedulingPolicy": {"queue": "default"}},
    }
    mpi = await cluster.client.create(MPI_JOBS, named("mpi", spec))
    launcher = await cluster.client.create(
        BATCH_JOBS, owned(named("mpi-launcher", job_spec(1)), MPI_JOBS, mpi)
    )
    pods = [owned(named("launcher", template()["spec"]), BATCH_JOBS, launcher)]
    pods += [owned(named(f"worker-{n}", template()["spec"]), MPI_JOBS, mpi) for n in range(2)]
    for pod in pods:
        await cluster.client.create(PODS, pod)
    name = f"podgroup-{mpi['metadata']['uid']}"
    assert await groups_of(cluster, 3) == {name: {"launcher", "worker-0", "worker-1"}}
    group = await cluster.client.get(PODGROUPS, name, namespace="default")
    assert (group["spec"]["minMember"], group["spec"]["queue"]) == (3, "default")


async def test_pods_of_an_argo_workflow_come_one_after_the_other(cluster: Cluster) -> None:
    await install(cluster, WORKFLOWS)
    flow = await cluster.client.create(WORKFLOWS, named("flow", {}))
    for number in range(2):
        pod = named(f"step-{number}", template()["spec"])
        await cluster.client.create(PODS, owned(pod, WORKFLOWS, flow))
    name = f"podgroup-{flow['metadata']['uid']}"
    assert await groups_of(cluster, 2) == {name: {"step-0", "step-1"}}
    group = await cluster.client.get(PODGROUPS, name, namespace="default")
    assert group["spec"]["minMember"] == 1
