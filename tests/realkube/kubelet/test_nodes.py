"""Nodes that fail, are short of memory, or are drained: jobs restart on the other node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tools.kube.kubelets import KubeletCluster
from tools.kube.node import Node
from tools.waiting import until

from hekla.kube.resources import EVENTS, NODES
from hekla.kube.sync_client import SyncClient
from tests.realkube.kubelet.jobs import FOREVER, job, nodes_of, phase, pods, submit, task
from tests.realkube.kubelet.test_containers import kubectl

pytestmark = pytest.mark.kubelet

# Two pods, which fit on one node together.
WORKERS = task(replicas=2, cpu="900m", script=FOREVER)
POLICIES = [{"events": ["PodFailed", "PodEvicted"], "action": "RestartJob"}]
MEMORY_PRESSURE = "node.kubernetes.io/memory-pressure"
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}


@pytest.fixture
def lost(cluster: KubeletCluster, client: SyncClient, namespace: str) -> Iterator[Node]:
    """A node that runs a part of the job `train`; it is in service again afterwards."""
    submit(client, namespace, job("train", WORKERS, policies=POLICIES))
    until(lambda: phase(client, namespace, "train") == "Running")
    name = nodes_of(client, namespace)[0]
    (node,) = (each for each in cluster.nodes if each.name == name)
    yield node
    client.patch(NODES, name, {"spec": {"taints": None, "unschedulable": None}})
    node.kill_kubelet()
    node.start_kubelet(eviction_soft={})
    until(lambda: not _taints(client, name), patience_s=90)


def _taints(client: SyncClient, name: str) -> list[str]:
    return [taint["key"] for taint in client.get(NODES, name)["spec"].get("taints") or ()]


def _other(node: Node) -> str:
    return "node-1" if node.name == "node-0" else "node-0"


def _runs_on(client: SyncClient, namespace: str, node: str) -> bool:
    """Return whether the job runs with all its pods on this node."""
    running = [
        pod["spec"]["nodeName"]
        for pod in pods(client, namespace)
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]
    return running == [node, node] and phase(client, namespace, "train") == "Running"


def test_a_job_restarts_on_the_other_node_when_its_node_is_lost(
    client: SyncClient, namespace: str, lost: Node
) -> None:
    lost.kill_kubelet()
    until(lambda: "node.kubernetes.io/unreachable" in _taints(client, lost.name))

    def evicted() -> list[Any]:
        found = pods(client, namespace)
        return [pod for pod in found if "deletionTimestamp" in pod["metadata"]]

    until(evicted)
    # No kubelet confirms the end of the pods: an administrator says that the node is off.
    client.patch(NODES, lost.name, {"spec": {"taints": [OUT_OF_SERVICE]}})
    until(lambda: _runs_on(client, namespace, _other(lost)), patience_s=120)


def test_a_job_restarts_on_the_other_node_when_its_node_is_drained(
    cluster: KubeletCluster, client: SyncClient, namespace: str, lost: Node
) -> None:
    kubectl(cluster, "drain", lost.name, "--force", "--delete-emptydir-data", "--timeout=120s")
    until(lambda: _runs_on(client, namespace, _other(lost)), patience_s=120)


def test_a_pod_that_a_node_evicts_for_lack_of_memory_restarts_the_job(
    client: SyncClient, namespace: str, lost: Node
) -> None:
    lost.kill_kubelet()
    lost.start_kubelet(eviction_soft={"memory.available": "99%"})
    until(lambda: MEMORY_PRESSURE in _taints(client, lost.name), patience_s=60)
    until(lambda: _runs_on(client, namespace, _other(lost)), patience_s=120)
    events = client.list(EVENTS, namespace=namespace)
    assert "Evicted" in {event.get("reason") for event in events}
