"""The scheduler under faults: lost responses, refusals, other writers, restarts."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tools.kube.processes import free_port

from hekla.apiserver.server import ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.calls import Call
from hekla.kube.client import Client
from hekla.kube.errors import ConnectionLost, ServerError, Timeout
from hekla.kube.resources import NODES, PODGROUPS, PODS, PRIORITY_CLASSES, QUEUES
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.framework.registry import Registry
from hekla.scheduler.plugins import builtin
from hekla.scheduler.service import performer as effects
from hekla.units.clock import SystemClock

from .test_service import configure
from .world import PATIENCE_S, Objects, Send, World


def is_bound(name: str, pods: Objects) -> Any:
    return pods[name]["spec"].get("nodeName")


def is_bind(call: Call, *pods: str) -> bool:
    return call.path.endswith("/binding") and any(f"/{pod}/" in call.path for pod in pods)


async def test_a_bind_with_a_lost_response_is_confirmed_and_not_sent_again(world: World) -> None:
    """Undoing it would free resources that are in use: the next gang would be bound there too."""
    client = await world.connect()

    async def lose_answers(call: Call, send: Send) -> bytes:
        answer = await send(call)
        if is_bind(call, "a-0"):
            raise ConnectionLost("the answer was lost")
        return answer

    client.fault = lose_answers
    scheduler = await world.scheduler(client)
    await world.node("n1", 1)
    await world.gang("a", 1)
    await world.bound("a-0")
    await world.gang("b", 1)
    await world.condition("b", "held by default/a")
    assert client.binds() == ["a-0"]
    assert scheduler._performer.stats.bound == 1


async def test_a_bind_that_never_arrived_is_undone_and_retried(world: World) -> None:
    client = await world.connect()
    lost = 0

    async def lose_first(call: Call, send: Send) -> bytes:
        nonlocal lost
        if is_bind(call, "a-1") and not lost:
            lost += 1
            raise Timeout("no answer")
        return await send(call)

    client.fault = lose_first
    await world.scheduler(client)
    await world.node("n1", 2)
    await world.gang("a", 2)
    await world.bound("a-0", "a-1")
    assert client.binds().count("a-1") == 2


async def test_a_pod_that_is_always_refused_does_not_delay_others(world: World) -> None:
    client = await world.connect()

    async def refuse(call: Call, send: Send) -> bytes:
        if is_bind(call, "doomed-0"):
            raise ServerError(500, "InternalError", "a webhook says no")
        return await send(call)

    client.fault = refuse
    scheduler = await world.scheduler(client)
    await world.node("n1", 4)
    await world.gang("doomed", 1)
    await world.condition("doomed", "binding failed (ServerError 500)")
    for name in ("b", "c"):
        await world.gang(name, 1)
        await world.until(PODS, partial(is_bound, f"{name}-0"))
    assert "default/doomed" in scheduler._performer._backoffs


async def test_failed_status_writes_are_retried(world: World) -> None:
    client = await world.connect()
    failed: set[str] = set()

    async def fail_each_first(call: Call, send: Send) -> bytes:
        is_status = call.method == "PATCH" and "/events" not in call.path
        if is_status and call.path not in failed:
            failed.add(call.path)
            raise ServerError(503, "ServiceUnavailable", "later")
        return await send(call)

    client.fault = fail_each_first
    await world.scheduler(client)
    await world.node("n1", 1)
    await world.gang("a", 1)
    await world.gang("b", 2)
    await world.condition("b", "held by default/a")

    def told(pods: Objects) -> bool:
        said = pods["b-0"]["status"].get("conditions") or []
        return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in said)

    await world.until(PODS, told)
    await world.until(
        QUEUES, lambda q: ((q["default"].get("status") or {}).get("allocated") or {}).get("cpu")
    )
    assert any("podgroups/b" in path for path in failed)
    assert any("pods/b-0" in path for path in failed)
    assert any("queues/default" in path for path in failed)


async def test_a_pod_bound_by_another_scheduler_stays_on_that_node(world: World) -> None:
    """Our bind gets 409; the assumed resources are idle again."""
    client = await world.connect()
    held, go = asyncio.Event(), asyncio.Event()

    async def hold(call: Call, send: Send) -> bytes:
        if is_bind(call, "a-0"):
            held.set()
            await go.wait()
        return await send(call)

    client.fault = hold
    await world.scheduler(client)
    await world.node("n1", 1)
    await world.gang("a", 1)
    async with asyncio.timeout(PATIENCE_S):
        await held.wait()
    await world.node("n2", 1)
    pod = await world.client.get(PODS, "a-0", namespace="default")
    uid = pod["metadata"]["uid"]
    await world.client.bind("a-0", "n2", namespace="default", uid=uid)
    go.set()
    await world.gang("b", 1)
    assert await world.bound("a-0", "b-0") == {"a-0": "n2", "b-0": "n1"}


async def test_releasing_resources_are_used_once_their_pods_are_gone(
    world: World,
) -> None:
    await world.scheduler()
    await world.node("n1", 2)
    await world.foreign("guest", "n1", "2")
    await world.gang("a", 2)
    await world.condition("a", "0/2 tasks fit")
    await world.remove("guest")
    await world.bound("a-0", "a-1")


class Thinker(Plugin, name="thinker"):
    """A plugin that blocks until it is released."""

    begun = threading.Event()
    go = threading.Event()

    def open(self, session: Any) -> None:
        type(self).begun.set()
        assert type(self).go.wait(600)


@pytest.fixture
def thinker() -> Iterator[type[Thinker]]:
    Thinker.begun.clear()
    Thinker.go.set()
    yield Thinker
    Thinker.go.set()


def registry_with(*plugins: type[Plugin]) -> Registry:
    registry = builtin()
    for plugin in plugins:
        registry.add(plugin)
    return registry


THINKING = """\
actions: "enqueue, allocate"
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: thinker}]
"""


async def begin_to_think(world: World, thinker: type[Thinker], gang: str, members: int) -> Any:
    """A scheduler in the middle of a cycle that has seen the gang."""
    await configure(world, THINKING)
    scheduler = await world.scheduler(registry=registry_with(thinker))
    await scheduler.turns(lambda: scheduler.config.tiers[0][-1].plugin is thinker)
    await world.gang(gang, members)
    await scheduler.turns(lambda: f"default/{gang}" in scheduler.verdicts)
    thinker.go.clear()
    thinker.begun.clear()
    await world.node("n1", members)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.to_thread(thinker.begun.wait, PATIENCE_S)
    return scheduler


async def test_watch_events_during_a_cycle_are_applied_after_it(
    world: World, thinker: type[Thinker]
) -> None:
    scheduler = await begin_to_think(world, thinker, "a", 1)
    await world.node("n2", 1)
    seen = asyncio.Event()
    scheduler._cache.informers["Node"].add_handler(
        lambda event, old, new: seen.set() if new is not None and new.name == "n2" else None
    )
    async with asyncio.timeout(PATIENCE_S):
        await seen.wait()
    assert "n2" not in scheduler.cluster.nodes
    assert scheduler.unhealthy_reason() == ""
    asked = asyncio.create_task(scheduler.render_metrics())
    thinker.go.set()
    await world.bound("a-0")
    await scheduler.turns(lambda: "n2" in scheduler.cluster.nodes)
    assert b"volcano_unschedule_job_count" in await asked


async def test_changes_during_a_cycle_are_applied_even_if_its_plan_fails(
    world: World, thinker: type[Thinker], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = await begin_to_think(world, thinker, "a", 1)
    real, failed = scheduler._performer.start, asyncio.Event()

    def start(plan: Any) -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("once")
        real(plan)

    monkeypatch.setattr(scheduler._performer, "start", start)
    seen = asyncio.Event()
    scheduler._cache.informers["Node"].add_handler(
        lambda event, old, new: seen.set() if new is not None and new.name == "n2" else None
    )
    await world.node("n2", 1)
    async with asyncio.timeout(PATIENCE_S):
        await seen.wait()
    assert "n2" not in scheduler.cluster.nodes
    thinker.go.set()
    async with asyncio.timeout(PATIENCE_S):
        await failed.wait()
    await scheduler.turns(lambda: "n2" in scheduler.cluster.nodes)
    await world.bound("a-0")


async def test_a_gang_is_not_bound_to_a_node_deleted_during_the_cycle(
    world: World, thinker: type[Thinker]
) -> None:
    scheduler = await begin_to_think(world, thinker, "a", 2)
    gone = asyncio.Event()
    scheduler._cache.informers["Node"].add_handler(
        lambda event, old, new: gone.set() if new is None else None
    )
    await world.client.delete(NODES, "n1")
    async with asyncio.timeout(PATIENCE_S):
        await gone.wait()
    cycles = scheduler.cycles
    thinker.go.set()
    await scheduler.turns(
        lambda: scheduler.cycles > cycles and not scheduler.cluster.node_table.node_list
    )
    await world.condition("a", "0/2 tasks fit")
    assert await world.bound_nodes() == {}
    await world.node("n3", 2)
    assert set((await world.bound("a-0", "a-1")).values()) == {"n3"}


class Jumping(SystemClock):
    """A wall clock that is set."""

    offset_s = 0.0

    def now(self) -> float:
        return super().now() + self.offset_s


async def test_a_clock_that_is_set_changes_no_decision(world: World) -> None:
    clock = Jumping()
    await world.scheduler(clock=clock)
    await world.node("n1", 3)
    for number, offset_s in enumerate((0.0, 86_400.0, -86_400.0)):
        clock.offset_s = offset_s
        await world.gang(f"g{number}", 1)
        name = f"g{number}-0"
        await world.until(PODS, partial(is_bound, name))


async def test_watches_resume_after_a_server_restart(tmp_path: Path) -> None:
    """Its watch cache is lost: watches get 410, everything is listed again, nothing is lost."""
    data = tmp_path / "server"
    async with contextlib.AsyncExitStack() as stack:
        port = free_port()
        async with ApiServer(Config(data_dir=data, port=port)) as server:
            target = kubeconfig.load(server.kubeconfig)
            world = World(stack, target, await stack.enter_async_context(Client(target)))
            scheduler = await world.scheduler()
            await world.node("n1", 2)
            await world.gang("a", 1)
            await world.bound("a-0")
        async with ApiServer(Config(data_dir=data, port=port)):
            await world.gang("b", 1)
            await world.bound("a-0", "b-0")
            await stack.aclose()
    assert scheduler._cache.pods.stats.watches > 1


PREEMPTING = """\
actions: "enqueue, allocate, preempt"
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: predicates}]
"""


async def test_a_preemptor_is_nominated_and_bound_once_the_victim_is_gone(
    world: World,
) -> None:
    await configure(world, PREEMPTING)
    await world.client.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 9})
    await world.scheduler()
    await world.node("n1", 1)
    await world.gang("low", 1)
    await world.bound("low-0")
    await world.client.patch_status(PODS, "low-0", {"phase": "Running"}, namespace="default")
    await world.group("top", 1, priorityClassName="high")
    await world.pods("top", 1, priorityClassName="high")
    await world.until(PODS, lambda pods: pods["low-0"]["metadata"].get("deletionTimestamp"))
    await world.until(PODS, lambda pods: pods["top-0"]["status"].get("nominatedNodeName") == "n1")
    await world.remove("low-0")
    await world.bound("top-0")


async def test_no_cycle_starts_while_too_many_binds_are_unsent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects, "MAX_BACKLOG", 3)
    monkeypatch.setattr(effects, "MAX_BINDS_IN_FLIGHT", 2)
    client = await world.connect()
    go = asyncio.Event()
    in_flight = most = 0

    async def slow(call: Call, send: Send) -> bytes:
        nonlocal in_flight, most
        if not call.path.endswith("/binding"):
            return await send(call)
        in_flight += 1
        most = max(most, in_flight)
        await go.wait()
        in_flight -= 1
        return await send(call)

    client.fault = slow
    await world.node("n1", 20)
    await world.gang("a", 8)
    scheduler = await world.scheduler(client)
    await scheduler.turns(lambda: scheduler._performer.unsent > 3)
    cycles = scheduler.cycles
    await world.gang("b", 1)
    await world.until(PODGROUPS, lambda groups: "b" in groups)
    assert scheduler.cycles <= cycles + 1
    assert not scheduler._performer._has_capacity.is_set()
    go.set()
    await world.bound(*(f"a-{i}" for i in range(8)), "b-0")
    assert most == 2
