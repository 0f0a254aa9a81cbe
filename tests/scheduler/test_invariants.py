"""The invariants of a plan: no generated plan breaks one, and each breach is detected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.scheduler.core import decide
from hekla.scheduler.framework import config
from hekla.scheduler.framework.plan import Bind, Evict, Plan
from hekla.scheduler.invariants import LAWS, Breach, breaches
from hekla.scheduler.service import scheduler as service
from hekla.scheduler.service.decision_log import DecisionLog
from hekla.testing import TestCluster, cluster, gang, node, queue

from .test_laws import RECLAIMING, worlds
from .world import World


def laws_broken(world: TestCluster, plan: Plan) -> list[str]:
    world.state.refresh()
    return [breach.law for breach in breaches(world.state, world.config, plan)]


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_no_plan_of_a_generated_cluster_breaks_a_law(world: TestCluster) -> None:
    assert laws_broken(world, world.run().plan) == []


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_plan_with_evictions_breaks_a_law(data: st.DataObject) -> None:
    draw = data.draw
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    names = [f"n{i}" for i in range(len(sizes))]
    running = [
        gang(
            f"run{i}",
            members=len(places),
            minimum=draw(st.integers(1, len(places))),
            cpu=1,
            queue=draw(st.sampled_from(["q1", "q2"])),
            priority_class=draw(st.sampled_from(["low", "high"])),
            running_on=places,
            phase="Running",
        )
        for i, places in enumerate(
            draw(st.lists(st.lists(st.sampled_from(names), min_size=1, max_size=4), max_size=4))
        )
    ]
    pending = [
        gang(f"new{i}", members=draw(st.integers(1, 3)), cpu=1, queue="q2", priority_class="high")
        for i in range(draw(st.integers(1, 3)))
    ]
    guarantee = {"cpu": draw(st.integers(0, 3))}
    world = cluster(
        [node(name, cpu=size) for name, size in zip(names, sizes, strict=True)],
        [*running, *pending],
        queues=[queue("q1", guarantee=guarantee), queue("q2")],
        conf=RECLAIMING,
        priorities={"low": 1, "high": 100},
    )
    assert laws_broken(world, world.run().plan) == []


def bind(world: TestCluster, pod: str, to: str) -> Bind:
    task = world.state.tasks[f"default-{pod}"]
    assert task.job is not None
    return Bind("default", pod, task.uid, to, task.job.key)


def full_node() -> TestCluster:
    running = gang("old", cpu=1, running_on=["n1"], phase="Running", queue="q1")
    queues = [queue("q1", capability={"cpu": 1}, guarantee={"cpu": 1})]
    jobs = [running, gang("new", members=2, cpu=1, queue="q1")]
    return cluster([node("n1", cpu=1), node("n2", cpu=4)], jobs, queues=queues)


def evict(reason: str) -> Evict:
    return Evict("default", "old-0", "default-old-0", "n1", reason, "default/old")


BROKEN: dict[str, Callable[[TestCluster], list[Any]]] = {
    "overcommit": lambda world: [bind(world, "new-0", "n1"), bind(world, "new-1", "n1")],
    "gang": lambda world: [bind(world, "new-0", "n2")],
    "capability": lambda world: [bind(world, "new-0", "n2"), bind(world, "new-1", "n2")],
    "guarantee": lambda world: [evict("reclaim")],
    "eviction": lambda world: [evict("preempt")],
    "task": lambda world: [bind(world, "new-0", "n9")],
}


def test_every_law_has_a_broken_plan() -> None:
    assert BROKEN.keys() == set(LAWS)


@pytest.mark.parametrize("law", BROKEN)
def test_a_broken_law_is_found_and_names_object_and_numbers(law: str) -> None:
    world = full_node()
    world.state.refresh()
    found = breaches(world.state, world.config, Plan(effects=BROKEN[law](world)))
    assert law in [breach.law for breach in found]
    assert all(str(breach).startswith(f"{breach.law}: ") for breach in found)


def test_laws_of_plugins_that_are_not_configured_are_not_checked() -> None:
    world = full_node()
    world.state.refresh()
    registry = world.config.with_plugins(())
    bare = config.Config(registry.actions, ())
    plan = Plan(effects=[bind(world, "new-0", "n2")])
    assert breaches(world.state, bare, plan) == []


async def test_a_breach_in_production_is_logged_counted_and_can_be_replayed(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = DecisionLog(tmp_path / "decisions")

    def broken(*arguments: Any) -> list[Any]:
        plan = arguments[2]
        return [*breaches(*arguments), *([Breach("gang", "made up")] if plan.binds else [])]

    with mock.patch.object(service, "breaches", broken):
        scheduler = await world.scheduler(decision_log=log, check_invariants=True)
        await world.node("n1", 2)
        await world.gang("train", 2)
        await world.bound("train-0", "train-1")
    log.flush()
    (kept,) = await asyncio.to_thread(lambda: list(tmp_path.glob("decisions.cycle-*")))
    assert f"hekla replay {kept}" in caplog.text
    assert "gang: made up" in caplog.text
    text = (await scheduler.render_metrics()).decode()
    assert 'hekla_invariant_breaches_total{law="gang"} 1' in text


async def test_a_failed_cycle_is_followed_by_a_rebuild_of_the_state(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.node("n1", 2)
    failures = 0

    def corrupt(cluster: Any, *arguments: Any, **options: Any) -> Plan:
        """Fail as an error inside a cycle would, with the state half-changed."""
        nonlocal failures
        if cluster.jobs and not failures:
            failures += 1
            cluster.matrix.idle_rn[:] = 0.0
            for job in cluster.jobs.values():
                job.ready_count += 7
            raise ZeroDivisionError("a mistake")
        return decide(cluster, *arguments, **options)

    with mock.patch.object(service, "decide", corrupt):
        scheduler = await world.scheduler()
        await world.gang("train", 2)
        await world.bound("train-0", "train-1")
    assert failures == 1
    assert "the cluster state is rebuilt" in caplog.text
    assert scheduler.cluster.jobs["default/train"].ready_count <= 2
