"""The performer: binds and evictions that are sent, undone and backed off."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from hekla.api import core
from hekla.kube.errors import ApiError, Conflict, Forbidden, NotFound, TooManyRequests
from hekla.kube.resources import PODGROUPS
from hekla.scheduler.service.performer import Performer
from hekla.scheduler.service.status_writer import FIRST_S
from hekla.scheduler.state.changes import Change, apply
from hekla.scheduler.state.status import BINDING, PENDING, RELEASING, RUNNING
from hekla.testing import TestCluster, cluster, gang, node
from hekla.units.clock import ManualClock


class FakeClient:
    """An API server with configured rejections."""

    def __init__(self) -> None:
        self.bound: list[str] = []
        self.written: dict[str, Mapping[str, str]] = {}
        self.refuse: dict[str, Exception] = {}
        self.patches: list[tuple[str, Any]] = []
        self.evicted: list[str] = []
        self.deleted: list[str] = []
        self.gone: list[str] = []

    async def bind(
        self, pod: str, node: str, *, namespace: str, uid: str, annotations: Mapping[str, str]
    ) -> None:
        await asyncio.sleep(0)
        if pod in self.refuse:
            raise self.refuse[pod]
        self.bound.append(pod)
        self.written[pod] = annotations

    async def evict(self, pod: str, *, namespace: str, uid: str) -> None:
        await asyncio.sleep(0)
        if pod in self.refuse:
            raise self.refuse[pod]
        self.evicted.append(pod)

    async def find(self, resource: Any, name: str, *, namespace: str) -> str | None:
        return None if name in self.gone else name

    async def delete(self, resource: Any, name: str, **options: Any) -> bool:
        assert options["uid"]
        self.deleted.append(name)
        return True

    async def patch(self, resource: Any, name: str, body: Any, **options: Any) -> None:
        await asyncio.sleep(0)
        if resource is PODGROUPS and name in self.refuse:
            raise self.refuse[name]
        self.patches.append((name, body.get("status", body)))

    async def patch_status(self, resource: Any, name: str, status: Any, **options: Any) -> None:
        await self.patch(resource, name, {"status": status})


class FakeClaims:
    """The claims of a cluster, and their subscribers."""

    def __init__(self, world: TestCluster) -> None:
        self.cluster = world.state
        self.handlers: list[Any] = []

    def add_handler(self, handler: Any) -> None:
        self.handlers.append(handler)

    def get(self, namespace: str, name: str) -> core.PersistentVolumeClaim | None:
        return self.cluster.claims.get((namespace, name))

    def put(self, claim: core.PersistentVolumeClaim) -> None:
        self.cluster.claims[claim.namespace, claim.name] = claim
        for handler in self.handlers:
            handler("MODIFIED", None, claim)


class FakeCache:
    def __init__(self, world: TestCluster) -> None:
        self.cluster = world.state
        self.claims = FakeClaims(world)
        self.informers = {"PersistentVolumeClaim": self.claims}
        self.groups = self
        self.reread: list[str] = []

    def get(self, namespace: str, name: str) -> None:
        return None

    def change(self, change: Change) -> None:
        apply(self.cluster, change)

    def reread_group(self, namespace: str, name: str) -> None:
        self.reread.append(name)


class FakeRecorder:
    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.told: list[tuple[str, str]] = []

    def event(self, about: Any, kind: str, reason: str, message: str) -> None:
        self.reasons.append(reason)
        self.told.append((about.name, message))


class Stage:
    """A given cluster with fakes around it."""

    def __init__(self, world: TestCluster) -> None:
        self.world = world
        self.client = FakeClient()
        self.cache = FakeCache(world)
        self.recorder = FakeRecorder()
        self.clock = ManualClock()
        self.wakes = 0
        self.performer = Performer(
            self.client,  # type: ignore[arg-type]
            self.cache,  # type: ignore[arg-type]
            self.recorder,  # type: ignore[arg-type]
            self.clock,
            self.wake,
        )

    def wake(self) -> None:
        self.wakes += 1

    async def cycle(self) -> None:
        """Decide and perform; the clock advances only while all tasks wait for it."""
        self.performer.start(self.world.run().plan)
        idle = asyncio.create_task(self.performer.idle())
        while not idle.done():
            await self.clock.settle()
            if not idle.done():
                await self.clock.advance_to_next()

    def status_of(self, pod: str) -> int:
        return self.world.state.tasks[f"default-{pod}"].status


async def test_binds_are_assumed_at_once_and_confirmed_by_an_event() -> None:
    stage = Stage(cluster([node("n1", cpu=4)], [gang("a", members=3, cpu=1)]))
    stage.performer.start(stage.world.run().plan)
    assert stage.status_of("a-0") == BINDING, "the next cycle must count with it"
    await stage.performer.idle()
    assert sorted(stage.client.bound) == ["a-0", "a-1", "a-2"]
    assert stage.recorder.reasons.count("Scheduled") == 4  # three pods and their group
    assert stage.performer.stats.bound == 3


SHARING = """\
actions: "allocate"
tiers:
- plugins:
  - {name: gang}
  - {name: predicates}
  - {name: deviceshare, arguments: {deviceshare.GPUSharingEnable: true}}
"""


async def test_devices_are_bound_with_the_pod_and_freed_when_the_bind_fails() -> None:
    gpus = node("n1", cpu=4, extra={"volcano.sh/gpu-number": 1, "volcano.sh/gpu-memory": 10})
    jobs = [gang(name, cpu=1, requests={"volcano.sh/gpu-memory": 6}) for name in ("a", "b")]
    stage = Stage(cluster([gpus], jobs, conf=SHARING))
    stage.client.refuse["a-0"] = Forbidden(403, "Forbidden", "no")
    await stage.cycle()
    assert not stage.world.state.node_table.device_allocations("gpu").now_3nc.any()
    del stage.client.refuse["a-0"]
    await stage.cycle()
    assert stage.client.written["a-0"]["volcano.sh/gpu-index"] == "0"
    assert stage.world.state.node_table.device_allocations("gpu").now_3nc[0].tolist() == [[6]]


async def test_a_failed_bind_stops_the_unsent_binds_of_its_gang() -> None:
    stage = Stage(cluster([node("n1", cpu=400, pods=300)], [gang("a", members=200, cpu=1)]))
    stage.client.refuse["a-0"] = ApiError(500, "InternalError", "no")
    await stage.cycle()
    sent = len(stage.client.bound)
    assert sent < 200
    assert stage.performer.stats.rolled_back == 200 - sent - 1
    assert stage.status_of("a-0") == PENDING
    assert stage.world.state.jobs["default/a"].ready_count == sent
    assert stage.wakes > 0


async def test_a_job_whose_binds_fail_backs_off_and_other_jobs_are_placed() -> None:
    world = cluster([node("n1", cpu=4)], [gang("a", cpu=1), gang("b", cpu=1)])
    stage = Stage(world)
    stage.client.refuse["a-0"] = ApiError(403, "Forbidden", "webhook says no")
    await stage.cycle()
    assert stage.client.bound == ["b-0"]
    assert list(stage.performer.skipped()) == ["default/a"]
    assert stage.performer.next_due_s() == 0.2
    stage.clock.skip(0.3)
    assert stage.performer.skipped() == {}
    await stage.cycle()
    assert stage.performer.next_due_s() == pytest.approx(0.4), "the wait doubles"


async def test_a_back_off_ends_with_its_first_success() -> None:
    stage = Stage(cluster([node("n1", cpu=4)], [gang("a", cpu=1)]))
    stage.client.refuse["a-0"] = Conflict(409, "Conflict", "later")
    await stage.cycle()
    stage.client.refuse.clear()
    stage.clock.skip(1.0)
    await stage.cycle()
    assert stage.client.bound == ["a-0"]
    assert stage.performer.next_due_s() is None


async def test_binding_a_deleted_pod_is_no_failure() -> None:
    stage = Stage(cluster([node("n1", cpu=4)], [gang("a", cpu=1)]))
    stage.client.refuse["a-0"] = NotFound(404, "NotFound", "gone")
    await stage.cycle()
    assert stage.performer.skipped() == {}
    assert stage.status_of("a-0") == PENDING


async def test_the_status_of_a_group_is_written_with_its_conditions() -> None:
    stage = Stage(cluster([node("n1", cpu=1)], [gang("a", members=2, cpu=1)]))
    stage.performer.start(stage.world.run().plan)
    await stage.clock.settle()
    assert {name for name, _ in stage.client.patches} == {"a"}, "pods may be placed in a moment"
    await stage.clock.advance(FIRST_S + 0.1)
    await stage.performer.idle()
    ((_, status),) = [patch for patch in stage.client.patches if patch[0] == "a"]
    assert status["phase"] == "Inqueue"
    assert [c["type"] for c in status["conditions"]] == ["Unschedulable"]
    pods = sorted(name for name, _ in stage.client.patches if name != "a")
    assert pods == ["a-0", "a-1"]


async def test_a_failed_status_write_drops_the_assumed_status() -> None:
    stage = Stage(cluster([node("n1", cpu=4)], [gang("a", members=0, phase="Pending")]))
    stage.client.refuse["a"] = ApiError(500, "InternalError", "no")
    stage.performer.start(stage.world.run().plan)
    await stage.clock.settle()
    await stage.clock.advance(1.0)
    await stage.performer.idle()
    assert stage.cache.reread == ["a"]
    assert stage.performer.status.stats.failures == 1


PREEMPTING = """\
actions: "allocate, preempt"
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: predicates}]
"""


def preempting() -> Stage:
    jobs = [
        gang("v", cpu=1, running_on=["n1"], phase="Running"),
        gang("p", cpu=1, priority_class="high"),
    ]
    return Stage(cluster([node("n1", cpu=1)], jobs, priorities={"high": 9}, conf=PREEMPTING))


def disruption(stage: Stage) -> list[str]:
    return [
        condition["status"]
        for name, status in stage.client.patches
        if name == "v-0"
        for condition in status["conditions"]
        if condition["type"] == "DisruptionTarget"
    ]


async def test_a_victim_is_releasing_as_soon_as_its_eviction_is_sent() -> None:
    stage = preempting()
    stage.performer.start(stage.world.run().plan)
    assert stage.status_of("v-0") == RELEASING
    await stage.performer.idle()
    assert stage.client.evicted == ["v-0"]
    assert disruption(stage) == ["True"], "with the preemptor, which the server does not name"
    assert stage.recorder.reasons.count("Evict") == 2  # the pod and its group
    nominated = [
        status.get("nominatedNodeName") for name, status in stage.client.patches if name == "p-0"
    ]
    assert nominated == ["n1"]
    again = stage.world.run()
    assert again.evictions == []
    assert again.pipelined == {"p-0": "n1"}
    stage.world.state.set_pod(stage.world.pods["default-v-0"])
    assert stage.status_of("v-0") == RELEASING, "an old event does not bring it back"


async def test_one_event_per_job_reports_all_evicted_pods() -> None:
    victim = gang("v", members=3, minimum=1, cpu=1, running_on=["n1"] * 3, phase="Running")
    jobs = [victim, gang("p", members=2, cpu=1, priority_class="high")]
    world = cluster([node("n1", cpu=3)], jobs, priorities={"high": 9}, conf=PREEMPTING)
    stage = Stage(world)
    await stage.cycle()
    assert len(stage.client.evicted) == 2
    told = [text for name, text in stage.recorder.told if name == "v"]
    assert told[-1] == (
        "evicted 2 pods by preempt for job default/p: its priority 9 is above 0 of job default/v"
    )
    assert sum("evicted" in text for text in told) == 1
    of_preemptor = [text for name, text in stage.recorder.told if name == "p"]
    rule = "preempt: its priority 9 is above 0 of job default/v"
    assert f"evicts 2 pods (v-1, v-2) of job default/v ({rule})" in of_preemptor


async def test_without_the_eviction_api_the_pod_is_deleted() -> None:
    stage = preempting()
    stage.client.refuse["v-0"] = Forbidden(403, "Forbidden", "no pods/eviction for you")
    await stage.cycle()
    assert stage.client.deleted == ["v-0"]
    assert disruption(stage) == ["True"]
    assert stage.performer.stats.evicted == 1


async def test_a_missing_eviction_api_differs_from_a_missing_pod() -> None:
    for is_gone in (False, True):
        stage = preempting()
        stage.client.refuse["v-0"] = NotFound(404, "NotFound", "which of the two?")
        stage.client.gone = ["v-0"] if is_gone else []
        await stage.cycle()
        assert stage.client.deleted == ([] if is_gone else ["v-0"])
        assert stage.performer.stats.evict_failures == 0


async def test_a_refused_eviction_is_undone_and_not_retried_at_once() -> None:
    """A disruption budget rejects the eviction: the victim is excluded for a while."""
    stage = preempting()
    stage.client.refuse["v-0"] = TooManyRequests(429, "TooManyRequests", "budget")
    stage.performer.start(stage.world.run().plan)
    await stage.clock.settle()
    assert stage.status_of("v-0") == RUNNING
    assert stage.client.deleted == []
    assert disruption(stage) == []
    assert stage.world.run().evictions == []
    await stage.clock.advance(0.3)
    await stage.performer.idle()
    assert stage.world.run().evictions == ["v-0"]
    assert stage.wakes >= 2
