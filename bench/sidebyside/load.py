"""The client of a run: creates the gangs of a case, and watches their pods.

Bodies are encoded before the clock starts and responses are not decoded, so that the client uses
little of the two shared cores.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from bench.sidebyside import cases
from bench.sidebyside.cases import NAMESPACE, Case
from bench.sidebyside.systems import System
from bench.sidebyside.timeline import Timeline
from hekla.kube import calls
from hekla.kube.calls import Call
from hekla.kube.client import Client
from hekla.kube.errors import KubeError
from hekla.kube.resources import PODS, Resource

IN_FLIGHT = 64
PAUSE_S = 0.1
_GANG_KEYS = ("gang", cases.JOB_LABEL, cases.BATCH_JOB_LABEL)

OnWhole = Callable[[int], Awaitable[None]]
"""Called with the number of each gang of which all pods are created."""


class _Meta(msgspec.Struct):
    name: str
    uid: str
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct):
    nodeName: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


_PODS: Resource[_Pod] = PODS.into(_Pod)


class Follower:
    """Records a watch of the pods of the namespace in a timeline."""

    def __init__(self, client: Client) -> None:
        self.timeline = Timeline()
        self._client = client
        self._changed = asyncio.Event()
        self._version = ""

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        self._version = (await self._client.list(_PODS, namespace=NAMESPACE)).resource_version
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until_bound(self, count: int, patience_s: float) -> bool:
        """Return whether `count` pods are bound within `patience_s`."""
        try:
            async with asyncio.timeout(patience_s):
                while self.timeline.bound < count:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _follow(self) -> None:
        while True:
            try:
                watch = self._client.watch(
                    _PODS, namespace=NAMESPACE, resource_version=self._version
                )
                async with watch as events:
                    async for event in events:
                        self._take_in(event.type, event.object)
                        self._version = event.identity.resourceVersion
            except KubeError as error:
                print(f"the watch broke and is taken up again: {error}")
                await asyncio.sleep(PAUSE_S)

    def _take_in(self, kind: str, pod: _Pod) -> None:
        at, meta = time.monotonic(), pod.metadata
        if kind == "DELETED":
            self.timeline.lose(at, meta.uid)
            return
        gang = next((meta.labels[key] for key in _GANG_KEYS if key in meta.labels), "")
        found = self.timeline.see(at, meta.uid, meta.name, gang, pod.spec.nodeName)
        if found is not None:
            self._changed.set()


class Load:
    """The requests of a case, ready to be sent."""

    def __init__(self, case: Case, system: System) -> None:
        self.case = case
        self._kind = system.dialect.kind
        self._gangs = [
            (_group_call(case, name, system), list(_pod_calls(case, name, system)))
            for name in case.gang_names()
        ]

    async def send(self, client: Client, follower: Follower, on_whole: OnWhole) -> None:
        """Create everything with the arrival pattern of the case."""
        match self.case.how:
            case "burst" | "backlog":
                await self._burst(client, on_whole)
            case "one-by-one":
                await self._one_by_one(client, follower, on_whole)
            case "churn":
                await self._churn(client, follower, on_whole)

    async def _burst(self, client: Client, on_whole: OnWhole) -> None:
        """Create all groups, then their pods in order, with limited concurrency."""
        await in_flight(client.call(group) for group, _ in self._gangs)
        missing = [len(pods) for _, pods in self._gangs]

        async def create(number: int, call: Call) -> None:
            await client.call(call)
            missing[number] -= 1
            if not missing[number]:
                await on_whole(number)

        await in_flight(
            create(number, call) for number, (_, pods) in enumerate(self._gangs) for call in pods
        )

    async def _one_by_one(self, client: Client, follower: Follower, on_whole: OnWhole) -> None:
        bound = 0
        for number, (group, pods) in enumerate(self._gangs):
            await client.call(group)
            await asyncio.sleep(PAUSE_S)  # the PodGroup becomes Inqueue
            for call in pods:
                await client.call(call)
            await on_whole(number)
            bound += len(pods)
            await follower.until_bound(bound, patience_s=30.0)
            await asyncio.sleep(PAUSE_S)

    async def _churn(self, client: Client, follower: Follower, on_whole: OnWhole) -> None:
        """Create gangs at a steady rate; delete each some time after its pods were created."""
        interval_s = self.case.size / self.case.pods_per_s
        began, leaving = time.monotonic(), []
        for number, (group, pods) in enumerate(self._gangs):
            await asyncio.sleep(max(0.0, began + number * interval_s - time.monotonic()))
            await client.call(group)
            await asyncio.gather(*(client.call(call) for call in pods))
            await on_whole(number)
            leaving.append(asyncio.create_task(self._leave(client, group, pods)))
        await asyncio.gather(*leaving)

    async def _leave(self, client: Client, group: Call, pods: list[Call]) -> None:
        await asyncio.sleep(self.case.lasts_s)
        names = [calls.identity_of(call.body or b"").name for call in pods]
        for name in names:
            await client.delete(PODS, name, namespace=NAMESPACE, grace_period_s=0, missing_ok=True)
        name = calls.identity_of(group.body or b"").name
        await client.delete(self._kind, name, namespace=NAMESPACE, missing_ok=True)


def _group_call(case: Case, name: str, system: System) -> Call:
    if case.as_jobs and not system.is_ceiling:
        body = system.jobs.body(case, name, system.scheduler_name)
        return calls.create(system.jobs.kind, body, namespace=NAMESPACE)
    dialect = system.dialect
    return calls.create(dialect.kind, dialect.group(case, name), namespace=NAMESPACE)


def _pod_calls(case: Case, name: str, system: System) -> Iterator[Call]:
    if not case.as_jobs:
        for body in cases.pods(case, name, system.scheduler_name):
            yield calls.create(PODS, system.dialect.mark(body, name), namespace=NAMESPACE)
    elif system.is_ceiling:  # it creates the pods of Jobs directly
        for body in cases.pods_of_job(case, name, system.scheduler_name):
            yield calls.create(PODS, body, namespace=NAMESPACE)


async def in_flight(work: Iterator[Awaitable[Any]]) -> None:
    """Send all requests in order with limited concurrency."""

    async def worker() -> None:
        for one in work:
            await one

    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
