"""Admission of Volcano Jobs: defaults and validation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from hekla.api import volcano, wellknown
from hekla.units.objects import Object


class Cluster:
    """Cluster state made of plain dicts."""

    job_plugins = frozenset(wellknown.JOB_PLUGINS)
    scheduler_names = ("volcano",)
    max_pods_per_job = 100_000

    def __init__(self, *queues: Object) -> None:
        made = [queue("root"), queue("default", parent="root"), *queues]
        self._queues = {one["metadata"]["name"]: one for one in made}

    def queue(self, name: str) -> Object | None:
        return self._queues.get(name)

    def queues(self) -> Iterable[Object]:
        return self._queues.values()

    def namespace(self, name: str) -> Object | None:
        return None

    def workloads(self, queue: str) -> Iterable[Object]:
        return ()


def queue(name: str, state: str = "Open", **spec: Any) -> Object:
    return {
        "apiVersion": wellknown.SCHEDULING_API,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"state": state},
    }


def task(name: str = "w", replicas: int = 2, **more: Any) -> Object:
    container = {"name": "main", "image": "host"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"name": name, "replicas": replicas, "template": template, **more}


def job(*tasks: Object, name: str = "train", **spec: Any) -> Object:
    return {
        "apiVersion": wellknown.BATCH_API,
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"tasks": list(tasks) or [task()], **spec},
    }


def admitted(one: Object, view: Cluster | None = None) -> Object:
    volcano.default(one, view or Cluster())
    return one


def problems(one: Object, old: Object | None = None, view: Cluster | None = None) -> list[str]:
    view = view or Cluster()
    if old is None:
        volcano.default(one, view)
    return [str(error) for error in volcano.check("update" if old else "create", one, old, view)]


def test_minimal_job_gets_defaults() -> None:
    spec = admitted(job(task(replicas=2), task("", replicas=3)))["spec"]
    assert (spec["queue"], spec["schedulerName"], spec["maxRetry"]) == ("default", "volcano", 3)
    assert [t["name"] for t in spec["tasks"]] == ["w", "default1"]
    assert [t["minAvailable"] for t in spec["tasks"]] == [2, 3]
    assert [t["maxRetry"] for t in spec["tasks"]] == [3, 3]
    assert spec["minAvailable"] == 5
    assert problems(job(task(replicas=2), task("", replicas=3))) == []


def test_partitions_set_the_minimum_of_their_task() -> None:
    policy = {"totalPartitions": 4, "partitionSize": 2, "minPartitions": 3}
    spec = admitted(job(task(replicas=8, partitionPolicy=policy)))["spec"]
    assert spec["tasks"][0]["minAvailable"] == 6
    assert spec["minAvailable"] == 6


def test_framework_plugins_add_their_dependencies() -> None:
    spec = admitted(job(task("master", 1), plugins={"mpi": []}))["spec"]
    assert spec["plugins"] == {"mpi": [], "ssh": [], "svc": []}
    spec = admitted(job(plugins={"pytorch": [], "svc": ["--publish-not-ready-addresses"]}))["spec"]
    assert spec["plugins"]["svc"] == ["--publish-not-ready-addresses"]


def test_explicit_zero_retries_are_kept() -> None:
    assert admitted(job(maxRetry=0))["spec"]["maxRetry"] == 0


def test_requested_device_gets_a_limit() -> None:
    one = job()
    resources = {"requests": {"nvidia.com/gpu": "1", "cpu": "4"}}
    one["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"] = resources
    assert problems(one) == []
    assert resources["limits"] == {"nvidia.com/gpu": "1"}


def test_host_network_sets_the_dns_policy() -> None:
    one = job()
    one["spec"]["tasks"][0]["template"]["spec"]["hostNetwork"] = True
    pod = admitted(one)["spec"]["tasks"][0]["template"]["spec"]
    assert pod["dnsPolicy"] == "ClusterFirstWithHostNet"


def _without_image(one: Object) -> None:
    del one["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["image"]


REFUSED: dict[str, tuple[Object, str]] = {
    "no task": ({**job(), "spec": {"tasks": []}}, "spec.tasks: Required value"),
    "a minimum above the replicas": (
        job(task(replicas=2, minAvailable=3)),
        "exceeds the task's 2 replicas",
    ),
    "a job minimum above all replicas": (job(minAvailable=9), "only 2 replicas in all"),
    "two tasks of one name": (job(task(), task()), 'spec.tasks[1].name: Duplicate value: "w"'),
    "a name too long for its last pod": (
        job(task("w" * 40, 1000), name="train-" + "x" * 16),
        "its last pod would be called",
    ),
    "an unknown plugin": (job(plugins={"svcs": []}), "unknown job plugin; known: env"),
    "mpi without its master": (job(plugins={"mpi": []}), "the master's task is missing"),
    "a service name that starts with a digit": (
        job(name="3d", plugins={"svc": []}),
        "the svc plugin creates a Service of this name",
    ),
    "tier by number and by name": (
        job(networkTopology={"highestTierAllowed": 1, "highestTierName": "rack"}),
        "are mutually exclusive",
    ),
    "partitions that do not add up": (
        job(task(replicas=5, partitionPolicy={"totalPartitions": 2, "partitionSize": 2})),
        "2 partitions of 2 are 4 pods, and replicas is 5",
    ),
    "a NUMA policy with a split CPU": (
        job(task(topologyPolicy="restricted")),
        "whole number of CPUs",
    ),
    "an event and an exit code in one policy": (
        job(policies=[{"event": "PodFailed", "exitCode": 3, "action": "RestartJob"}]),
        "are mutually exclusive",
    ),
    "a policy without a trigger": (
        job(policies=[{"action": "RestartJob"}]),
        "either an event or an exitCode",
    ),
    "an event that policies cannot have": (
        job(policies=[{"event": "PodRunning", "action": "RestartJob"}]),
        'Unsupported value: "PodRunning"',
    ),
    "an unknown action, also for an exit code": (
        job(policies=[{"exitCode": 3, "action": "Explode"}]),
        'Unsupported value: "Explode"',
    ),
    "an event twice": (
        job(
            policies=[
                {"event": "PodFailed", "action": "RestartJob"},
                {"events": ["PodFailed"], "action": "AbortJob"},
            ]
        ),
        'Duplicate value: "PodFailed"',
    ),
    "every event and one more": (
        job(policies=[{"events": ["*", "PodFailed"], "action": "RestartJob"}]),
        "must be the only one",
    ),
    "exit code 0": (job(policies=[{"exitCode": 0, "action": "AbortJob"}]), "0 is success"),
    "a volume mounted nowhere": (job(volumes=[{"volumeClaimName": "c"}]), "mountPath: Required"),
    "a volume with claim and name": (
        job(volumes=[{"mountPath": "/d", "volumeClaimName": "c", "volumeClaim": {"a": 1}}]),
        "volumeClaim and volumeClaimName are mutually exclusive",
    ),
    "a volume with neither": (job(volumes=[{"mountPath": "/d"}]), "either volumeClaim or"),
    "a dependency on nobody": (job(task(dependsOn={"name": ["x"]})), 'Not found: "x"'),
    "dependencies in a circle": (
        job(task("a", dependsOn={"name": ["b"]}), task("b", dependsOn={"name": ["a"]})),
        "has a cycle",
    ),
    "a queue that does not exist": (job(queue="nope"), "no such queue"),
    "the root queue": (job(queue="root"), "root is not one"),
    "a queue with queues below": (job(queue="dept"), "choose one below it: team"),
    "a closed queue": (job(queue="shut"), "queue 'shut' is Closed; open it"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_invalid_job_is_rejected(what: str) -> None:
    one, want = REFUSED[what]
    view = Cluster(queue("dept"), queue("team", parent="dept"), queue("shut", "Closed"))
    found = problems(one, view=view)
    assert any(want in problem for problem in found), found


def test_invalid_pod_template_is_rejected_with_its_field() -> None:
    one = job()
    _without_image(one)
    (problem,) = problems(one)
    assert problem.startswith("spec.tasks[0].template.spec.containers[0].image: Required value")


def test_queue_without_status_is_open() -> None:
    assert problems(job(queue="new"), view=Cluster(queue("new", ""))) == []


def _scaled(one: Object) -> None:
    one["spec"]["tasks"][0]["replicas"] = 5
    one["spec"]["tasks"][0]["minAvailable"] = 1
    one["spec"]["minAvailable"] = 1
    one["spec"]["priorityClassName"] = "high"


CHANGES: dict[str, tuple[Callable[[Object], None], str | None]] = {
    "replicas, minima and priority may change": (_scaled, None),
    "the queue may not": (lambda one: one["spec"].update(queue="other"), "changed: queue"),
    "no task may be added": (
        lambda one: one["spec"]["tasks"].append(task("x")),
        "neither added nor removed",
    ),
    "an image may not": (
        lambda one: one["spec"]["tasks"][0]["template"]["spec"]["containers"][0].update(image="x"),
        "changed: tasks",
    ),
    "a minimum stays within the replicas": (
        lambda one: one["spec"]["tasks"][0].update(minAvailable=3),
        "between 0 and replicas (2)",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_updates_of_a_job(what: str) -> None:
    change, want = CHANGES[what]
    old, new = admitted(job()), admitted(job())
    change(new)
    found = problems(new, old)
    assert (not found) if want is None else any(want in problem for problem in found), found


def test_an_event_named_twice_in_one_policy_is_accepted() -> None:
    policy = {"events": ["PodEvicted", "PodFailed", "PodEvicted"], "event": "PodFailed"}
    assert problems(job(policies=[{**policy, "action": "RestartJob"}])) == []
