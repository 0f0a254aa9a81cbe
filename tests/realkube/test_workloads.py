"""Features beyond a plain job: plugins, flows, schedules, priorities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tools.waiting import until

from hekla.kube.resources import (
    CONFIGMAPS,
    CRON_JOBS,
    DEPLOYMENTS,
    JOB_FLOWS,
    JOB_TEMPLATES,
    JOBS,
    NETWORK_POLICIES,
    PODGROUPS,
    PRIORITY_CLASSES,
    QUEUES,
    SECRETS,
    SERVICES,
)
from hekla.kube.sync_client import SyncClient
from tests.realkube.backends import NODE_COUNT, NODE_CPU, finish
from tests.realkube.test_jobs import Json, job, phase, pods


@pytest.fixture
def classes(client: SyncClient, namespace: str) -> Iterator[tuple[str, str]]:
    """A low and a high priority class for this test."""
    names = (f"low-{namespace}", f"high-{namespace}")
    for name, value in zip(names, (1, 1000), strict=True):
        client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    yield names
    for name in names:
        client.delete(PRIORITY_CLASSES, name)


def test_job_plugins_create_their_objects(client: SyncClient, namespace: str) -> None:
    plugins: Json = {"env": [], "svc": [], "ssh": []}
    client.create(JOBS, job("mpi", plugins=plugins), namespace=namespace)
    until(lambda: phase(client, namespace, "mpi") == "Running")
    assert client.find(SERVICES, "mpi", namespace=namespace) is not None
    assert client.find(CONFIGMAPS, "mpi-svc", namespace=namespace) is not None
    assert client.find(NETWORK_POLICIES, "mpi", namespace=namespace) is not None
    assert [s for s in client.list(SECRETS, namespace=namespace) if "ssh" in s["metadata"]["name"]]
    (container,) = pods(client, namespace)[0]["spec"]["containers"]
    assert {"VC_WORKER_HOSTS", "VC_TASK_INDEX"} <= {e["name"] for e in container["env"]}
    client.delete(JOBS, "mpi", namespace=namespace)
    until(lambda: client.find(SERVICES, "mpi", namespace=namespace) is None)


def test_a_flow_starts_its_jobs_in_order(client: SyncClient, namespace: str) -> None:
    for name in ("first", "second"):
        template = {"metadata": {"name": name}, "spec": job(name, replicas=1)["spec"]}
        client.create(JOB_TEMPLATES, template, namespace=namespace)
    steps = [{"name": "first"}, {"name": "second", "dependsOn": {"targets": ["first"]}}]
    flow = {
        "metadata": {"name": "flow"},
        "spec": {"flows": steps, "jobRetainPolicy": "retain"},
    }
    client.create(JOB_FLOWS, flow, namespace=namespace)
    until(lambda: client.find(JOBS, "flow-first", namespace=namespace))
    until(lambda: phase(client, namespace, "flow-first") == "Running")
    assert client.find(JOBS, "flow-second", namespace=namespace) is None
    finish(client, namespace, "flow-first-worker-0")
    until(lambda: client.find(JOBS, "flow-second", namespace=namespace))
    until(lambda: phase(client, namespace, "flow-second") == "Running")
    finish(client, namespace, "flow-second-worker-0")

    def state() -> Any:
        found = client.get(JOB_FLOWS, "flow", namespace=namespace)
        return ((found.get("status") or {}).get("state") or {}).get("phase")

    until(lambda: state() == "Succeed")


def test_a_schedule_is_accepted_and_a_bad_one_refused(client: SyncClient, namespace: str) -> None:
    spec = {
        "schedule": "0 3 * * *",
        "jobTemplate": {"spec": job("nightly", replicas=1)["spec"]},
    }
    made = client.create(
        CRON_JOBS, {"metadata": {"name": "nightly"}, "spec": spec}, namespace=namespace
    )
    assert made["spec"]["schedule"] == "0 3 * * *"
    bad = {"metadata": {"name": "bad"}, "spec": {**spec, "schedule": "at noon"}}
    with pytest.raises(Exception, match="schedule"):
        client.create(CRON_JOBS, bad, namespace=namespace)


def test_a_finished_job_is_removed_in_time(client: SyncClient, namespace: str) -> None:
    client.create(JOBS, job("brief", replicas=1, ttlSecondsAfterFinished=0), namespace=namespace)
    until(lambda: phase(client, namespace, "brief") == "Running")
    finish(client, namespace, "brief-worker-0")
    until(lambda: client.find(JOBS, "brief", namespace=namespace) is None)


def test_a_failed_task_restarts_its_job(client: SyncClient, namespace: str) -> None:
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    client.create(JOBS, job("again", policies=policies, maxRetry=3), namespace=namespace)
    until(lambda: phase(client, namespace, "again") == "Running")
    before = {pod["metadata"]["uid"] for pod in pods(client, namespace)}
    finish(client, namespace, "again-worker-1", "Failed")
    until(lambda: (client.get(JOBS, "again", namespace=namespace)["status"]).get("retryCount") == 1)
    until(lambda: phase(client, namespace, "again") == "Running")
    assert not before & {pod["metadata"]["uid"] for pod in pods(client, namespace)}


def test_a_job_of_higher_priority_preempts(
    client: SyncClient, namespace: str, classes: tuple[str, str], conf_with_preempt: None
) -> None:
    low, high = classes
    everything = NODE_COUNT * NODE_CPU
    client.create(
        JOBS,
        job("low", replicas=everything, minAvailable=1, priorityClassName=low),
        namespace=namespace,
    )
    until(lambda: len(_placed(client, namespace, "low")) == everything)
    client.create(JOBS, job("high", replicas=3, priorityClassName=high), namespace=namespace)
    until(lambda: phase(client, namespace, "high") == "Running")
    assert len(_placed(client, namespace, "low")) <= everything - 3


PREEMPTING = """\
actions: "enqueue, allocate, preempt, backfill"
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
- plugins: [{name: predicates}, {name: nodeorder}]
"""


@pytest.fixture
def conf_with_preempt(client: SyncClient) -> Iterator[None]:
    """Store the configuration in Volcano's ConfigMap; the running scheduler reloads it."""
    name, namespace = "volcano-scheduler-configmap", "volcano-system"
    body = {"metadata": {"name": name}, "data": {"volcano-scheduler.conf": PREEMPTING}}
    client.create(CONFIGMAPS, body, namespace=namespace)
    yield
    client.delete(CONFIGMAPS, name, namespace=namespace)


def _placed(client: SyncClient, namespace: str, name: str) -> list[Json]:
    return [
        pod
        for pod in pods(client, namespace)
        if pod["metadata"]["name"].startswith(f"{name}-")
        and pod["spec"].get("nodeName")
        and "deletionTimestamp" not in pod["metadata"]
    ]


def test_a_closed_queue_accepts_no_jobs_until_it_reopens(
    client: SyncClient, namespace: str
) -> None:
    queue = f"q-{namespace}"
    client.create(QUEUES, {"metadata": {"name": queue}, "spec": {"weight": 1}})
    until(lambda: _state(client, queue) == "Open")
    close = {
        "metadata": {"generateName": "close-", "namespace": namespace},
        "action": "CloseQueue",
        "target": _reference(client, queue),
    }
    client.request(
        "POST",
        f"/apis/bus.volcano.sh/v1alpha1/namespaces/{namespace}/commands",
        body={"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", **close},
    )
    until(lambda: _state(client, queue) == "Closed")
    with pytest.raises(Exception, match=queue):
        client.create(JOBS, job("late", queue=queue), namespace=namespace)


def _state(client: SyncClient, queue: str) -> str:
    return str((client.get(QUEUES, queue).get("status") or {}).get("state", ""))


def _reference(client: SyncClient, queue: str) -> Json:
    found = client.get(QUEUES, queue)
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "name": queue,
        "uid": found["metadata"]["uid"],
        "controller": True,
    }


def test_pods_of_a_deployment_are_grouped_and_placed(client: SyncClient, namespace: str) -> None:
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": _template("web"),
    }
    client.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, namespace=namespace)
    until(lambda: len([p for p in pods(client, namespace) if p["spec"].get("nodeName")]) == 2)
    assert client.list(PODGROUPS, namespace=namespace).items


def _template(app: str) -> Json:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}
    return {
        "metadata": {"labels": {"app": app}},
        "spec": {"schedulerName": "volcano", "containers": [container]},
    }
