"""A pod that names its node itself is checked there as by a kubelet."""

from __future__ import annotations

import os
from typing import Any

import pytest

from hekla.kube.resources import NODES
from hekla.nodeagent.admission import reject
from hekla.nodeagent.security_context import Abilities
from hekla.units.objects import Object
from tests.nodeagent.conftest import NODE, Machine

ABILITIES = Abilities("namespace", True, True, True, 0, 0)
NODE_OBJECT: Object = {
    "metadata": {"name": "box", "labels": {"zone": "a", "size": "7"}},
    "spec": {"taints": [{"key": "broken", "value": "disk", "effect": "NoExecute"}]},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "3", "nvidia.com/gpu": "2"}},
}
TOLERANT = {"tolerations": [{"key": "broken", "operator": "Exists"}]}


def pod(requests: Object | None = None, **spec: Any) -> Object:
    container = {"name": "main", "image": "host", "resources": {"requests": requests or {}}}
    return {
        "metadata": {"name": "p", "namespace": "ml"},
        "spec": {"containers": [container], **TOLERANT, **spec},
    }


def required(*expressions: Object, **fields: Any) -> Object:
    term = {"matchExpressions": list(expressions), **fields}
    terms = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_pod_that_fits_is_admitted() -> None:
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    size = {"key": "size", "operator": "Gt", "values": ["6"]}
    name = {"key": "metadata.name", "operator": "In", "values": ["box"]}
    fits = pod(
        {"cpu": "2", "nvidia.com/gpu": "1", "example.com/license": "1"},
        affinity=required(zone, size, matchFields=[name]),
        nodeSelector={"zone": "a"},
    )
    assert reject(fits, NODE_OBJECT, [pod({"cpu": "2"})], ABILITIES) is None


REJECTED: dict[str, tuple[Object, str, str]] = {
    "too much CPU": (
        pod({"cpu": "3500m"}), "OutOfcpu",
        "Node didn't have enough resource: cpu, requested: 3500, used: 1000, capacity: 4000"),
    "too much memory": (pod({"memory": "9Gi"}), "OutOfmemory", "memory, requested: 9663676416"),
    "too many GPUs": (
        pod({"nvidia.com/gpu": "2"}), "OutOfnvidia.com/gpu", "requested: 2, used: 1, capacity: 2"),
    "another zone": (pod(nodeSelector={"zone": "b"}), "NodeAffinity", "node affinity/selector"),
    "another size": (
        pod(affinity=required({"key": "size", "operator": "Lt", "values": ["7"]})),
        "NodeAffinity", "node affinity/selector"),
    "a taint": (pod(tolerations=[]), "TaintToleration", "{broken: disk}"),
    "a securityContext that cannot be": (
        pod(hostPID=True), "SecurityContextNotSupported", "spec.hostPID"),
}  # fmt: skip


@pytest.mark.parametrize("case", REJECTED)
def test_pod_is_rejected_for(case: str) -> None:
    made, reason, words = REJECTED[case]
    running = pod({"cpu": "1", "nvidia.com/gpu": "1"})
    found = reject(made, NODE_OBJECT, [running], ABILITIES)
    assert found is not None
    assert found.reason == reason
    assert found.message.startswith("Pod was rejected: ")
    assert words in found.message


def test_pod_beyond_the_number_of_pods_is_rejected() -> None:
    found = reject(pod(), NODE_OBJECT, [pod(), pod(), pod()], ABILITIES)
    assert found is not None
    assert found.reason == "OutOfpods"


async def test_pod_that_names_its_node_does_not_get_more_than_there_is(shared: Machine) -> None:
    cpus = len(os.sched_getaffinity(0))
    large = {"resources": {"requests": {"cpu": str(cpus)}}}
    await shared.run_pod("first", "sleep", "1000", container=large)
    await shared.running("first")
    await shared.run_pod("second", "true", container=large)
    second = await shared.ended("second")
    assert second["status"]["reason"] == "OutOfcpu"
    assert second["status"]["containerStatuses"][0]["state"].get("terminated") is None
    # A running pod stays, whatever has changed meanwhile.
    await shared.stop_agent()
    taint = {"key": "k", "value": "v", "effect": "NoExecute"}
    await shared.client.patch(NODES, NODE, {"spec": {"taints": [taint]}})
    shared.start_agent(pod_user="namespace")
    await shared.run_pod("third", "true")
    third = await shared.ended("third")
    assert third["status"]["reason"] == "TaintToleration"
    first = await shared.running("first")
    assert first["status"]["phase"] == "Running"


async def test_finished_pods_take_no_room_after_a_restart_of_the_agent(shared: Machine) -> None:
    large = {"resources": {"requests": {"cpu": str(len(os.sched_getaffinity(0)))}}}
    await shared.run_pod("before", "true", container=large)
    await shared.ended("before")
    await shared.stop_agent()
    await shared.run_pod("after", "true", container=large)
    shared.start_agent(pod_user="namespace")
    assert (await shared.ended("after"))["status"]["phase"] == "Succeeded"


async def test_pod_with_a_field_that_is_not_supported_fails_with_its_name(shared: Machine) -> None:
    context = {"seLinuxOptions": {"type": "container_t"}}
    await shared.run_pod("p", "true", container={"securityContext": context})
    status = (await shared.ended("p"))["status"]
    assert status["reason"] == "SecurityContextNotSupported"
    assert "spec.containers[0].securityContext.seLinuxOptions" in status["message"]


async def test_container_that_must_not_be_root_waits_with_the_kubelet_s_message(
    shared: Machine,
) -> None:
    context = {"runAsNonRoot": True}
    await shared.run_pod("p", "true", container={"securityContext": context})
    pod = await shared.until("p", lambda p: "runAsNonRoot" in str(p["status"]))
    waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]
    assert waiting["reason"] == "CreateContainerConfigError"
    assert "container has runAsNonRoot and image will run as root" in waiting["message"]
