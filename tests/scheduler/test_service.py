"""The scheduler against the embedded API server: real watches, real binds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from hekla.api import wellknown
from hekla.apiserver.server import ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists
from hekla.kube.resources import CONFIGMAPS, NAMESPACES, NODES, PODGROUPS, PODS, QUEUES
from hekla.scheduler.service import Scheduler


class World:
    def __init__(self, client: Client, scheduler: Scheduler) -> None:
        self.client = client
        self.scheduler = scheduler

    async def node(self, name: str, cpu: int) -> None:
        await self.client.create(NODES, {"metadata": {"name": name}})
        amounts = {"cpu": str(cpu), "memory": "8Gi", "pods": "110"}
        await self.client.patch_status(NODES, name, {"allocatable": amounts, "capacity": amounts})

    async def gang(self, name: str, members: int, cpu: str = "1") -> None:
        spec = {"minMember": members, "queue": "default"}
        await self.client.create(
            PODGROUPS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
        )
        for i in range(members):
            await self.client.create(PODS, self._pod(name, i, cpu))

    def _pod(self, group: str, i: int, cpu: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{group}-{i}",
                "namespace": "default",
                "annotations": {wellknown.GROUP_NAME: group},
            },
            "spec": {
                "schedulerName": "volcano",
                "containers": [
                    {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
                ],
            },
        }

    async def until(self, holds: Callable[[], Any]) -> Any:
        """Wait for a state to come about; a bounded number of short looks."""
        for _ in range(500):
            found = await holds()
            if found:
                return found
            await asyncio.sleep(0.01)
        raise AssertionError(f"it did not come about; verdicts: {self.scheduler.verdicts}")

    async def bound(self) -> dict[str, str]:
        pods = await self.client.list(PODS, namespace="default")
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"]
            for pod in pods
            if pod["spec"].get("nodeName")
        }


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(ApiServer(Config(data_dir=tmp_path)))
        target = kubeconfig.load(server.kubeconfig)
        mine = await stack.enter_async_context(Client(target, component="test"))
        with contextlib.suppress(AlreadyExists):
            await mine.create(QUEUES, {"metadata": {"name": "default"}, "spec": {"weight": 1}})
        theirs = await stack.enter_async_context(Client(target, component="scheduler"))
        scheduler = Scheduler(theirs)
        running = asyncio.create_task(scheduler.run())
        yield World(mine, scheduler)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_gang_waits_with_a_reason_and_is_bound_whole_when_a_node_comes(
    world: World,
) -> None:
    await world.node("n1", 1)
    await world.gang("train", 2)

    async def explained() -> Any:
        group = await world.client.get(PODGROUPS, "train", namespace="default")
        found = (group.get("status") or {}).get("conditions") or []
        return [
            c for c in found if c["type"] == "Unschedulable" and "1/2 tasks fit" in c["message"]
        ]

    await world.until(explained)
    assert await world.bound() == {}

    async def told() -> Any:
        pod = await world.client.get(PODS, "train-0", namespace="default")
        return [c for c in pod["status"].get("conditions", []) if c["type"] == "PodScheduled"]

    (condition,) = await world.until(told)
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    await world.node("n2", 1)

    async def whole() -> bool:
        return sorted((await world.bound()).values()) == ["n1", "n2"]

    await world.until(whole)


async def test_a_new_configuration_is_in_force_from_the_next_cycle(world: World) -> None:
    with contextlib.suppress(AlreadyExists):
        await world.client.create(NAMESPACES, {"metadata": {"name": wellknown.SYSTEM_NAMESPACE}})
    body: dict[str, Any] = {
        "metadata": {
            "name": wellknown.SCHEDULER_CONFIG_MAP,
            "namespace": wellknown.SYSTEM_NAMESPACE,
        },
        "data": {wellknown.SCHEDULER_CONFIG_KEY: 'actions: "enqueue"\n'},
    }
    await world.client.create(CONFIGMAPS, body)

    async def taken() -> bool:
        return world.scheduler.config.actions == ("enqueue",)

    await world.until(taken)
    await world.client.patch(
        CONFIGMAPS,
        wellknown.SCHEDULER_CONFIG_MAP,
        {"data": {wellknown.SCHEDULER_CONFIG_KEY: 'actions: "nonsense"\n'}},
        namespace=wellknown.SYSTEM_NAMESPACE,
    )
    cycles = world.scheduler.cycles

    async def later() -> bool:
        return world.scheduler.cycles > cycles

    await world.until(later)
    assert world.scheduler.config.actions == ("enqueue",), "the last good one must stay"
    await world.client.delete(
        CONFIGMAPS, wellknown.SCHEDULER_CONFIG_MAP, namespace=wellknown.SYSTEM_NAMESPACE
    )

    async def default_again() -> bool:
        return "backfill" in world.scheduler.config.actions

    await world.until(default_again)


async def test_an_idle_cluster_runs_no_cycles(world: World) -> None:
    await world.node("n1", 4)
    await world.gang("quick", 2)

    async def whole() -> bool:
        return len(await world.bound()) == 2

    await world.until(whole)

    async def quiet() -> bool:
        before = world.scheduler.cycles
        await asyncio.sleep(0.1)
        return world.scheduler.cycles == before

    await world.until(quiet)


async def test_a_configuration_file_wins_over_the_config_map(world: World, tmp_path: Path) -> None:
    path = tmp_path / "volcano-scheduler.conf"
    path.write_text('actions: "allocate"\n')
    other = Scheduler(world.client, names=["other"], conf=path)
    running = asyncio.create_task(other.run())

    async def taken() -> bool:
        return other.config.actions == ("allocate",)

    await world.until(taken)
    path.write_text('actions: "enqueue, allocate"\n')

    async def taken_again() -> bool:
        return other.config.actions == ("enqueue", "allocate")

    await world.until(taken_again)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
