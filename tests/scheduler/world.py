"""The embedded API server with a scheduler, and helpers to wait and to inject faults.

`until` watches: it returns as soon as the objects of a kind satisfy a condition, and fails after a
time that no healthy machine needs. Faults are injected where requests leave the scheduler.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from hekla.api import wellknown
from hekla.apiserver.server import ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.calls import Call
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.resources import NODES, PODGROUPS, PODS, QUEUES, Resource
from hekla.scheduler.service.scheduler import Scheduler
from hekla.units.objects import Object

T = TypeVar("T")
Objects = dict[str, Object]
Send = Callable[[Call], Awaitable[bytes]]
PATIENCE_S = 120.0


class Faulty(Client):
    """A client whose requests go through `fault`: a function of the call and of how to send it."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        send = self.transport.send
        self.sent: list[str] = []
        self.fault: Callable[[Call, Send], Awaitable[bytes]] | None = None

        async def faulty(call: Call, **options: Any) -> bytes:
            if call.method != "GET":
                self.sent.append(str(call))
            if self.fault is None:
                return await send(call, **options)
            return await self.fault(call, send)

        self.transport.send = faulty  # type: ignore[method-assign]

    def binds(self) -> list[str]:
        """Pods whose binding was sent, in that order."""
        return [call.split("/")[-2] for call in self.sent if call.endswith("/binding")]


class Turning(Scheduler):
    """A scheduler whose cycles can be waited for."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._turned = asyncio.Condition()

    async def cycle(self) -> None:
        await super().cycle()
        async with self._turned:
            self._turned.notify_all()

    async def turns(self, condition_holds: Callable[[], Any]) -> None:
        """Wait for a cycle after which the condition holds."""
        async with asyncio.timeout(PATIENCE_S), self._turned:
            await self._turned.wait_for(lambda: bool(condition_holds()))


class World:
    def __init__(self, stack: contextlib.AsyncExitStack, target: ClusterConfig, client: Client):
        self.stack = stack
        self.target = target
        self.client = client

    async def scheduler(self, client: Client | None = None, **options: Any) -> Turning:
        """Start a scheduler; it stops with the test."""
        if client is None:
            client = await self.connect()
        scheduler = Turning(client, **options)
        task = asyncio.create_task(scheduler.run())
        self.stack.push_async_callback(_cancel, task)
        return scheduler

    async def connect(self, **options: Any) -> Faulty:
        return await self.stack.enter_async_context(Faulty(self.target, **options))

    # --- making -------------------------------------------------------------------------------

    async def node(self, name: str, cpu: int, **labels: str) -> None:
        await self.client.create(NODES, {"metadata": {"name": name, "labels": labels}})
        amounts = {"cpu": str(cpu), "memory": "8Gi", "pods": "110"}
        await self.client.patch_status(NODES, name, {"allocatable": amounts, "capacity": amounts})

    async def group(self, name: str, minimum: int, **spec: Any) -> None:
        body = {"minMember": minimum, "queue": "default", **spec}
        await self.client.create(
            PODGROUPS, {"metadata": {"name": name, "namespace": "default"}, "spec": body}
        )

    async def gang(self, name: str, members: int, cpu: str = "1", **spec: Any) -> None:
        await self.group(name, members, **spec)
        await self.pods(name, members, cpu=cpu)

    async def pods(self, group: str, count: int, *, cpu: str = "1", **spec: Any) -> None:
        for i in range(count):
            await self.client.create(PODS, pod(f"{group}-{i}", group=group, cpu=cpu, **spec))

    async def foreign(self, name: str, node: str, cpu: str) -> None:
        """Create a pod bound by another scheduler."""
        await self.client.create(PODS, pod(name, cpu=cpu, schedulerName="other", nodeName=node))

    async def remove(self, *names: str) -> None:
        """Delete a pod without grace period: there is no kubelet."""
        for name in names:
            await self.client.delete(PODS, name, namespace="default", grace_period_s=0)

    # --- waiting ------------------------------------------------------------------------------

    async def until(self, resource: Resource[Any], condition_holds: Callable[[Objects], T]) -> T:
        """Watch all objects of a kind, by name, until the condition holds; return its result."""
        found: Objects = {}
        try:
            async with asyncio.timeout(PATIENCE_S):
                listing = await self.client.list(resource)
                found = {obj["metadata"]["name"]: obj for obj in listing}
                version = listing.resource_version
                if answer := condition_holds(found):
                    return answer
                async with self.client.watch(resource, resource_version=version) as events:
                    async for event in events:
                        name = event.object["metadata"]["name"]
                        if event.type == "DELETED":
                            found.pop(name, None)
                        elif event.type in ("ADDED", "MODIFIED"):
                            found[name] = event.object
                        if answer := condition_holds(found):
                            return answer
                raise AssertionError("the watch ended")
        except TimeoutError:
            seen = {name: obj.get("status") for name, obj in found.items()}
            raise AssertionError(f"it did not come about; there is {seen}") from None

    async def bound(self, *wanted: str) -> dict[str, str]:
        """Wait until exactly these pods are bound; return their nodes."""

        def are_bound(pods: Objects) -> dict[str, str] | None:
            places = placed(pods)
            return places if set(places) == set(wanted) else None

        return await self.until(PODS, are_bound) or {}

    async def bound_nodes(self) -> dict[str, str]:
        return placed({p["metadata"]["name"]: p for p in await self.client.list(PODS)})

    async def condition(self, group: str, text: str) -> str:
        """Wait until a PodGroup is Unschedulable for a reason."""

        def says(groups: Objects) -> str:
            status = (groups.get(group) or {}).get("status") or {}
            for condition in status.get("conditions") or []:
                is_so = condition["type"] == "Unschedulable" and condition["status"] == "True"
                if is_so and text in condition["message"]:
                    return str(condition["message"])
            return ""

        return await self.until(PODGROUPS, says)


def placed(pods: Objects) -> dict[str, str]:
    return {
        name: pod["spec"]["nodeName"]
        for name, pod in pods.items()
        if pod["spec"].get("nodeName") and pod["spec"].get("schedulerName") != "other"
    }


def pod(name: str, *, group: str = "", cpu: str = "1", **spec: Any) -> Object:
    annotations = {wellknown.GROUP_NAME: group} if group else {}
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"schedulerName": "volcano", "containers": [container], **spec},
    }


@contextlib.asynccontextmanager
async def running_world(directory: Path) -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(ApiServer(Config(data_dir=directory)))
        target = kubeconfig.load(server.kubeconfig)
        client = await stack.enter_async_context(Client(target, component="test"))
        with contextlib.suppress(AlreadyExists):
            await client.create(QUEUES, {"metadata": {"name": "default"}, "spec": {"weight": 1}})
        yield World(stack, target, client)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
