"""Leader election: at most one leader, with any network fault."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, Conflict, ConnectionLost
from hekla.kube.leases import LeaderElector, LeadershipLost
from hekla.kube.resources import LEASES
from hekla.units.clock import ManualClock
from tests.kube.fake_server import FakeServer


class SkewedClock:
    """The same monotonic time with another time of day."""

    def __init__(self, clock: ManualClock, skew_s: float) -> None:
        self._clock = clock
        self._skew_s = skew_s

    def now(self) -> float:
        return self._clock.now() + self._skew_s

    def monotonic(self) -> float:
        return self._clock.monotonic() + 1000.0

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


class LeaseServer:
    """A lease behind a network with latencies and losses."""

    def __init__(self, clock: ManualClock, shared: dict[str, Any] | None = None) -> None:
        self.clock = clock
        self.shared: dict[str, Any] = {"version": 0} if shared is None else shared
        self.faults: list[tuple[float, float, bool]] = []
        self.is_down = False

    @property
    def lease(self) -> Any:
        return self.shared.get("lease")

    @lease.setter
    def lease(self, lease: dict[str, Any]) -> None:
        self.shared["lease"] = lease

    def link(self, faults: list[tuple[float, float, bool]]) -> LeaseServer:
        """The same lease through another network link."""
        other = LeaseServer(self.clock, self.shared)
        other.faults = list(faults)
        return other

    async def _travel(self) -> tuple[float, bool]:
        there_s, back_s, lost = self.faults.pop(0) if self.faults else (0.0, 0.0, False)
        await self.clock.sleep(there_s)
        if self.is_down:
            raise ConnectionLost("down")
        return back_s, lost

    async def _return(self, back_s: float, lost: bool, answer: Any) -> Any:
        await self.clock.sleep(back_s)
        if lost:
            raise ConnectionLost("the answer was lost")
        return answer

    async def find(self, resource: Any, name: str, *, namespace: str | None = None) -> Any:
        back = await self._travel()
        return await self._return(*back, self.lease)

    async def create(self, resource: Any, body: Any, *, namespace: str | None = None) -> Any:
        back = await self._travel()
        if self.lease is not None:
            raise AlreadyExists(409, "AlreadyExists")
        return await self._return(*back, self._store(body))

    async def replace(self, resource: Any, body: Any, *, namespace: str | None = None) -> Any:
        back = await self._travel()
        assert self.lease is not None
        wanted = body["metadata"]["resourceVersion"]
        if wanted != self.lease["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict")
        return await self._return(*back, self._store(body))

    def _store(self, body: dict[str, Any]) -> dict[str, Any]:
        self.shared["version"] += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.shared["version"])}
        self.lease = {**body, "metadata": metadata}
        return self.lease


@pytest.fixture
def leases(clock: ManualClock) -> LeaseServer:
    return LeaseServer(clock)


def candidate(server: Any, identity: str, clock: Any, **options: Any) -> LeaderElector:
    return LeaderElector(
        server, "scheduler", identity, namespace="sys", clock=clock, random=Random(1), **options
    )


async def test_first_candidate_creates_the_lease_and_leads(leases: Any, clock: ManualClock) -> None:
    elector = candidate(leases, "a", clock)
    await elector.acquire()
    assert elector.is_leader
    spec = leases.lease["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("a", 15)
    assert spec["leaseTransitions"] == 0


async def test_a_second_candidate_waits_the_whole_duration_then_takes_over(
    leases: Any, clock: ManualClock
) -> None:
    await candidate(leases, "dead", clock).acquire()
    heir = candidate(leases, "heir", clock)
    taking = asyncio.create_task(heir.acquire())
    await clock.advance(14.9)
    assert not taking.done()
    await clock.advance(5)
    await taking
    assert heir.is_leader
    assert heir.term == 1


async def test_clock_skew_does_not_matter(leases: Any, clock: ManualClock) -> None:
    await candidate(leases, "ahead", SkewedClock(clock, 3600.0)).acquire()
    behind = candidate(leases, "behind", SkewedClock(clock, -3600.0))
    taking = asyncio.create_task(behind.acquire())
    await clock.advance(14.9)
    assert not taking.done()
    await clock.advance(5)
    await taking


async def test_leader_that_renews_stays_leader(leases: Any, clock: ManualClock) -> None:
    leader, other = candidate(leases, "a", clock), candidate(leases, "b", clock)
    running = asyncio.create_task(leader.run(asyncio.Event().wait))
    await clock.settle()
    waiting = asyncio.create_task(other.acquire())
    await clock.advance(120)
    assert leader.is_leader
    assert not waiting.done()
    assert leases.lease["spec"]["leaseTransitions"] == 0
    for task in (waiting, running):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_released_lease_is_acquired_without_waiting(leases: Any, clock: ManualClock) -> None:
    stop = asyncio.Event()
    leader = candidate(leases, "a", clock)
    running = asyncio.create_task(leader.run(stop.wait))
    await clock.settle()
    stop.set()
    await running
    assert leases.lease["spec"]["holderIdentity"] == ""
    assert not leader.is_leader
    await candidate(leases, "b", clock).acquire()
    assert leases.lease["spec"]["leaseTransitions"] == 1


async def test_disconnected_leader_stops_before_another_starts(
    leases: Any, clock: ManualClock
) -> None:
    lost_at: list[float] = []
    stopped = []

    async def lead() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(clock.monotonic())

    leader = candidate(leases, "a", clock, on_lost=lambda: lost_at.append(clock.monotonic()))
    running = asyncio.create_task(leader.run(lead))
    await clock.settle()
    leases.is_down = True
    await clock.advance(11)
    with pytest.raises(LeadershipLost, match="a is no longer the leader"):
        await running
    assert len(lost_at) == 1
    assert stopped[0] <= 10.0


async def test_leader_with_hanging_requests_stops(leases: Any, clock: ManualClock) -> None:
    leader = candidate(leases, "a", clock)
    running = asyncio.create_task(leader.run(asyncio.Event().wait))
    await clock.settle()
    leases.faults = [(1000.0, 0.0, False)] * 10
    await clock.advance(10)
    with pytest.raises(LeadershipLost):
        await running


async def test_leader_that_lost_the_lease_notices_at_the_next_renewal(
    leases: Any, clock: ManualClock
) -> None:
    leader = candidate(leases, "a", clock)
    running = asyncio.create_task(leader.run(asyncio.Event().wait))
    await clock.settle()
    leases._store({**leases.lease, "spec": {**leases.lease["spec"], "holderIdentity": "b"}})
    await clock.advance(2.1)
    with pytest.raises(LeadershipLost, match="last seen leader: b"):
        await running
    assert leases.lease["spec"]["holderIdentity"] == "b"


async def test_error_of_the_leader_is_raised_and_the_lease_released(
    leases: Any, clock: ManualClock
) -> None:
    async def lead() -> None:
        raise RuntimeError("bug")

    with pytest.raises(RuntimeError, match="bug"):
        await candidate(leases, "a", clock).run(lead)
    assert leases.lease["spec"]["holderIdentity"] == ""


async def test_late_response_does_not_make_a_leader(leases: Any, clock: ManualClock) -> None:
    elector = candidate(leases, "a", clock)
    leases.faults = [(0.0, 0.0, False), (0.0, 9.9, False)]
    acquiring = asyncio.create_task(elector.acquire())
    await clock.advance(9.95)
    await acquiring
    await clock.advance(0.1)
    assert not elector.is_leader


async def test_unknown_fields_of_a_lease_are_kept(leases: Any, clock: ManualClock) -> None:
    leases.lease = {
        "metadata": {"name": "scheduler", "resourceVersion": "0", "labels": {"x": "y"}},
        "spec": {"strategy": "OldestEmulationVersion"},
    }
    await candidate(leases, "a", clock).acquire()
    assert leases.lease["metadata"]["labels"] == {"x": "y"}
    assert leases.lease["spec"]["strategy"] == "OldestEmulationVersion"


async def test_durations_that_could_overlap_are_refused(leases: Any, clock: ManualClock) -> None:
    with pytest.raises(ValueError, match="lease_duration_s >"):
        candidate(leases, "a", clock, renew_deadline_s=20.0)


async def test_works_with_the_real_client(
    client: Client, server: FakeServer, clock: ManualClock
) -> None:
    elector = candidate(client, "a", clock)
    await elector.acquire()
    stored = await client.get(LEASES, "scheduler", namespace="sys")
    assert stored["spec"]["holderIdentity"] == "a"
    await elector.release()
    stored = await client.get(LEASES, "scheduler", namespace="sys")
    assert stored["spec"]["holderIdentity"] == ""


SECONDS = st.one_of(st.just(0.0), st.floats(0.0, 20.0))
FAULTS = st.lists(st.tuples(SECONDS, SECONDS, st.booleans()), max_size=30)
CANDIDATES = st.lists(st.tuples(FAULTS, st.floats(-1e5, 1e5)), min_size=2, max_size=3)


async def never_two(candidates: list[tuple[Any, float]]) -> int:
    clock = ManualClock()
    server = LeaseServer(clock)
    at_work: set[str] = set()
    terms: list[str] = []

    async def campaign(elector: LeaderElector) -> None:
        async def lead() -> None:
            at_work.add(elector.identity)
            terms.append(elector.identity)
            try:
                await asyncio.Event().wait()
            finally:
                at_work.discard(elector.identity)

        while True:
            with contextlib.suppress(LeadershipLost):
                await elector.run(lead)

    electors = [
        candidate(server.link(faults), f"c{number}", SkewedClock(clock, skew))
        for number, (faults, skew) in enumerate(candidates)
    ]
    tasks = [asyncio.create_task(campaign(elector)) for elector in electors]
    try:
        # At least 150 s; longer if faults (30 of at most 20 s) have prevented a leader so far.
        for step in range(1300):
            if step >= 300 and terms:
                break
            await clock.advance(0.5)
            assert len(at_work) <= 1, f"two at work: {at_work}"
            leaders = [elector.identity for elector in electors if elector.is_leader]
            assert len(leaders) <= 1, f"two lead: {leaders}"
    finally:
        for task in tasks:
            task.cancel()
        while not all(task.done() for task in tasks):
            await clock.advance(1)  # they release the lease over their slow links
    return len(terms)


@settings(max_examples=60, deadline=None)
@given(CANDIDATES)
def test_two_candidates_never_lead_at_once(candidates: list[tuple[Any, float]]) -> None:
    assert asyncio.run(never_two(candidates)) >= 1


def test_law_detects_a_leader_that_stays_too_long(monkeypatch: Any) -> None:
    original = LeaderElector.__init__

    def stubborn(self: LeaderElector, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        self._renew_deadline_s = 60.0

    monkeypatch.setattr(LeaderElector, "__init__", stubborn)
    cut_off = [(0.0, 0.0, False)] * 2 + [(19.0, 0.0, True)] * 40
    with pytest.raises(AssertionError, match="two"):
        asyncio.run(never_two([(cut_off, 0.0), ([], 0.0)]))
