"""PodGroups and pods as operators create them, object by object.

The operators are Go and Java programs; their requests are imitated here in the same order and with
the same verbs. Each test names the version it follows.
"""

from __future__ import annotations

from typing import Any

from tools.waiting import until

from hekla.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    JOBS,
    PODGROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    REPLICA_SETS,
)
from hekla.kube.sync_client import SyncClient
from tests.clients.standing import IMITATES, stands_for
from tests.realkube.backends import finish
from tests.realkube.test_jobs import job, phase

Json = dict[str, Any]
GROUP = "scheduling.k8s.io/group-name"
TASK = "volcano.sh/task-spec"
QUEUE = "scheduling.volcano.sh/queue-name"


def group(name: str, owner: Json | None = None, **spec: Any) -> Json:
    metadata: Json = {"name": name}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": spec,
    }


def owner(kind: str, api: str, name: str) -> Json:
    """Return an owner reference to a custom resource of the operator."""
    return {
        "apiVersion": api,
        "kind": kind,
        "name": name,
        "uid": "7a0b1c9e-0000-4000-8000-000000000001",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod(name: str, marks: Json, **more: Any) -> Json:
    requests = {"cpu": "500m", "memory": "64Mi"}
    container = {"name": "main", "image": "none", "resources": {"requests": requests}}
    spec = {"schedulerName": "volcano", "restartPolicy": "Never", "containers": [container]}
    metadata = {"name": name, "annotations": marks, **more}
    return {"metadata": metadata, "spec": spec}


def group_phase(client: SyncClient, namespace: str, name: str) -> str:
    found = client.get(PODGROUPS, name, namespace=namespace)
    return str((found.get("status") or {}).get("phase", ""))


def placed(client: SyncClient, namespace: str) -> set[str]:
    found = client.list(PODS, namespace=namespace)
    return {p["metadata"]["name"] for p in found if p["spec"].get("nodeName")}


def runs(client: SyncClient, namespace: str, name: str, *pods: str) -> None:
    until(lambda: placed(client, namespace) >= set(pods))
    until(lambda: group_phase(client, namespace, name) == "Running")


@stands_for(
    "Kubeflow training-operator",
    version="1.9",
    how=IMITATES,
    kinds=("PodGroup", "Pod"),
    note="waits for the PodGroup to leave Pending before it makes pods; GET and PUT on change",
)
def test_the_training_operator_creates_pods_once_the_group_is_inqueue(
    client: SyncClient, namespace: str
) -> None:
    resources = {"cpu": "1500m", "memory": "192Mi"}
    body = group("pytorch", None, minMember=3, minResources=resources)
    body["metadata"]["annotations"] = {"kubeflow.org/note": "copied from the PyTorchJob"}
    client.create(PODGROUPS, body, namespace=namespace)
    # No pod exists: it becomes Inqueue by its minResources alone.
    until(lambda: group_phase(client, namespace, "pytorch") == "Inqueue")
    names = ["pytorch-master-0", "pytorch-worker-0", "pytorch-worker-1"]
    for name in names:
        role = name.split("-")[1]
        client.create(PODS, pod(name, {GROUP: "pytorch", TASK: role}), namespace=namespace)
    runs(client, namespace, "pytorch", *names)
    # The operator reads, changes and replaces the whole object.
    stored = client.get(PODGROUPS, "pytorch", namespace=namespace)
    assert stored["spec"]["queue"] == "default"
    stored["spec"]["minMember"] = 2
    put = client.replace(PODGROUPS, stored, namespace=namespace)
    assert put["spec"]["minMember"] == 2
    assert put["status"]["phase"] == "Running"
    assert put["metadata"]["annotations"]["kubeflow.org/note"]


@stands_for(
    "Kubeflow Trainer",
    version="v2 (v1alpha1 TrainJob)",
    how=IMITATES,
    kinds=("PodGroup", "Pod"),
    note="server-side apply",
)
def test_the_trainer_uses_server_side_apply_for_its_group(
    client: SyncClient, namespace: str
) -> None:
    made_by = owner("TrainJob", "trainer.kubeflow.org/v1alpha1", "llm")
    body = group("llm", made_by, minMember=2, minResources={"cpu": "1"}, queue="default")
    for _ in range(2):
        client.apply(PODGROUPS, body, namespace=namespace, field_manager="trainer")
    for number in range(2):
        client.create(PODS, pod(f"llm-node-0-{number}", {GROUP: "llm"}), namespace=namespace)
    runs(client, namespace, "llm", "llm-node-0-0", "llm-node-0-1")
    found = client.get(PODGROUPS, "llm", namespace=namespace)
    assert found["metadata"]["ownerReferences"] == [made_by]


@stands_for(
    "Kubeflow mpi-operator",
    version="v2 (v2beta1 MPIJob)",
    how=IMITATES,
    kinds=("PodGroup", "Pod"),
    note="puts its PodGroup again and again because it does not expect defaults",
)
def test_the_status_survives_an_update_by_the_mpi_operator(
    client: SyncClient, namespace: str
) -> None:
    made_by = owner("MPIJob", "kubeflow.org/v2beta1", "pi")
    client.create(PODGROUPS, group("pi", made_by, minMember=2), namespace=namespace)
    for name in ("pi-launcher", "pi-worker-0"):
        client.create(PODS, pod(name, {GROUP: "pi"}), namespace=namespace)
    runs(client, namespace, "pi", "pi-launcher", "pi-worker-0")
    for _ in range(3):
        stored = client.get(PODGROUPS, "pi", namespace=namespace)
        stored["spec"].pop("queue", None)
        put = client.replace(PODGROUPS, stored, namespace=namespace)
        assert put["status"]["phase"] == "Running"


@stands_for(
    "KubeRay",
    version="Aug 2026",
    how=IMITATES,
    kinds=("PodGroup", "Pod", "Queue"),
    note="status in the create; minMember 0 when a RayJob is over",
)
def test_kuberay_sends_a_status_and_empties_its_group_at_the_end(
    client: SyncClient, namespace: str
) -> None:
    queue = f"ray-{namespace}"
    client.create(QUEUES, {"metadata": {"name": queue}, "spec": {"weight": 1}})
    until(lambda: (client.get(QUEUES, queue).get("status") or {}).get("state") == "Open")
    name = "ray-raycluster-pg"
    made_by = owner("RayCluster", "ray.io/v1", "raycluster")
    body = group(name, made_by, minMember=3, minResources={"cpu": "1500m"}, queue=queue)
    client.create(PODGROUPS, {**body, "status": {"phase": "Pending"}}, namespace=namespace)
    roles = {"raycluster-head": "headgroup", "w-0": "small", "w-1": "small"}
    labels = {"volcano.sh/queue-name": queue}
    for each, role in roles.items():
        marks = {GROUP: name, TASK: role}
        client.create(PODS, pod(each, marks, labels=labels), namespace=namespace)
    runs(client, namespace, name, *roles)
    stored = client.get(PODGROUPS, name, namespace=namespace)
    stored["spec"] |= {"minMember": 0, "minResources": {}}
    put = client.replace(PODGROUPS, stored, namespace=namespace)
    assert put["spec"].get("minMember", 0) == 0
    for each in roles:
        client.delete(PODS, each, namespace=namespace)
    client.delete(PODGROUPS, name, namespace=namespace)


@stands_for(
    "spark-operator",
    version="Aug 2026",
    how=IMITATES,
    kinds=("PodGroup", "Pod", "CustomResourceDefinition", "PriorityClass"),
    note="reads the CRD object at its start",
)
def test_the_spark_operator_finds_the_crd_and_runs_an_application(
    client: SyncClient, namespace: str
) -> None:
    found = client.get(CUSTOM_RESOURCE_DEFINITIONS, "podgroups.scheduling.volcano.sh")
    assert found["spec"]["group"] == "scheduling.volcano.sh"
    urgent = f"urgent-{namespace}"
    client.create(PRIORITY_CLASSES, {"metadata": {"name": urgent}, "value": 5})
    body = group(
        "spark-pi-pg",
        owner("SparkApplication", "sparkoperator.k8s.io/v1beta2", "pi"),
        minMember=1,
        minResources={"cpu": "1", "memory": "128Mi"},
        queue="default",
        priorityClassName=urgent,
    )
    client.create(PODGROUPS, {**body, "status": {"phase": "Pending"}}, namespace=namespace)
    for name in ("pi-driver", "pi-exec-1"):
        client.create(PODS, pod(name, {GROUP: "spark-pi-pg"}), namespace=namespace)
    runs(client, namespace, "spark-pi-pg", "pi-driver", "pi-exec-1")
    client.delete(PODGROUPS, "spark-pi-pg", namespace=namespace)
    until(lambda: client.find(PODGROUPS, "spark-pi-pg", namespace=namespace) is None)
    client.delete(PRIORITY_CLASSES, urgent)


@stands_for(
    "Flink",
    version="Kubernetes operator, any",
    how=IMITATES,
    kinds=("Pod", "PodGroup"),
    note="bare pods with schedulerName and a queue annotation: a PodGroup for each owner",
)
def test_flinks_pods_are_grouped_by_their_owner(client: SyncClient, namespace: str) -> None:
    owners: dict[str, Json] = {}
    for part in ("jobmanager", "taskmanager"):
        labels = {"app": "flink", "component": part}
        template = pod("", {QUEUE: "default"}, labels=labels)
        del template["metadata"]["name"]
        del template["spec"]["restartPolicy"]
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        body = {"metadata": {"name": f"flink-{part}"}, "spec": spec}
        owners[part] = client.create(REPLICA_SETS, body, namespace=namespace)
    until(lambda: len(placed(client, namespace)) == len(owners))
    names = {g["metadata"]["name"] for g in client.list(PODGROUPS, namespace=namespace)}
    assert names == {f"podgroup-{found['metadata']['uid']}" for found in owners.values()}
    for part in owners:
        client.delete(REPLICA_SETS, f"flink-{part}", namespace=namespace)


@stands_for(
    "Argo Workflows",
    version="Aug 2026",
    how=IMITATES,
    kinds=("Job",),
    note="resource template: generateName, an owner, conditions on status.state.phase",
)
def test_argo_creates_a_job_and_reads_its_phase(client: SyncClient, namespace: str) -> None:
    body = job("unused", replicas=1)
    made_by = owner("Workflow", "argoproj.io/v1alpha1", "steps")
    body["metadata"] = {"generateName": "step-", "ownerReferences": [made_by]}
    made = client.create(JOBS, body, namespace=namespace)
    name = made["metadata"]["name"]
    assert name.startswith("step-")
    assert made["metadata"]["ownerReferences"] == [made_by]
    until(lambda: phase(client, namespace, name) == "Running")
    finish(client, namespace, f"{name}-worker-0")
    until(lambda: phase(client, namespace, name) == "Completed")


@stands_for(
    "LeaderWorkerSet",
    version="Aug 2026",
    how=IMITATES,
    kinds=("PodGroup", "Pod"),
    note="the leader pod is there before its group",
)
def test_a_leader_pod_waits_for_the_group_that_it_names(client: SyncClient, namespace: str) -> None:
    marks = {GROUP: "lws-0-rev"}
    leader = client.create(PODS, pod("lws-0", marks), namespace=namespace)
    made_by = {**owner("Pod", "v1", "lws-0"), "uid": leader["metadata"]["uid"]}
    assert not placed(client, namespace)
    body = group("lws-0-rev", made_by, minMember=2, minResources={"cpu": "1"})
    client.create(PODGROUPS, body, namespace=namespace)
    client.create(PODS, pod("lws-0-1", marks), namespace=namespace)
    runs(client, namespace, "lws-0-rev", "lws-0", "lws-0-1")


@stands_for(
    "Paddle operator",
    version="2023 (batch.paddlepaddle.org/v1)",
    how=IMITATES,
    kinds=("PodGroup", "Pod"),
    note="job and queue annotations, some of them empty, on its pods",
)
def test_the_paddle_operators_empty_annotations_do_no_harm(
    client: SyncClient, namespace: str
) -> None:
    body = group("ctr", None, minMember=2, minResources={"cpu": "1"})
    client.create(PODGROUPS, body, namespace=namespace)
    until(lambda: group_phase(client, namespace, "ctr") in ("Inqueue", "Running"))
    for role in ("ps", "worker"):
        marks = {
            GROUP: "ctr",
            TASK: role,
            "volcano.sh/job-name": "ctr",
            "volcano.sh/job-version": "",
            "volcano.sh/queue-name": "",
        }
        client.create(PODS, pod(f"ctr-{role}-0", marks), namespace=namespace)
    runs(client, namespace, "ctr", "ctr-ps-0", "ctr-worker-0")
