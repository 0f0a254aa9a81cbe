"""Two schedulers and one lease: a scheduler without the lease sends and loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hekla.kube.calls import Call
from hekla.kube.client import Client
from hekla.kube.errors import ConnectionLost, Fenced
from hekla.kube.leases import LeaderElector, LeadershipLost
from hekla.kube.resources import LEASES, NODES, PODS
from hekla.units.clock import ManualClock

from .world import PATIENCE_S, Faulty, Send, Turning, World


class Candidate:
    """A replica: its lease client, its fenced client, its scheduler."""

    def __init__(self, world: World, name: str, clock: ManualClock) -> None:
        self.world = world
        self.asking = Faulty(world.target, component=f"{name}-lease")
        self.elector = LeaderElector(self.asking, "volcano", name, namespace="default", clock=clock)
        self.client = Faulty(world.target, fence=lambda: self.elector.is_leader)
        self.scheduler = Turning(self.client)
        self.task = asyncio.create_task(self.elector.run(self.scheduler.run))

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.asking.close()
        await self.client.close()


@pytest.fixture
async def candidates(world: World) -> Any:
    made: list[Candidate] = []

    def candidate(name: str, clock: ManualClock) -> Candidate:
        made.append(Candidate(world, name, clock))
        return made[-1]

    yield candidate
    for each in made:
        await each.stop()


async def leads(world: World, name: str) -> None:
    def is_held(leases: dict[str, Any]) -> bool:
        return bool(leases) and leases["volcano"]["spec"].get("holderIdentity") == name

    await world.until(LEASES, is_held)


async def advance_until(clock: ManualClock, condition: Callable[[], bool]) -> None:
    """Advance the clock in small steps until the condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await clock.advance(0.5)
            await asyncio.sleep(0.005)


async def test_a_leader_that_cannot_renew_stops_writing_before_another_leads(
    world: World, candidates: Any
) -> None:
    clock = ManualClock()
    first = candidates("first", clock)
    await leads(world, "first")
    await world.node("n1", 4)
    await world.gang("a", 1)
    await world.bound("a-0")
    second = candidates("second", clock)

    async def cut_off(call: Call, send: Send) -> bytes:
        raise ConnectionLost("the cable is out")

    first.asking.fault = cut_off  # only its lease: its watches continue, and it could write
    await advance_until(clock, lambda: not first.elector.is_leader)
    async with asyncio.timeout(PATIENCE_S):  # the clock stands still
        await asyncio.wait([first.task])
    with pytest.raises(LeadershipLost):
        first.task.result()
    with pytest.raises(Fenced):
        await first.client.patch(NODES, "n1", {"metadata": {"labels": {"a": "b"}}})
    assert not second.elector.is_leader, "nobody may lead before the lease has run out"
    taking = asyncio.create_task(leads(world, "second"))
    await advance_until(clock, taking.done)
    await taking
    await world.gang("b", 1)
    await world.bound("a-0", "b-0")
    assert second.client.binds() == ["b-0"], "what was bound before is left alone"
    assert first.client.binds() == ["a-0"]


async def test_unsent_binds_are_dropped_when_the_lease_is_lost(
    world: World, candidates: Any
) -> None:
    """A slow server holds a retried write; by then the lease is over, and the retry is refused."""
    clock = ManualClock()
    first = candidates("first", clock)
    await leads(world, "first")
    held, go = asyncio.Event(), asyncio.Event()

    async def hold_binds(call: Call, send: Send) -> bytes:
        if call.path.endswith("/binding"):
            held.set()
            await go.wait()
        return await send(call)

    first.client.fault = hold_binds
    await world.node("n1", 4)
    await world.gang("a", 1)
    async with asyncio.timeout(PATIENCE_S):
        await held.wait()
    clock.skip(60)  # the whole machine was suspended
    go.set()
    await first.scheduler.turns(lambda: first.scheduler._performer.stats.bind_failures)
    pod = await world.client.get(PODS, "a-0", namespace="default")
    assert not pod["spec"].get("nodeName")


async def test_a_leader_that_stops_releases_the_lease_at_once(
    world: World, candidates: Any
) -> None:
    clock = ManualClock()
    first = candidates("first", clock)
    await world.node("n1", 4)
    await world.gang("a", 1)
    await world.bound("a-0")
    await first.stop()
    lease = await world.client.get(LEASES, "volcano", namespace="default")
    assert lease["spec"]["holderIdentity"] == ""
    candidates("second", clock)
    await leads(world, "second")


async def test_no_decision_before_everything_was_seen(world: World) -> None:
    """Nodes are listed last: until then existing pods are not evaluated."""
    await world.node("n1", 4)
    await world.gang("a", 1)
    go = asyncio.Event()
    client: Client = await world.connect()
    pages = client.pages

    async def late(resource: Any, **options: Any) -> Any:
        if resource.kind == "Node":
            await go.wait()
        async for page in pages(resource, **options):
            yield page

    client.pages = late  # type: ignore[method-assign]
    scheduler = await world.scheduler(client)
    async with asyncio.timeout(PATIENCE_S):
        await scheduler._cache.pods.synced()
        await scheduler._cache.groups.synced()
    assert scheduler.cycles == 0
    assert scheduler.not_ready_reason().startswith("not seen yet: Node")
    go.set()
    await world.bound("a-0")
    assert scheduler.not_ready_reason() == ""
