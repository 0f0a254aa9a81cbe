"""Flow control: counted, never timed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.waiting import until_async

from hekla.apiserver.auth.authenticator import ANONYMOUS, User
from hekla.apiserver.flowcontrol import Flow, FlowControl, Limits
from hekla.apiserver.server import ApiServer, Config
from hekla.kube import kubeconfig
from hekla.kube.client import Client as KubeClient
from hekla.kube.errors import TooManyRequests
from hekla.kube.resources import CONFIGMAPS, LEASES, PODS
from hekla.kube.retries import RetryPolicy
from tests.apiserver.objects import config_map

FLOOD = 120
LIMITS = Limits(
    seats=4, seats_per_flow=3, queued=200, queued_per_flow=150, streams=3, streams_per_flow=2
)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer(Config(data_dir=tmp_path / "data", limits=LIMITS)) as running:
        yield running


def program(server: ApiServer, name: str, **more: Any) -> KubeClient:
    config = kubeconfig.load(server.kubeconfig)
    return KubeClient(config, component=name, max_connections=400, **more)


def hold_creations(server: ApiServer, permits: asyncio.Semaphore, served: list[str]) -> None:
    """Hold each creation until the test releases a permit."""
    create = server.resources.create

    async def held(kind: Any, namespace: str, obj: Any, *more: Any) -> Any:
        who = obj["metadata"]["name"].partition("-")[0]
        if who not in ("flood", "polite"):
            return await create(kind, namespace, obj, *more)
        await permits.acquire()
        served.append(who)
        return await create(kind, namespace, obj, *more)

    resources: Any = server.resources
    resources.create = held


async def test_other_flows_are_served_while_one_flow_floods(server: ApiServer) -> None:
    permits, served = asyncio.Semaphore(0), list[str]()
    hold_creations(server, permits, served)
    async with program(server, "flood") as flood, program(server, "polite") as polite:
        many = [
            asyncio.create_task(flood.create(CONFIGMAPS, config_map(f"flood-{n}")))
            for n in range(FLOOD)
        ]
        await until_async(lambda: server.flowcontrol.queued == FLOOD - LIMITS.seats_per_flow)
        assert server.flowcontrol.executing == LIMITS.seats_per_flow, "one flow never has all seats"

        async def ask() -> None:
            for number in range(10):
                await polite.create(CONFIGMAPS, config_map(f"polite-{number}"))

        asking = asyncio.create_task(ask())
        while not asking.done():
            permits.release()
            await asyncio.sleep(0.001)
        await asking
        before = served[: len(served) - served[::-1].index("polite")]
        gaps = "".join("p" if each == "polite" else "f" for each in before).split("p")
        assert max(map(len, gaps)) <= 2 * LIMITS.seats + 2, gaps
        assert before.count("flood") < FLOOD / 2
        for _ in many:
            permits.release()
        await asyncio.gather(*many)
    await until_async(lambda: (server.flowcontrol.executing, server.flowcontrol.queued) == (0, 0))


async def test_request_beyond_the_queue_limit_gets_429_with_retry_after(
    server: ApiServer,
) -> None:
    permits, served = asyncio.Semaphore(0), list[str]()
    hold_creations(server, permits, served)
    once = RetryPolicy(attempts=1)
    async with program(server, "flood", retry=once) as flood:
        total = LIMITS.seats_per_flow + LIMITS.queued_per_flow + 20
        many = [
            asyncio.create_task(flood.create(CONFIGMAPS, config_map(f"flood-{n}")))
            for n in range(total)
        ]
        await until_async(lambda: server.flowcontrol.rejected == 20)
        async with program(server, "lease") as leader:
            lease = {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "me"}}
            await leader.create(LEASES, lease, namespace="default")
        for _ in many:
            permits.release()
        results = await asyncio.gather(*many, return_exceptions=True)
    refused = [each for each in results if isinstance(each, TooManyRequests)]
    assert len(refused) == 20
    assert refused[0].retry_after_s == 1
    assert refused[0].reason == "TooManyRequests"
    assert sum(isinstance(each, dict) for each in results) == total - 20


async def test_watches_have_separate_limits_and_occupy_no_seat(server: ApiServer) -> None:
    once = RetryPolicy(attempts=1)
    async with program(server, "watcher", retry=once) as client:
        async with client.watch(PODS), client.watch(PODS):
            assert (server.flowcontrol.streams, server.flowcontrol.executing) == (2, 0)
            with pytest.raises(TooManyRequests):
                async with client.watch(PODS) as events:
                    await anext(events)
            async with program(server, "polite") as other, other.watch(PODS):
                assert server.flowcontrol.streams == 3
        await until_async(lambda: not server.flowcontrol.streams)
        async with client.watch(PODS):
            assert server.flowcontrol.streams == 1


async def test_in_process_components_bypass_flow_control(server: ApiServer) -> None:
    permits, served = asyncio.Semaphore(0), list[str]()
    config = kubeconfig.load(server.kubeconfig)
    async with (
        program(server, "flood") as flood,
        program(server, "polite") as more,
        KubeClient(config, component="scheduler", dial=server.dial) as scheduler,
    ):
        hold_creations(server, permits, served)
        many = [
            asyncio.create_task(each.create(CONFIGMAPS, config_map(f"flood-{n}-{i}")))
            for i, each in enumerate((flood, more))
            for n in range(20)
        ]
        await until_async(lambda: server.flowcontrol.executing == LIMITS.seats)
        assert (await scheduler.list(PODS)).items == []
        for _ in many:
            permits.release()
        await asyncio.gather(*many)


def test_flow_is_user_and_user_agent_bucket() -> None:
    bob = User("bob")
    assert FlowControl.flow(bob, "kubectl", "1.2.3.4") == FlowControl.flow(
        bob, "kubectl", "5.6.7.8"
    )
    one, other = (FlowControl.flow(ANONYMOUS, "x", at) for at in ("1.2.3.4", "5.6.7.8"))
    assert one != other
    names = {FlowControl.flow(bob, f"made-up-{n}", "1.2.3.4") for n in range(1000)}
    assert len(names) == 16, "user agents share 16 buckets"


async def test_seat_of_a_cancelled_request_goes_to_the_next() -> None:
    control = FlowControl(Limits(seats=1, seats_per_flow=1))
    a, b = ("a", 0), ("b", 0)
    assert control.try_acquire(a)
    waiting = [asyncio.create_task(control.wait(each)) for each in (b, a)]
    await asyncio.sleep(0)
    control.release(a)
    waiting[0].cancel()  # the seat is assigned, but the task has not run yet
    await asyncio.sleep(0)
    await asyncio.gather(*waiting, return_exceptions=True)
    assert waiting[1].done()
    assert not waiting[1].cancelled()
    control.release(a)
    assert (control.executing, control.queued) == (0, 0)


moves = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["ask", "end", "drop"])))


@given(moves)
def test_seats_are_neither_lost_nor_assigned_twice(given: list[tuple[str, str]]) -> None:
    limits = Limits(seats=2, seats_per_flow=2, queued=4, queued_per_flow=3)
    asyncio.run(_play(FlowControl(limits), limits, given))


async def _play(control: FlowControl, limits: Limits, given: list[tuple[str, str]]) -> None:
    seated: Counter[Flow] = Counter()
    waiting: list[tuple[Flow, asyncio.Task[None]]] = []

    async def settle() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for client, task in [each for each in waiting if each[1].done()]:
            waiting.remove((client, task))
            if not task.cancelled():
                failure = task.exception()
                assert failure is None or getattr(failure, "code", 0) == 429
                seated[client] += failure is None

    for name, move in given:
        client = (name, 0)
        if move == "ask":
            if control.try_acquire(client):
                seated[client] += 1
            else:
                waiting.append((client, asyncio.create_task(control.wait(client))))
        elif move == "end" and seated[client]:
            seated[client] -= 1
            control.release(client)
        elif move == "drop" and waiting:
            waiting[0][1].cancel()
        await settle()
        assert control.executing == seated.total() <= limits.seats
        assert control.queued == len(waiting) <= limits.queued
        if control.executing < limits.seats:
            assert not waiting, "a seat is free while a request waits"
    for _, task in waiting:
        task.cancel()
    await settle()
    assert control.queued == 0
