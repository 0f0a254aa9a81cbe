"""ResourceQuotas and LimitRanges."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hekla.kube.client import Client
from hekla.kube.errors import Forbidden
from hekla.kube.resources import CONFIGMAPS, LIMIT_RANGES, PODS, RESOURCE_QUOTAS
from tests.apiserver.objects import config_map, pod


async def quota(client: Client, **hard: str) -> None:
    spec = {"hard": {name.replace("_", "."): amount for name, amount in hard.items()}}
    await client.create(
        RESOURCE_QUOTAS, {"metadata": {"name": "q", "namespace": "default"}, "spec": spec}
    )


async def used(client: Client, **want: str) -> None:
    """Wait until the quota has this usage."""
    wanted = {name.replace("_", "."): amount for name, amount in want.items()}
    async with client.watch(RESOURCE_QUOTAS, namespace="default", timeout_s=20) as events:
        async for event in events:
            found = (event.object.get("status") or {}).get("used") or {}
            if all(found.get(name) == amount for name, amount in wanted.items()):
                return
    raise AssertionError(f"never used {wanted}; last was {found}")


async def test_concurrent_creates_cannot_exceed_a_quota(client: Client) -> None:
    await quota(client, pods="5")

    attempts = (client.create(PODS, pod(f"p{index}")) for index in range(20))
    refused = [
        str(outcome)
        for outcome in await asyncio.gather(*attempts, return_exceptions=True)
        if isinstance(outcome, Forbidden)
    ]
    assert len(refused) == 15
    want = "exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5"
    assert all(want in message for message in refused)
    await used(client, pods="5")


async def test_amounts_are_added_up_exactly(client: Client) -> None:
    await quota(client, requests_cpu="1", limits_memory="1Gi")
    asks: dict[str, Any] = {"requests": {"cpu": "300m"}, "limits": {"memory": "256Mi"}}
    for index in range(3):
        await client.create(PODS, pod(f"p{index}", **asks))
    await used(client, requests_cpu="900m", limits_memory="768Mi")
    with pytest.raises(Forbidden, match=r"requests\.cpu=300m, used: requests\.cpu=900m"):
        await client.create(PODS, pod("p3", **asks))


async def test_deleted_and_finished_pods_release_quota(client: Client) -> None:
    await quota(client, pods="2", configmaps="9")
    await client.create(PODS, pod("a"))
    await client.create(PODS, pod("b"))
    await client.create(CONFIGMAPS, config_map("c"))
    await used(client, pods="2", configmaps="2")  # one is kube-root-ca.crt
    await client.delete(PODS, "a", namespace="default")
    await used(client, pods="1")
    await client.patch_status(PODS, "b", {"phase": "Succeeded"}, namespace="default")
    await used(client, pods="0")
    await client.create(PODS, pod("d"))


async def test_new_quota_counts_existing_objects(client: Client) -> None:
    await client.create(PODS, pod("a", requests={"cpu": "250m"}))
    await quota(client, pods="2", requests_cpu="1")
    await used(client, pods="1", requests_cpu="250m")


async def test_pod_must_specify_resources_that_a_quota_limits(client: Client) -> None:
    await quota(client, limits_cpu="4")
    with pytest.raises(Forbidden, match=r"failed quota: q: must specify limits\.cpu"):
        await client.create(PODS, pod())


async def test_a_scoped_quota_counts_only_its_pods(client: Client) -> None:
    spec = {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}
    await client.create(
        RESOURCE_QUOTAS, {"metadata": {"name": "q", "namespace": "default"}, "spec": spec}
    )
    await client.create(PODS, pod("solid", limits={"cpu": "1", "memory": "1Gi"}))
    await client.create(PODS, pod("weak"))
    with pytest.raises(Forbidden, match="exceeded quota"):
        await client.create(PODS, pod("weak2"))


async def test_dry_run_is_checked_against_the_quota_and_not_counted(client: Client) -> None:
    await quota(client, pods="1")
    await client.create(PODS, pod("a"), dry_run=True)
    await client.create(PODS, pod("b"))
    with pytest.raises(Forbidden):
        await client.create(PODS, pod("c"), dry_run=True)
    await used(client, pods="1")


async def limit_range(client: Client, **item: Any) -> None:
    spec = {"limits": [{"type": "Container", **item}]}
    await client.create(
        LIMIT_RANGES, {"metadata": {"name": "l", "namespace": "default"}, "spec": spec}
    )


async def test_limit_range_sets_default_requests_and_limits(client: Client) -> None:
    await limit_range(client, default={"cpu": "2"}, defaultRequest={"cpu": "500m"})
    made = await client.create(PODS, pod("silent"))
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "2"},
        "requests": {"cpu": "500m"},
    }
    said = await client.create(PODS, pod("said", requests={"cpu": "1"}))
    assert said["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}


@pytest.mark.parametrize(
    ("item", "asks", "why"),
    [
        ({"max": {"cpu": "1"}}, {"limits": {"cpu": "2"}}, "maximum cpu usage per Container is 1"),
        ({"min": {"memory": "1Gi"}}, {"requests": {"memory": "1Mi"}}, "but request is 1Mi"),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}},
            "ratio per Container is 2, but provided ratio is 3",
        ),
    ],
)
async def test_limit_range_refuses_values_outside_its_range(
    client: Client, item: Any, asks: Any, why: str
) -> None:
    await limit_range(client, **item)
    with pytest.raises(Forbidden, match=why):
        await client.create(PODS, pod(**asks))
