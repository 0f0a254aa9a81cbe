"""The status writer: few workers, one write per object, the latest state only."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from hekla.api.meta import ObjectMeta, OwnerReference
from hekla.api.scheduling import PodGroup, PodGroupSpec, PodGroupStatus
from hekla.api.wellknown import JOB_ALLOCATED_HYPERNODE
from hekla.kube.errors import NotFound, ServerError
from hekla.scheduler.framework.plan import Event, SetGroupStatus, SetPodCondition, SetQueueStatus
from hekla.scheduler.service.status_writer import (
    FIRST_S,
    PACE_S,
    TURN_S,
    LatestWins,
    StatusWriter,
    backoff_s,
)
from hekla.scheduler.service.write_priority import WritePriority
from hekla.scheduler.state.changes import Change, Due, GroupWritten, QueueWritten
from hekla.scheduler.state.model import Queue
from hekla.testing import cluster, node, pod
from hekla.units.clock import ManualClock


class Tasks:
    def __init__(self) -> None:
        self.running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    async def idle(self) -> None:
        while self.running:
            await asyncio.wait(self.running)


async def test_only_the_latest_state_is_kept_during_a_write() -> None:
    tasks, go = Tasks(), asyncio.Event()
    written: list[str] = []
    at_once = most = 0

    async def write(state: str) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        written.append(state)
        await go.wait()
        at_once -= 1

    writer = LatestWins(write, 2, tasks.spawn, ManualClock())
    writer.put("a", "a1")
    await asyncio.sleep(0)
    for state in ("a2", "a3"):
        writer.put("a", state)
    for key in ("b", "c", "d"):
        writer.put(key, f"{key}1")
    writer.drop("c")
    await asyncio.sleep(0)
    assert written == ["a1", "b1"], "never two of one object, never more than the workers"
    go.set()
    await tasks.idle()
    assert sorted(written) == ["a1", "a3", "b1", "d1"]
    assert most == 2


class Server:
    def __init__(self) -> None:
        self.answers: list[Exception | None] = []
        self.bodies: list[Any] = []
        self.names: list[str] = []
        self.notes: list[dict[str, str | None] | None] = []

    async def patch(self, resource: Any, name: str, body: Any, **more: Any) -> None:
        self.notes.append(body.get("metadata", {}).get("annotations"))
        await self.patch_status(resource, name, body["status"])

    async def patch_status(self, resource: Any, name: str, body: Any, **more: Any) -> None:
        self.bodies.append(body)
        self.names.append(name)
        error = self.answers.pop(0) if self.answers else None
        if error is not None:
            raise error


class Groups:
    """The stored phase of every group."""

    def __init__(self, phase: str) -> None:
        self.phase = phase
        self.special: dict[str, PodGroup] = {}

    def get(self, namespace: str, name: str) -> PodGroup:
        if name in self.special:
            return self.special[name]
        return PodGroup(status=PodGroupStatus(phase=self.phase))


class State:
    """What a writer sees of the cache."""

    def __init__(self) -> None:
        self.cluster = cluster([node("n1")], []).state
        self.changes: list[Change] = []
        self.groups = Groups("")

    @property
    def queue(self) -> Queue:
        return self.cluster.queues["default"]

    def change(self, change: Change) -> None:
        self.changes.append(change)
        if isinstance(change, QueueWritten):
            self.queue.allocated_written = change.allocated


class Burst(WritePriority):
    """Continuous binds while it is on."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.is_on = False
        self._clock = clock

    async def rest(self, most_s: float) -> None:
        if self.is_on:
            await self._clock.sleep(most_s)


class Desk:
    def __init__(self) -> None:
        self.server, self.state, self.tasks = Server(), State(), Tasks()
        self.clock = ManualClock()
        self.wakes = 0
        self.write_priority = Burst(self.clock)
        self.told: list[Event] = []
        self.writer = StatusWriter(
            self.server,  # type: ignore[arg-type]
            self.state,  # type: ignore[arg-type]
            self.clock,
            self.wake,
            self.tasks.spawn,
            self.told.append,
            self.write_priority,
        )

    def wake(self) -> None:
        self.wakes += 1

    def write(self, **amounts: str) -> None:
        self.writer.set_queue(SetQueueStatus("default", amounts))

    def wait(self, why: str, *, nominated: str = "") -> None:
        """Return a pending pod, optionally nominated."""
        effect = SetPodCondition("default", "p", "u", "Unschedulable", why, nominated)
        self.writer.set_pod(effect)

    def reasons(self) -> list[str]:
        return [body["conditions"][0]["message"] for body in self.server.bodies]


async def test_unused_resources_are_removed_from_queue_status_after_failures() -> None:
    desk = Desk()
    desk.state.queue.allocated_written = {"cpu": "4", "gpu": "1"}
    desk.server.answers = [ServerError(500, "InternalError", "no")]
    desk.write(cpu="2")
    await desk.clock.settle()
    assert desk.state.queue.allocated_written == {"cpu": "4", "gpu": "1"}, "taken back"
    desk.write(memory="1Gi")
    await desk.clock.settle()
    assert desk.server.bodies[-1] == {"allocated": {"cpu": None, "gpu": None, "memory": "1Gi"}}


async def test_a_failed_write_is_due_again_after_a_pause_that_grows() -> None:
    desk = Desk()
    desk.server.answers = [ServerError(500, "InternalError", "no")] * 2
    for pause_s in (0.2, 0.4):
        desk.write(cpu="2")
        await desk.clock.settle()
        wakes = desk.wakes
        await desk.clock.advance(pause_s - 0.05)
        assert desk.wakes == wakes
        await desk.clock.advance(0.1)
        assert desk.wakes == wakes + 1
        assert desk.state.changes[-1] == Due(queues=("default",))
    assert desk.writer.stats.failures == 2


async def test_a_briefly_pending_pod_gets_no_condition() -> None:
    desk = Desk()
    desk.wait("its gang is coming in")
    desk.writer.is_placed("u")
    await desk.clock.advance(PACE_S)
    assert desk.reasons() == []


async def test_pod_conditions_are_written_at_most_once_a_second() -> None:
    desk = Desk()
    for number in range(30):
        desk.wait(f"reason {number}")
        await desk.clock.advance(0.1)
    await desk.clock.advance(PACE_S)
    assert desk.reasons() == ["reason 4", "reason 14", "reason 24", "reason 29"]


async def test_conditions_of_many_pending_pods_are_delayed() -> None:
    desk = Desk()
    for number in range(1000):
        effect = SetPodCondition("default", f"p{number}", f"u{number}", "Unschedulable", "why", "")
        desk.writer.set_pod(effect)
    await desk.clock.advance(FIRST_S + 0.1)
    assert 1 <= len(desk.reasons()) <= 50
    for number in range(500, 1000):
        desk.writer.is_placed(f"u{number}")
    await desk.clock.advance(10.0)
    assert len(desk.reasons()) == 500


async def test_a_nomination_is_written_at_once() -> None:
    desk = Desk()
    desk.state.cluster.set_pod(pod("p", cpu=1))
    desk.state.cluster.tasks["u"] = desk.state.cluster.tasks.pop("default-p")
    desk.wait("no room")
    desk.wait("room is being made", nominated="n1")
    await desk.clock.settle()
    assert desk.reasons() == ["room is being made"]


async def test_the_status_of_a_deleted_object_is_not_written_again() -> None:
    desk = Desk()
    desk.server.answers = [NotFound(404, "NotFound", "gone")]
    desk.write(cpu="2")
    await desk.tasks.idle()
    assert desk.writer.stats.failures == 0
    assert desk.wakes == 0


def test_pauses_double_up_to_a_minute() -> None:
    assert [backoff_s(n) for n in (1, 2, 3)] == [0.2, 0.4, 0.8]
    assert backoff_s(500) == 60.0


async def test_a_queue_status_is_written_at_most_once_a_second() -> None:
    desk = Desk()
    for amount in range(1, 7):
        desk.write(cpu=str(amount))
        await desk.clock.advance(0.25)
    await desk.clock.advance(1.0)
    assert [body["allocated"]["cpu"] for body in desk.server.bodies] == ["1", "4", "6"]


def group_status(phase: str, running: int = 0) -> SetGroupStatus:
    return SetGroupStatus("default", "a", "u", phase, running, 0, 0, ())


@pytest.mark.parametrize(
    ("domain", "want"),
    [
        pytest.param("r1", {JOB_ALLOCATED_HYPERNODE: "r1"}, id="it is in a rack"),
        pytest.param("", {JOB_ALLOCATED_HYPERNODE: None}, id="it is all over the cluster"),
        pytest.param(None, None, id="that is no news"),
    ],
)
async def test_the_hypernode_of_a_gang_is_written_with_its_status(
    domain: str | None, want: object
) -> None:
    desk = Desk()
    desk.writer.set_group(replace(group_status("Running"), domain=domain))
    await desk.clock.settle()
    assert desk.server.notes == [want], "in one request"
    assert desk.state.changes == [GroupWritten("default/a", "Running", (0, 0, 0), domain)]


def group_event(message: str) -> Event:
    return Event("PodGroup", "default", "a", "u", "Warning", "Unschedulable", message)


async def test_a_phase_is_written_at_once_and_counts_are_delayed() -> None:
    desk = Desk()
    desk.state.groups = Groups("Pending")
    desk.writer.set_group(group_status("Inqueue"))
    await desk.clock.settle()
    desk.state.groups.phase = "Inqueue"
    for running in (1, 2, 3):
        desk.writer.set_group(group_status("Inqueue", running))
        desk.writer.emit(group_event(f"{running} run"))
        await desk.clock.settle()
    assert [body["phase"] for body in desk.server.bodies] == ["Inqueue"]
    assert desk.told == [], "nobody hears of what the status does not say"
    await desk.clock.advance(1.0)
    assert [body["running"] for body in desk.server.bodies] == [0, 3]
    assert [event.message for event in desk.told] == ["3 run"]


async def test_a_new_phase_is_written_before_delayed_counts() -> None:
    desk = Desk()
    desk.state.groups = Groups("Inqueue")
    for phase, running in (("Inqueue", 0), ("Inqueue", 1), ("Running", 2)):
        desk.writer.set_group(group_status(phase, running))
        await desk.clock.settle()
    assert [body["running"] for body in desk.server.bodies] == [0, 2]
    await desk.clock.advance(5.0)
    assert len(desk.server.bodies) == 2, "what was overtaken is never sent"


async def test_an_event_without_a_status_write_is_emitted_at_once() -> None:
    desk = Desk()
    desk.writer.emit(group_event("no queue"))
    assert [event.message for event in desk.told] == ["no queue"]


def let_in(number: int, *, is_owned: bool = False) -> tuple[SetGroupStatus, PodGroup]:
    """Return a group that becomes Inqueue."""
    owners = (OwnerReference(kind="Job", name="j", controller=True),) if is_owned else ()
    meta = ObjectMeta(name=f"g{number}", namespace="default", owner_references=owners)
    group = PodGroup(metadata=meta, spec=PodGroupSpec(min_member=1))
    return replace(group_status("Inqueue"), group=f"g{number}"), group


async def test_most_inqueue_writes_are_skipped_while_binds_are_sent() -> None:
    desk = Desk()
    desk.write_priority.is_on = True
    for number in range(1000):
        desk.writer.set_group(let_in(number)[0])
    await desk.clock.advance(10 * TURN_S)
    assert 1 <= len(desk.server.bodies) <= 40, "binds go first"
    desk.server.bodies.clear()
    for number in range(500, 1000):
        desk.writer.set_group(replace(group_status("Running"), group=f"g{number}"))
    desk.write_priority.is_on = False
    await desk.clock.advance(10 * TURN_S)
    phases = [body["phase"] for body in desk.server.bodies]
    assert phases.count("Running") == 500, "and none of these said that it was let in"


async def test_inqueue_is_written_at_once_for_a_job_that_creates_pods_then() -> None:
    desk = Desk()
    desk.write_priority.is_on = True
    for number in range(100):
        effect, group = let_in(number, is_owned=number == 99)
        desk.state.groups.special = {group.metadata.name: group} if number == 99 else {}
        desk.writer.set_group(effect)
    await desk.clock.settle()
    assert desk.server.names == ["g99"]


async def test_a_newer_state_is_written_after_the_write_in_flight() -> None:
    tasks, go = Tasks(), asyncio.Event()
    written: list[str] = []

    async def write(state: str) -> None:
        written.append(state)
        await go.wait()

    async def at_once() -> None:
        return

    writer = LatestWins(write, 2, tasks.spawn, ManualClock(), at_once)
    writer.put("a", "urgent", is_urgent=True)
    await asyncio.sleep(0)
    writer.put("a", "later")
    await asyncio.sleep(0)
    assert written == ["urgent"]
    go.set()
    await tasks.idle()
    assert written == ["urgent", "later"]
    assert len(writer) == 0
