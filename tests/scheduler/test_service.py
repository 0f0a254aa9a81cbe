"""The scheduler against the embedded API server: real watches, real binds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from hekla.api import wellknown
from hekla.api.scheduler_state import SchedulerState
from hekla.kube.errors import AlreadyExists
from hekla.kube.resources import (
    CONFIGMAPS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODGROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
)
from hekla.scheduler import Plugin
from hekla.scheduler.plugins.discovery import discover
from hekla.scheduler.state.changes import Put
from hekla.units.clock import ManualClock
from hekla.units.objects import Object

from .world import PATIENCE_S, Objects, World, pod

CONFIG = wellknown.SCHEDULER_CONFIG_MAP
SYSTEM = wellknown.SYSTEM_NAMESPACE
WITHOUT_SHARES = """\
actions: "enqueue, allocate"
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: nodeorder}]
"""


async def configure(world: World, text: str) -> None:
    with contextlib.suppress(AlreadyExists):
        await world.client.create(NAMESPACES, {"metadata": {"name": SYSTEM}})
    data = {wellknown.SCHEDULER_CONFIG_KEY: text}
    body: dict[str, Any] = {"metadata": {"name": CONFIG, "namespace": SYSTEM}, "data": data}
    try:
        await world.client.create(CONFIGMAPS, body)
    except AlreadyExists:
        await world.client.patch(CONFIGMAPS, CONFIG, {"data": data}, namespace=SYSTEM)


def in_phase(group: str, phase: str) -> Callable[[Objects], bool]:
    return lambda groups: (groups[group].get("status") or {}).get("phase") == phase


async def test_a_pending_gang_has_a_reason_and_is_bound_whole_when_a_node_is_added(
    world: World,
) -> None:
    await world.scheduler()
    await world.node("n1", 1)
    await world.gang("train", 2)
    await world.condition("train", "1/2 tasks fit")
    assert await world.bound_nodes() == {}

    def told(pods: Objects) -> list[Any]:
        said = pods["train-0"]["status"].get("conditions", [])
        return [c for c in said if c["type"] == "PodScheduled"]

    (condition,) = await world.until(PODS, told)
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    await world.node("n2", 1)
    places = await world.bound("train-0", "train-1")
    assert sorted(places.values()) == ["n1", "n2"]


async def test_pods_may_arrive_before_their_podgroup(world: World) -> None:
    await world.scheduler()
    await world.node("n1", 4)
    await world.pods("late", 2)
    await world.gang("early", 1)
    await world.bound("early-0")
    await world.group("late", 2)
    await world.bound("early-0", "late-0", "late-1")


async def test_a_podgroup_is_enqueued_by_min_resources_before_it_has_pods(
    world: World,
) -> None:
    await world.scheduler()
    await world.node("n1", 4)
    await world.group("empty", 2, minResources={"cpu": "2"})
    await world.until(PODGROUPS, in_phase("empty", "Inqueue"))


async def test_a_podgroup_whose_pods_are_all_deleted_is_enqueued_again(world: World) -> None:
    """A controller waits for this before it creates the pods again; nothing else changes."""
    await world.scheduler()
    await world.node("n1", 4)
    await world.gang("again", 2, minResources={"cpu": "2"})
    await world.bound("again-0", "again-1")
    await world.until(PODGROUPS, in_phase("again", "Running"))
    await asyncio.gather(world.remove("again-0"), world.remove("again-1"))
    await world.until(PODGROUPS, in_phase("again", "Inqueue"))


async def test_a_new_configuration_is_in_force_from_the_next_cycle(world: World) -> None:
    scheduler = await world.scheduler()
    await configure(world, 'actions: "enqueue"\n')
    await scheduler.turns(lambda: scheduler.config.actions == ("enqueue",))


async def test_a_wrong_configuration_is_refused_with_its_line_and_the_last_good_one_stays(
    world: World, caplog: Any
) -> None:
    scheduler = await world.scheduler()
    await configure(world, 'actions: "enqueue"\n')
    await scheduler.turns(lambda: scheduler.config.actions == ("enqueue",))
    await configure(world, 'tiers: []\nactions: "nonsense"\n')
    await scheduler.turns(lambda: "is refused, the last valid one stays: line 2" in caplog.text)
    assert scheduler.config.actions == ("enqueue",)

    def refusal(events: Objects) -> Object | None:
        about = (each for each in events.values() if each["involvedObject"]["name"] == CONFIG)
        return next((each for each in about if each["reason"] == "InvalidConfiguration"), None)

    event = await world.until(EVENTS, refusal)
    assert event is not None
    assert event["type"] == "Warning"
    assert event["message"].startswith("refused, the last valid configuration stays in force: line")

    def recorded(config_maps: Objects) -> SchedulerState | None:
        data = (config_maps.get("hekla-scheduler-state") or {}).get("data") or {}
        state = msgspec.json.decode(data.get("volcano", "null"), type=SchedulerState | None)
        return state if state is not None and state.refused else None

    state = await world.until(CONFIGMAPS, recorded)
    assert state is not None
    assert state.source == f"ConfigMap {SYSTEM}/{CONFIG}"
    assert "enqueue" in state.configuration
    assert "nonsense" not in state.configuration
    assert "line 2" in state.refused
    await world.client.delete(CONFIGMAPS, CONFIG, namespace=SYSTEM)
    await scheduler.turns(lambda: "backfill" in scheduler.config.actions)


class Broken(Plugin, name="broken"):
    """A filter that raises."""

    def predicate(self, task: Any, nodes: Any) -> Any:
        raise ValueError("no such rack: r17")


async def test_a_plugin_that_raises_is_recorded_with_its_error_and_count(world: World) -> None:
    registry = discover()
    registry.add(Broken)
    scheduler = await world.scheduler(registry=registry)
    await configure(
        world, 'actions: "enqueue, allocate"\ntiers:\n- plugins: [{name: gang}, {name: broken}]\n'
    )
    await world.node("n1", 1)
    await world.gang("a", 1)
    await world.bound("a-0")
    (failed,) = scheduler.state().failed_plugins
    assert (failed.plugin, failed.hook, failed.times) == ("broken", "predicate", 1)
    assert failed.error == "ValueError: no such rack: r17"
    first, *_, last = failed.traceback.splitlines()
    assert first.endswith("in predicate")
    assert last.strip() == 'raise ValueError("no such rack: r17")'
    await configure(world, 'actions: "allocate"\ntiers:\n- plugins: [{name: gang}]\n')
    await world.gang("b", 2)
    await world.until(PODGROUPS, lambda groups: "conditions" in groups["b"].get("status", {}))
    assert not scheduler.state().failed_plugins, "the plugin is not in force any more"


async def test_a_configuration_file_wins_over_the_config_map_and_is_read_again(
    world: World, tmp_path: Path
) -> None:
    await configure(world, 'actions: "enqueue"\n')
    path = tmp_path / "volcano-scheduler.conf"
    path.write_text('actions: "allocate"\n')
    scheduler = await world.scheduler(conf=path)
    await scheduler.turns(lambda: scheduler.config.actions == ("allocate",))
    path.write_text('actions: "enqueue, allocate"\n')
    await scheduler.turns(lambda: scheduler.config.actions == ("enqueue", "allocate"))
    path.unlink()
    path.mkdir()  # not a configuration file
    await world.node("n1", 1)
    await world.gang("a", 1)
    await world.bound("a-0")
    assert scheduler.config.actions == ("enqueue", "allocate")


async def test_heartbeats_of_nodes_change_nothing(world: World) -> None:
    scheduler = await world.scheduler()
    await world.node("n1", 4)
    await world.gang("quick", 1)
    await world.bound("quick-0")
    heard = asyncio.Event()

    def on_node(event: str, old: Any, new: Any) -> None:
        if new is not None and any(c.reason == "last" for c in new.status.conditions):
            heard.set()

    scheduler._cache.informers["Node"].add_handler(on_node)
    journal = scheduler._cache.journal = []
    for reason in ("first", "last"):
        condition = {"type": "DiskPressure", "status": "False", "reason": reason}
        await world.client.patch_status(NODES, "n1", {"conditions": [condition]})
    async with asyncio.timeout(PATIENCE_S):
        await heard.wait()
    assert not [change for change in journal if isinstance(change, Put) and change.kind == "Node"]


async def test_schedulers_of_different_names_share_a_cluster_by_node_labels(world: World) -> None:
    """Each sees only its nodes; pods of the other scheduler there count as used."""
    await configure(world, WITHOUT_SHARES)
    await world.scheduler(names=["red", "crimson"], node_selector=(("pool", "red"),))
    await world.scheduler(names=["blue"], node_selector=(("pool", "blue"), ("pool", "shared")))
    await world.node("blue-1", 2, pool="blue")
    await world.node("red-1", 2, pool="red")
    await world.node("grey-1", 8)
    for name, chosen in (("a", "red"), ("b", "crimson"), ("c", "blue")):
        await world.group(name, 1)
        await world.pods(name, 1, schedulerName=chosen)
    places = await world.bound("a-0", "b-0", "c-0")
    assert places == {"a-0": "red-1", "b-0": "red-1", "c-0": "blue-1"}
    await world.foreign("guest", "blue-1", "1")
    await world.group("d", 1)
    await world.pods("d", 1, schedulerName="blue")
    await world.condition("d", "0/1 nodes are available: 1 Insufficient cpu")
    await world.client.patch(NODES, "grey-1", {"metadata": {"labels": {"pool": "shared"}}})
    places = await world.bound("a-0", "b-0", "c-0", "d-0")
    assert places["d-0"] == "grey-1"


async def test_a_scheduler_writes_no_status_of_another_schedulers_jobs(world: World) -> None:
    """Two schedulers that both explain a pending job would overwrite each other for ever."""
    other = await world.connect()
    await world.scheduler(other, names=["second"])
    await world.scheduler()
    await world.node("n1", 1)
    await world.pods("a", 2)
    await world.group("a", 2)
    await world.condition("a", "1/2 tasks fit")
    await world.group("theirs", 1)
    await world.pods("theirs", 1, schedulerName="second")
    await world.bound("theirs-0")
    await world.condition("a", "held by default/theirs")
    assert [call for call in other.sent if "podgroups/a" in call] == []


async def test_a_node_that_loses_the_selector_label_is_dropped(world: World) -> None:
    await configure(world, WITHOUT_SHARES)
    scheduler = await world.scheduler(node_selector=(("pool", "red"),))
    await world.node("n1", 2, pool="red")
    await world.gang("a", 1)
    await world.bound("a-0")
    await world.client.patch(NODES, "n1", {"metadata": {"labels": {"pool": None}}})
    await world.gang("b", 1)
    await world.condition("b", "0/1 tasks fit")
    assert [n.name for n in scheduler.cluster.node_table.node_list] == []


async def test_queue_status_shows_allocated_until_the_last_job_is_deleted(
    world: World,
) -> None:
    await world.scheduler()
    await world.node("n1", 4)
    await world.gang("a", 2)
    await world.bound("a-0", "a-1")

    def allocated(want_cpu: str | None) -> Any:
        def check(queues: Objects) -> bool:
            amounts = (queues["default"].get("status") or {}).get("allocated") or {}
            return amounts.get("cpu") == want_cpu

        return check

    await world.until(QUEUES, allocated("2"))
    await world.client.delete(PODGROUPS, "a", namespace="default")
    await world.remove("a-0", "a-1")
    await world.until(QUEUES, allocated(None))


async def test_the_root_and_default_queues_are_created(world: World) -> None:
    await world.scheduler(default_queue="house")
    await world.until(QUEUES, lambda queues: {"root", "house"} <= set(queues))
    await world.node("n1", 1)
    await world.group("a", 1, queue="house")
    await world.client.create(PODS, pod("a-0", group="a"))
    await world.bound("a-0")


async def test_the_start_of_the_scheduler_counts_as_rescheduling(world: World) -> None:
    clock = ManualClock()
    scheduler = await world.scheduler(clock=clock)
    await world.node("n1", 1)
    await scheduler.turns(lambda: scheduler.cluster.rescheduled_at)
    assert scheduler.cluster.rescheduled_at == clock.now()


PREEMPTING = """\
actions: "enqueue, allocate, preempt"
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: predicates}]
"""


async def test_a_victim_has_the_preemptor_in_its_condition(world: World) -> None:
    """Not only the reason of the eviction API, which names no preemptor."""
    await configure(world, PREEMPTING)
    await world.scheduler()
    high = {"metadata": {"name": "high"}, "value": 100}
    await world.client.create(PRIORITY_CLASSES, high)
    await world.node("n1", cpu=1)
    await world.gang("low", 1)
    await world.until(PODS, lambda pods: pods["low-0"]["spec"].get("nodeName"))
    running = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    await world.client.patch_status(PODS, "low-0", running, namespace="default")
    await world.gang("urgent", 1, priorityClassName="high")

    def disruption(pods: Objects) -> Object | None:
        conditions = pods["low-0"]["status"].get("conditions") or ()
        for condition in conditions:
            if condition["type"] == "DisruptionTarget":
                is_ours = condition["reason"] == "PreemptionByScheduler"
                return condition if is_ours else None
        return None

    condition = await world.until(PODS, disruption)
    assert condition is not None
    assert condition["message"] == (
        "evicted by preempt for job default/urgent: its priority 100 is above 0 of job default/low"
    )
