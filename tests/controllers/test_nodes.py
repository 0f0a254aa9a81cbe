"""Lost nodes, taint eviction and orphaned pods on the embedded cluster."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hekla.controllers.nodes.lifecycle import (
    Renewal,
    evicting_taints,
    eviction_at,
    lost_at,
    unknown_conditions,
    wanted_taints,
)
from hekla.kube.resources import LEASES, NODES, PODS
from hekla.units.clock import ManualClock
from hekla.units.objects import Object
from hekla.units.timestamps import format_micro_time, format_time

from .cluster import Cluster, running_cluster

NOW = 1_700_000_000.0
UNREACHABLE = "node.kubernetes.io/unreachable"


def node(ready: str | None = None, *taints: Object) -> Object:
    conditions = [{"type": "DiskPressure", "status": "False"}]
    if ready is not None:
        conditions.append({"type": "Ready", "status": ready})
    return {
        "metadata": {"name": "n"},
        "spec": {"taints": list(taints)} if taints else {},
        "status": {"conditions": conditions},
    }


def no_execute(key: str = UNREACHABLE, **more: str) -> Object:
    return {"key": key, "effect": "NoExecute", "timeAdded": format_time(NOW), **more}


def pod(*tolerations: Object, created: float = NOW - 1000, phase: str = "Running") -> Object:
    metadata = {"name": "p", "creationTimestamp": format_time(created)}
    return {
        "metadata": metadata,
        "spec": {"tolerations": list(tolerations)},
        "status": {"phase": phase},
    }


def test_node_is_lost_after_the_grace_period_or_the_longer_duration_of_its_lease() -> None:
    renewal = Renewal("v", 100.0)
    assert lost_at({"spec": {"leaseDurationSeconds": 15}}, renewal) == 140.0
    assert lost_at({"spec": {"leaseDurationSeconds": 60}}, renewal) == 160.0
    assert lost_at({}, renewal) == 140.0


def test_ready_condition_of_a_lost_node_becomes_unknown_and_others_stay() -> None:
    conditions = unknown_conditions(node("True"), NOW)
    assert conditions is not None
    assert [(c["type"], c["status"]) for c in conditions] == [
        ("DiskPressure", "False"),
        ("Ready", "Unknown"),
    ]
    assert unknown_conditions(node("Unknown"), NOW) is None
    assert unknown_conditions(node(None), NOW) is None


TAINTS: dict[str, tuple[Object, list[tuple[str, str]] | None]] = {
    "a ready node keeps foreign taints only": (
        node("True", no_execute(), {"key": "mine", "effect": "NoSchedule"}),
        [("mine", "NoSchedule")],
    ),
    "a node of unknown state is unreachable": (
        node("Unknown"),
        [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")],
    ),
    "a node that reports a failure is not ready": (
        node("False", no_execute()),
        [
            ("node.kubernetes.io/not-ready", "NoSchedule"),
            ("node.kubernetes.io/not-ready", "NoExecute"),
        ],
    ),
    "a ready node without taints is left alone": (node("True"), None),
    "a node without a Ready condition is left alone": (node(None, no_execute()), None),
}


@pytest.mark.parametrize("case", TAINTS)
def test_taints_follow_the_ready_condition(case: str) -> None:
    given, want = TAINTS[case]
    taints = wanted_taints(given, NOW)
    found = None if taints is None else [(t["key"], t["effect"]) for t in taints]
    assert found == want


EVICTIONS: dict[str, tuple[Object, float | None]] = {
    "without a toleration at once": (pod(), 0.0),
    "after the tolerated seconds": (
        pod({"key": UNREACHABLE, "operator": "Exists", "tolerationSeconds": 300}),
        NOW + 300,
    ),
    "never with an unlimited toleration": (pod({"operator": "Exists"}), None),
    "after the shortest of several": (
        pod({"operator": "Exists", "tolerationSeconds": 9}, {"operator": "Exists"}),
        NOW + 9,
    ),
    "not before the pod existed": (
        pod({"operator": "Exists", "tolerationSeconds": 9}, created=NOW + 50),
        NOW + 59,
    ),
    "not by a toleration of another value": (
        pod({"key": UNREACHABLE, "operator": "Equal", "value": "x"}),
        0.0,
    ),
    "not by a toleration of another effect": (
        pod({"key": UNREACHABLE, "operator": "Exists", "effect": "NoSchedule"}),
        0.0,
    ),
    "never after its end": (pod(phase="Succeeded"), None),
}


@pytest.mark.parametrize("case", EVICTIONS)
def test_pod_leaves_a_tainted_node(case: str) -> None:
    given, want = EVICTIONS[case]
    assert eviction_at(given, evicting_taints(node("Unknown", no_execute()))) == want


def test_pod_stays_on_a_node_without_such_taints() -> None:
    assert (
        eviction_at(pod(), evicting_taints(node("True", {"key": "k", "effect": "NoSchedule"})))
        is None
    )


@contextlib.asynccontextmanager
async def nodes_cluster(directory: Path, clock: ManualClock) -> AsyncIterator[Cluster]:
    async with running_cluster(directory, clock=clock, start=False) as cluster:
        cluster.select = ["*", "node-lifecycle-controller"]
        cluster.admits = False
        await cluster.start()
        yield cluster


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(float(int(time.time())))  # certificates are checked against the real date


async def add_node(cluster: Cluster, name: str, *, has_lease: bool) -> None:
    ready = {"type": "Ready", "status": "True"}
    body = {"metadata": {"name": name}, "status": {"conditions": [ready]}}
    await cluster.client.create(NODES, body)
    await cluster.client.patch_status(NODES, name, {"conditions": [ready]})
    if has_lease:
        spec = {"leaseDurationSeconds": 40, "renewTime": format_micro_time(cluster.clock.now())}
        lease = {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": spec}
        await cluster.client.create(LEASES, lease)


async def add_pod(cluster: Cluster, name: str, on: str, **spec: Any) -> None:
    container = {"name": "main", "image": "host"}
    metadata = {"name": name, "namespace": "default"}
    body = {"metadata": metadata, "spec": {"nodeName": on, "containers": [container], **spec}}
    await cluster.client.create(PODS, body)
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "conditions": [ready]}
    await cluster.client.patch_status(PODS, name, status, namespace="default")


async def ready_of(cluster: Cluster, name: str) -> str:
    found = await cluster.client.get(NODES, name)
    return str(next(c["status"] for c in found["status"]["conditions"] if c["type"] == "Ready"))


async def test_node_whose_lease_ends_is_lost_and_its_pods_are_evicted(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with nodes_cluster(tmp_path / "data", clock) as cluster:
        await add_node(cluster, "dead", has_lease=True)
        await add_node(cluster, "unmanaged", has_lease=False)
        await add_pod(cluster, "a", "dead")
        await add_pod(cluster, "b", "unmanaged")
        await cluster.settle()
        await clock.advance(39)
        await cluster.settle()
        assert await ready_of(cluster, "dead") == "True"
        await clock.advance(2)

        async def is_lost() -> bool:
            found = await cluster.client.get(NODES, "dead")
            return len((found.get("spec") or {}).get("taints") or ()) == 2

        await cluster.until(is_lost, "the node is tainted")
        assert await ready_of(cluster, "dead") == "Unknown"
        lost = await cluster.client.get(PODS, "a", namespace="default")
        assert [c["status"] for c in lost["status"]["conditions"]] == ["False"]
        await cluster.settle()
        await clock.advance(290)
        await cluster.settle()
        assert set(await cluster.pods()) == {"a", "b"}
        await clock.advance(12)

        async def is_evicted() -> bool:
            return set(await cluster.pods()) == {"b"}

        await cluster.until(is_evicted, "the pod is evicted")
        evicted = await cluster.client.get(PODS, "a", namespace="default")
        reasons = [
            c.get("reason") for c in evicted["status"]["conditions"] if "Disruption" in c["type"]
        ]
        assert reasons == ["DeletionByTaintManager"]
        assert await ready_of(cluster, "unmanaged") == "True"


async def test_node_that_renews_its_lease_stays_ready(tmp_path: Path, clock: ManualClock) -> None:
    async with nodes_cluster(tmp_path / "data", clock) as cluster:
        await add_node(cluster, "alive", has_lease=True)
        for _ in range(5):
            await cluster.settle()
            await clock.advance(30)
            renewed = {"spec": {"renewTime": format_micro_time(clock.now())}}
            await cluster.client.patch(LEASES, "alive", renewed, namespace="kube-node-lease")
        await cluster.settle()
        assert await ready_of(cluster, "alive") == "True"


async def test_taints_go_when_the_node_is_ready_again(tmp_path: Path, clock: ManualClock) -> None:
    async with nodes_cluster(tmp_path / "data", clock) as cluster:
        await add_node(cluster, "back", has_lease=False)
        for status, want in (("Unknown", 2), ("True", 0)):
            conditions = [{"type": "Ready", "status": status}]
            await cluster.client.patch_status(NODES, "back", {"conditions": conditions})

            async def has_taints(want: int = want) -> bool:
                found = await cluster.client.get(NODES, "back")
                return len((found.get("spec") or {}).get("taints") or ()) == want

            await cluster.until(has_taints, f"{want} taints")


async def test_unfinished_pods_of_a_deleted_node_fail_and_go(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with nodes_cluster(tmp_path / "data", clock) as cluster:
        await add_node(cluster, "gone", has_lease=False)
        await add_pod(cluster, "running", "gone")
        await add_pod(cluster, "done", "gone")
        await cluster.client.patch_status(PODS, "done", {"phase": "Succeeded"}, namespace="default")
        await cluster.client.delete(NODES, "gone")
        await cluster.settle()
        await clock.advance(39)
        await cluster.settle()
        assert set(await cluster.pods()) == {"running", "done"}
        await clock.advance(2)

        async def is_gone() -> bool:
            return set(await cluster.pods()) == {"done"}

        await cluster.until(is_gone, "the orphaned pod is deleted")
