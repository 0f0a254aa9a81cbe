"""Gangs of real containers on two kubelets, each with two CPUs."""

from __future__ import annotations

import pytest
from tools.kube.kubelets import KubeletCluster
from tools.waiting import until

from hekla.kube.resources import CSI_NODES, JOBS, PODGROUPS
from hekla.kube.sync_client import SyncClient
from tests.realkube.kubelet.jobs import (
    FOREVER,
    finished,
    job,
    logs,
    nodes_of,
    phase,
    pods,
    submit,
    task,
)

pytestmark = pytest.mark.kubelet
# Two fit on a node, and four on both.
CPU = "900m"


def test_a_gang_over_two_nodes_runs_and_completes(client: SyncClient, namespace: str) -> None:
    submit(client, namespace, job("fits", task(replicas=4, cpu=CPU, script="echo $HOSTNAME")))
    finished(client, namespace, "fits")
    assert nodes_of(client, namespace) == ["node-0", "node-0", "node-1", "node-1"]
    for number in range(4):
        assert logs(client, namespace, f"fits-worker-{number}") == f"fits-worker-{number}\n"


def test_a_gang_that_is_too_large_stays_pending_without_pods(
    client: SyncClient, namespace: str
) -> None:
    submit(client, namespace, job("large", task(replicas=5, cpu=CPU)))

    def reasons() -> list[str]:
        groups = client.list(PODGROUPS, namespace=namespace)
        told = [c for g in groups for c in (g.get("status") or {}).get("conditions") or ()]
        return [c["message"] for c in told if c["type"] == "Unschedulable"]

    until(reasons)
    until(lambda: phase(client, namespace, "large") == "Pending")
    assert pods(client, namespace) == []


def test_a_gang_starts_when_the_gang_before_it_ends(client: SyncClient, namespace: str) -> None:
    submit(client, namespace, job("first", task(replicas=3, cpu=CPU, script=FOREVER)))
    until(lambda: phase(client, namespace, "first") == "Running")
    submit(client, namespace, job("second", task(replicas=2, cpu=CPU)))
    until(lambda: phase(client, namespace, "second") == "Pending")
    assert len(nodes_of(client, namespace)) == 3
    client.delete(JOBS, "first", namespace=namespace)
    finished(client, namespace, "second")


def test_every_object_of_a_kubelet_is_read(
    cluster: KubeletCluster, client: SyncClient, namespace: str
) -> None:
    assert [node["spec"]["drivers"] for node in client.list(CSI_NODES)] == [None, None]
    submit(client, namespace, job("reads", task()))
    finished(client, namespace, "reads")
    for component in ("scheduler", "controllers", "admission"):
        assert "cannot be read" not in cluster.processes.log(component).read_text()
