"""A client that floods, and one that does not: counted, never timed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.apiserver.authn import ANONYMOUS, User
from hekla.apiserver.server import ApiServer, Config
from hekla.apiserver.turns import Bounds, Client, Turns
from hekla.kube import kubeconfig
from hekla.kube.client import Client as KubeClient
from hekla.kube.errors import TooManyRequests
from hekla.kube.resources import CONFIGMAPS, LEASES, PODS
from hekla.kube.retries import RetryPolicy
from tests.apiserver.objects import config_map

FLOOD = 120
BOUNDS = Bounds(seats=4, seats_each=3, waiting=200, waiting_each=150, streams=3, streams_each=2)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer(Config(data_dir=tmp_path / "data", bounds=BOUNDS)) as running:
        yield running


def program(server: ApiServer, name: str, **more: Any) -> KubeClient:
    config = kubeconfig.load(server.kubeconfig)
    return KubeClient(config, component=name, max_connections=400, **more)


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not what():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)


def slowly(server: ApiServer, turns: asyncio.Semaphore, served: list[str]) -> None:
    """Every creation is worked on until the test lets one more through."""
    create = server.resources.create

    async def held(kind: Any, namespace: str, obj: Any, *more: Any) -> Any:
        who = obj["metadata"]["name"].partition("-")[0]
        if who not in ("flood", "polite"):
            return await create(kind, namespace, obj, *more)
        await turns.acquire()
        served.append(who)
        return await create(kind, namespace, obj, *more)

    server.resources.create = held  # type: ignore[method-assign]


async def test_a_polite_client_is_served_in_turn_while_another_floods(server: ApiServer) -> None:
    turns, served = asyncio.Semaphore(0), list[str]()
    slowly(server, turns, served)
    async with program(server, "flood") as flood, program(server, "polite") as polite:
        many = [
            asyncio.create_task(flood.create(CONFIGMAPS, config_map(f"flood-{n}")))
            for n in range(FLOOD)
        ]
        await until(lambda: server.turns.waiting == FLOOD - BOUNDS.seats_each)
        assert server.turns.taken == BOUNDS.seats_each, "one client never has all seats"

        async def ask() -> None:
            for number in range(10):
                await polite.create(CONFIGMAPS, config_map(f"polite-{number}"))

        asking = asyncio.create_task(ask())
        while not asking.done():
            turns.release()
            await asyncio.sleep(0.001)
        await asking
        before = served[: len(served) - served[::-1].index("polite")]
        gaps = "".join("p" if each == "polite" else "f" for each in before).split("p")
        assert max(map(len, gaps)) <= 2 * BOUNDS.seats + 2, gaps
        assert before.count("flood") < FLOOD / 2
        for _ in many:
            turns.release()
        await asyncio.gather(*many)
    await until(lambda: (server.turns.taken, server.turns.waiting) == (0, 0))


async def test_too_many_requests_are_answered_429_and_when_to_come_again(
    server: ApiServer,
) -> None:
    turns, served = asyncio.Semaphore(0), list[str]()
    slowly(server, turns, served)
    once = RetryPolicy(attempts=1)
    async with program(server, "flood", retry=once) as flood:
        total = BOUNDS.seats_each + BOUNDS.waiting_each + 20
        many = [
            asyncio.create_task(flood.create(CONFIGMAPS, config_map(f"flood-{n}")))
            for n in range(total)
        ]
        await until(lambda: server.turns.refused == 20)
        async with program(server, "lease") as leader:
            lease = {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "me"}}
            await leader.create(LEASES, lease, namespace="default")
        for _ in many:
            turns.release()
        results = await asyncio.gather(*many, return_exceptions=True)
    refused = [each for each in results if isinstance(each, TooManyRequests)]
    assert len(refused) == 20
    assert refused[0].retry_after_s == 1
    assert refused[0].reason == "TooManyRequests"
    assert sum(isinstance(each, dict) for each in results) == total - 20


async def test_watches_have_bounds_of_their_own_and_hold_no_seat(server: ApiServer) -> None:
    once = RetryPolicy(attempts=1)
    async with program(server, "watcher", retry=once) as client:
        async with client.watch(PODS), client.watch(PODS):
            assert (server.turns.streams, server.turns.taken) == (2, 0)
            with pytest.raises(TooManyRequests):
                async with client.watch(PODS) as events:
                    await anext(events)
            async with program(server, "polite") as other, other.watch(PODS):
                assert server.turns.streams == 3
        await until(lambda: not server.turns.streams)
        async with client.watch(PODS):
            assert server.turns.streams == 1


async def test_the_clusters_own_parts_never_wait(server: ApiServer) -> None:
    turns, served = asyncio.Semaphore(0), list[str]()
    config = kubeconfig.load(server.kubeconfig)
    async with (
        program(server, "flood") as flood,
        program(server, "polite") as more,
        KubeClient(config, component="scheduler", dial=server.dial) as scheduler,
    ):
        slowly(server, turns, served)
        many = [
            asyncio.create_task(each.create(CONFIGMAPS, config_map(f"flood-{n}-{i}")))
            for i, each in enumerate((flood, more))
            for n in range(20)
        ]
        await until(lambda: server.turns.taken == BOUNDS.seats)
        assert (await scheduler.list(PODS)).items == []
        for _ in many:
            turns.release()
        await asyncio.gather(*many)


def test_who_is_who() -> None:
    bob = User("bob")
    assert Turns.client(bob, "kubectl", "1.2.3.4") == Turns.client(bob, "kubectl", "5.6.7.8")
    one, other = (Turns.client(ANONYMOUS, "x", at) for at in ("1.2.3.4", "5.6.7.8"))
    assert one != other
    names = {Turns.client(bob, f"made-up-{n}", "1.2.3.4") for n in range(1000)}
    assert len(names) == 16, "inventing names gains little"


async def test_the_seat_of_a_request_that_was_given_up_goes_to_the_next() -> None:
    turns = Turns(Bounds(seats=1, seats_each=1))
    a, b = ("a", 0), ("b", 0)
    assert turns.take(a)
    waiting = [asyncio.create_task(turns.wait(each)) for each in (b, a)]
    await asyncio.sleep(0)
    turns.leave(a)
    waiting[0].cancel()  # it has its seat, and does not know yet
    await asyncio.sleep(0)
    await asyncio.gather(*waiting, return_exceptions=True)
    assert waiting[1].done()
    assert not waiting[1].cancelled()
    turns.leave(a)
    assert (turns.taken, turns.waiting) == (0, 0)


moves = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["ask", "end", "drop"])))


@given(moves)
def test_seats_are_never_lost_nor_given_twice(given: list[tuple[str, str]]) -> None:
    bounds = Bounds(seats=2, seats_each=2, waiting=4, waiting_each=3)
    asyncio.run(_play(Turns(bounds), bounds, given))


async def _play(turns: Turns, bounds: Bounds, given: list[tuple[str, str]]) -> None:
    seated: Counter[Client] = Counter()
    waiting: list[tuple[Client, asyncio.Task[None]]] = []

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
            if turns.take(client):
                seated[client] += 1
            else:
                waiting.append((client, asyncio.create_task(turns.wait(client))))
        elif move == "end" and seated[client]:
            seated[client] -= 1
            turns.leave(client)
        elif move == "drop" and waiting:
            waiting[0][1].cancel()
        await settle()
        assert turns.taken == seated.total() <= bounds.seats
        assert turns.waiting == len(waiting) <= bounds.waiting
        if turns.taken < bounds.seats:
            assert not waiting, "a free seat and somebody who waits for it"
    for _, task in waiting:
        task.cancel()
    await settle()
    assert turns.waiting == 0
