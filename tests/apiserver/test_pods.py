"""Pods: binding, eviction, deletion, priority and QoS."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hekla.kube.client import Client
from hekla.kube.errors import ApiError, Conflict, Forbidden, NotFound, TooManyRequests
from hekla.kube.resources import NODES, POD_DISRUPTION_BUDGETS, PODS, PRIORITY_CLASSES
from tests.apiserver.objects import READY, pod


async def test_concurrent_bindings_bind_a_pod_once(client: Client) -> None:
    await client.create(PODS, pod())

    async def attempt(node: str) -> str | None:
        try:
            await client.bind("p", node, namespace="default")
        except Conflict:
            return None
        return node

    won = [n for n in await asyncio.gather(*(attempt(f"n{i}") for i in range(20))) if n]
    assert len(won) == 1
    bound = await client.get(PODS, "p", namespace="default")
    assert bound["spec"]["nodeName"] == won[0]
    scheduled = [c for c in bound["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert [c["status"] for c in scheduled] == ["True"]


async def test_binding_with_the_uid_of_a_former_pod_is_refused(client: Client) -> None:
    old = await client.create(PODS, pod())
    await client.delete(PODS, "p", namespace="default")
    await client.create(PODS, pod())
    with pytest.raises(Conflict, match="recreated"):
        await client.bind("p", "n1", namespace="default", uid=old["metadata"]["uid"])


async def test_a_gated_pod_cannot_be_bound(client: Client) -> None:
    await client.create(PODS, pod(schedulingGates=[{"name": "example.com/wait"}]))
    with pytest.raises(Conflict, match="schedulingGates"):
        await client.bind("p", "n1", namespace="default")


async def test_a_gated_pod_shows_it_from_its_creation_until_it_is_placed(client: Client) -> None:
    await client.create(NODES, {"metadata": {"name": "n1"}})
    gated = await client.create(PODS, pod(schedulingGates=[{"name": "example.com/wait"}]))
    (condition,) = gated["status"]["conditions"]
    assert condition == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
        "lastTransitionTime": gated["metadata"]["creationTimestamp"],
    }
    await client.patch(PODS, "p", {"spec": {"schedulingGates": None}}, namespace="default")
    await client.bind("p", "n1", namespace="default")
    bound = await client.get(PODS, "p", namespace="default")
    assert [(c["type"], c["status"]) for c in bound["status"]["conditions"]] == [
        ("PodScheduled", "True")
    ]


async def test_a_pod_without_gates_has_no_condition_yet(client: Client) -> None:
    for created in (
        await client.create(PODS, pod("free")),
        await client.create(PODS, pod("empty", schedulingGates=[])),
    ):
        assert "conditions" not in created["status"]


async def test_a_binding_without_a_node_is_refused(client: Client) -> None:
    await client.create(PODS, pod())
    with pytest.raises(ApiError, match=r"target\.name"):
        await client.bind("p", "", namespace="default")


async def test_only_a_bound_pod_has_a_deletion_grace_period(client: Client) -> None:
    await client.create(NODES, {"metadata": {"name": "n1"}})
    await client.create(PODS, pod("free"))
    await client.delete(PODS, "free", namespace="default")
    with pytest.raises(NotFound):
        await client.get(PODS, "free", namespace="default")
    await client.create(PODS, pod("bound", terminationGracePeriodSeconds=7))
    await client.bind("bound", "n1", namespace="default")
    await client.delete(PODS, "bound", namespace="default")
    leaving = await client.get(PODS, "bound", namespace="default")
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 7
    await client.delete(PODS, "bound", namespace="default", grace_period_s=0)
    with pytest.raises(NotFound):
        await client.get(PODS, "bound", namespace="default")


async def test_eviction_is_refused_when_the_budget_is_exhausted(client: Client) -> None:
    await client.create(NODES, {"metadata": {"name": "n1"}})
    for index in range(3):
        name = f"p{index}"
        await client.create(PODS, pod(name, metadata={"labels": {"app": "web"}}))
        await client.bind(name, "n1", namespace="default")
        await client.patch_status(
            PODS, name, {"phase": "Running", "conditions": [READY]}, namespace="default"
        )
    budget = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    }
    await client.create(POD_DISRUPTION_BUDGETS, budget)
    async with client.watch(POD_DISRUPTION_BUDGETS, namespace="default", timeout_s=20) as events:
        async for event in events:
            if event.object["status"]["disruptionsAllowed"] == 1:
                break
    await client.evict("p0", namespace="default")
    leaving = await client.get(PODS, "p0", namespace="default")
    (why,) = [c for c in leaving["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert (why["status"], why["reason"]) == ("True", "EvictionByEvictionAPI")
    assert leaving["metadata"]["deletionTimestamp"]
    with pytest.raises(TooManyRequests, match="disruption budget") as refused:
        await client.evict("p1", namespace="default")
    assert "needs 2 healthy pods and has 2" in str(refused.value.details)
    await client.patch(
        POD_DISRUPTION_BUDGETS, "web", {"spec": {"minAvailable": "30%"}}, namespace="default"
    )
    await client.evict("p1", namespace="default")


async def test_a_pod_gets_the_priority_of_its_class(client: Client) -> None:
    await client.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    made = await client.create(PODS, pod("a", priorityClassName="high"))
    assert made["spec"]["priority"] == 1000
    assert made["spec"]["preemptionPolicy"] == "PreemptLowerPriority"
    assert (await client.create(PODS, pod("b")))["spec"]["priority"] == 0
    with pytest.raises(Forbidden, match="no PriorityClass with name nope"):
        await client.create(PODS, pod("c", priorityClassName="nope"))


async def test_default_priority_class_applies_and_is_unique(client: Client) -> None:
    usual = {"metadata": {"name": "usual"}, "value": 5, "globalDefault": True}
    await client.create(PRIORITY_CLASSES, usual)
    made = await client.create(PODS, pod())
    assert made["spec"]["priorityClassName"] == "usual"
    assert made["spec"]["priority"] == 5
    other = {"metadata": {"name": "other"}, "value": 6, "globalDefault": True}
    with pytest.raises(Forbidden, match="already marked as default"):
        await client.create(PRIORITY_CLASSES, other)


async def test_service_account_of_a_pod_must_exist(client: Client) -> None:
    with pytest.raises(Forbidden, match='serviceaccount "robot" not found'):
        await client.create(PODS, pod(serviceAccountName="robot"))
    assert (await client.create(PODS, pod()))["spec"]["serviceAccountName"] == "default"


async def test_quality_of_service_follows_requests_and_limits(client: Client) -> None:
    want: dict[str, tuple[dict[str, Any], str]] = {
        "none": ({}, "BestEffort"),
        "some": ({"requests": {"cpu": "1"}}, "Burstable"),
        "all": ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
    }
    for name, (resources, quality) in want.items():
        made = await client.create(PODS, pod(name, **resources))
        assert made["status"]["qosClass"] == quality, name
