"""fairshare: the smaller usage over time comes first, across restarts."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from hekla.api import wellknown
from hekla.kube.resources import CONFIGMAPS, PODS
from hekla.scheduler.errors import ConfigError
from hekla.scheduler.framework import config
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.plugins import builtin
from hekla.scheduler.service.decision_log import DecisionLog
from hekla.scheduler.service.replay import replay
from hekla.scheduler.service.usage_store import MAX_SHOWN_BYTES
from hekla.scheduler.state import changes
from hekla.scheduler.state.changes import Elapsed, Recalled
from hekla.scheduler.state.usage_history import NAMESPACE, QUEUE, USER, Past
from hekla.testing import TestCluster, cluster, gang, node, queue
from hekla.testing.objects import START, GroupBuilder

from .test_decision_log import files_in
from .test_service import SYSTEM, configure
from .world import PATIENCE_S, Turning, World

DAY = 86400.0
FAIR = """\
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: fairshare
    arguments: {fairshare.levels: "queue, user", fairshare.half-life: 24h%s}
  - name: gang
- plugins: [{name: predicates}, {name: nodeorder}]
"""


def submitted(name: str, user: str, **more: Any) -> GroupBuilder:
    return gang(name, cpu=1, annotations={wellknown.SUBMITTED_BY: user}, **more)


def with_past(world: TestCluster, *past: Past, at: float = START) -> TestCluster:
    changes.apply(world.state, Elapsed(START, DAY))
    changes.apply(world.state, Recalled(at, past))
    return world


def had(level: str, name: str, cpu: float) -> Past:
    return Past(level, name, {"cpu": cpu * 1000})


def test_the_user_with_less_usage_comes_first() -> None:
    jobs = [submitted("a", "alice", age=60), submitted("b", "bob")]
    world = cluster([node("n1", cpu=1)], jobs, conf=FAIR % "")
    assert set(world.run().binds) == {"a-0"}, "nobody had anything: the older first"
    with_past(world, had(USER, "alice", 0.5), had(USER, "bob", 0.25))
    assert set(world.run().binds) == {"b-0"}


def test_usage_of_a_day_ago_counts_half() -> None:
    jobs = [submitted("a", "alice", age=60), submitted("b", "bob")]
    world = with_past(
        cluster([node("n1", cpu=1)], jobs, conf=FAIR % ""), had(USER, "alice", 0.5), at=START - DAY
    )
    changes.apply(world.state, Recalled(START, (had(USER, "bob", 0.3),)))
    assert set(world.run().binds) == {"a-0"}, "0.5 a day ago is 0.25 now"


def test_a_queue_of_twice_the_weight_may_use_twice_as_much_over_time() -> None:
    queues = [queue("big", weight=2), queue("small")]
    jobs = [
        gang("b", queue="big", cpu=1, age=60),
        gang("s", queue="small", cpu=1),
    ]
    for small, want in ((0.3, "b-0"), (0.15, "s-0")):
        world = cluster([node("n1", cpu=1)], jobs, queues=queues, conf=FAIR % "")
        with_past(world, had(QUEUE, "big", 0.4), had(QUEUE, "small", small))
        assert set(world.run().binds) == {want}


def test_the_dominant_resource_counts() -> None:
    jobs = [submitted("a", "alice", age=60), submitted("b", "bob")]
    world = cluster([node("n1", cpu=1, memory="10Gi")], jobs, conf=FAIR % "")
    with_past(world, Past(USER, "alice", {"memory": 5.0 * 2**30}), had(USER, "bob", 0.4))
    assert set(world.run().binds) == {"b-0"}, "half of the memory is more than 0.4 of the cores"


def test_users_with_equal_history_alternate_on_an_idle_cluster() -> None:
    jobs = [
        *(submitted(f"a{i}", "alice", age=60) for i in range(4)),
        *(submitted(f"b{i}", "bob") for i in range(4)),
    ]
    world = with_past(cluster([node("n1", cpu=4)], jobs, conf=FAIR % ""))
    assert set(world.run().binds) == {"a0-0", "a1-0", "b0-0", "b1-0"}


def test_with_ahead_zero_only_past_usage_counts() -> None:
    jobs = [
        *(submitted(f"a{i}", "alice", age=60) for i in range(2)),
        *(submitted(f"b{i}", "bob") for i in range(2)),
    ]
    world = cluster([node("n1", cpu=2)], jobs, conf=FAIR % ", fairshare.ahead: 0s")
    with_past(world, had(USER, "alice", 0.1))
    assert set(world.run().binds) == {"b0-0", "b1-0"}


def test_the_first_level_named_counts_first() -> None:
    conf = FAIR.replace("queue, user", "namespace, user") % ""
    jobs = [
        gang("x", namespace="one", cpu=1, annotations={wellknown.SUBMITTED_BY: "alice"}),
        gang("y", namespace="two", cpu=1, annotations={wellknown.SUBMITTED_BY: "bob"}),
    ]
    world = cluster([node("n1", cpu=1)], jobs, conf=conf)
    with_past(world, had(NAMESPACE, "one", 0.3), had(USER, "bob", 0.5))
    assert set(world.run().binds) == {"y-0"}


def test_two_users_get_equal_shares_over_many_days() -> None:
    """A full day each at most, an endless supply from both; bob joins four days later."""
    world = cluster([node("n1", cpu=1)], conf=FAIR % "")
    got = {"alice": 0, "bob": 0}
    for day in range(20):
        now = START + day * DAY
        changes.apply(world.state, Elapsed(now, DAY))
        for pod in list(world.pods.values()):
            world.state.delete_pod(pod.metadata.uid)
        for key in list(world.state.jobs):
            world.state.job_table.delete_group(*key.split("/"))
        world.pods.clear()
        for user in ("alice", "bob")[: 1 if day < 4 else 2]:
            world.add(submitted(f"{user}-{day}", user, age=-day))
        result = world.run(now=now)
        world.live(result)
        (name,) = result.binds
        got[name.split("-")[0]] += 1 if day >= 4 else 0
    assert got == {"alice": 8, "bob": 8}


WRONG = {
    "no duration": ("fairshare.half-life: soon", "fairshare.half-life is refused"),
    "too short": ("fairshare.half-life: 1s", "must be at least 60s"),
    "a negative look ahead": ("fairshare.ahead: -1h", "must be at least 0s"),
    "an unknown level": ("fairshare.levels: planet", "'planet' is none of them"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_refused(case: str) -> None:
    argument, want = WRONG[case]
    text = f"""\
actions: allocate
tiers:
- plugins: [{{name: fairshare, arguments: {{{argument}}}}}]
"""
    with pytest.raises(ConfigError, match=want):
        config.parse(text, builtin())


# --- kept -----------------------------------------------------------------------------------


async def started(world: World, **options: Any) -> Turning:
    scheduler = await world.scheduler(**options)
    await scheduler.turns(lambda: scheduler.cluster.job_table.history is not None)
    async with asyncio.timeout(PATIENCE_S):
        await scheduler._usage_store.has_read.wait()
    return scheduler


async def test_the_usage_history_is_stored_and_read_by_the_next_leader(world: World) -> None:
    await configure(world, FAIR % "")
    await world.node("n1", 4)
    first = await started(world)
    await world.gang("train", 2)
    await world.bound("train-0", "train-1")
    accounts = first.cluster.job_table.history.accounts  # type: ignore[union-attr]
    await first.turns(lambda: (QUEUE, "default") in accounts)
    account = accounts[QUEUE, "default"]
    account.mean_r[0] = 1000.0  # as after a long time
    await first._usage_store.write()
    written = await world.client.get(CONFIGMAPS, wellknown.FAIRSHARE_CONFIG_MAP, namespace=SYSTEM)
    told = json.loads(written["data"]["queues"])
    assert told["default"]["share"] == pytest.approx(0.25, rel=0.01)
    shares = json.loads(written["data"]["shares"])
    assert shares["halfLifeS"] == DAY
    assert shares["namespace"].keys() == shares["user"].keys() == {"default"}
    second = await started(world)
    now = second._clock.now()
    (share,) = [s for owner, s in second.cluster.shares(now).items() if owner == (QUEUE, "default")]
    assert share == pytest.approx(0.25, rel=0.01)
    text = (await second.render_metrics()).decode()
    found = re.search(r'hekla_fairshare{level="queue",name="default"} (\S+)', text)
    assert found is not None
    assert float(found[1]) == pytest.approx(0.25, rel=0.01)
    page = json.loads(second.pages()["fairshare"]())
    assert {"queue", "namespace", "user"} == {item["level"] for item in page["items"]}


async def test_the_smallest_of_too_many_shares_are_not_shown(world: World) -> None:
    await configure(world, FAIR % "")
    await world.node("n1", 4)
    scheduler = await started(world)
    past = [had(USER, f"{number:0250d}", 4 - number / 1000) for number in range(900)]
    scheduler._cache.change(Recalled(scheduler._clock.now(), tuple(past)))
    await scheduler._usage_store.write()
    written = await world.client.get(CONFIGMAPS, wellknown.FAIRSHARE_CONFIG_MAP, namespace=SYSTEM)
    shown = json.loads(written["data"]["shares"])["user"]
    assert len(written["data"]["shares"]) <= MAX_SHOWN_BYTES
    assert sorted(map(int, shown)) == list(range(450))


async def test_an_invalid_history_config_map_is_logged_and_replaced(
    world: World, caplog: Any
) -> None:
    await configure(world, FAIR % "")
    meta = {"name": wellknown.FAIRSHARE_CONFIG_MAP, "namespace": SYSTEM}
    await world.client.create(CONFIGMAPS, {"metadata": meta, "data": {"history": "{"}})
    scheduler = await started(world)
    assert "has no valid history" in caplog.text
    await scheduler._usage_store.write()
    written = await world.client.get(CONFIGMAPS, wellknown.FAIRSHARE_CONFIG_MAP, namespace=SYSTEM)
    assert json.loads(written["data"]["history"])["at"] > 0


async def test_a_custom_plugin_may_use_the_usage_history(world: World) -> None:
    class Remembers(Plugin, name="remembers"):
        half_life_s = 600.0

    await configure(world, "actions: allocate\ntiers: [{plugins: [{name: remembers}]}]\n")
    registry = builtin()
    registry.add(Remembers)
    scheduler = await started(world, registry=registry)
    assert scheduler.cluster.job_table.history is not None
    assert scheduler.cluster.job_table.history.half_life_s == 600.0


async def test_no_history_is_kept_without_a_plugin_that_needs_it(world: World) -> None:
    scheduler = await world.scheduler()
    await world.node("n1", 1)
    await world.gang("a", 1)
    await world.bound("a-0")
    assert scheduler.cluster.job_table.history is None
    assert json.loads(scheduler.pages()["fairshare"]()) == {"items": []}


@pytest.mark.parametrize("size", [1, 64 * 1024 * 1024], ids=["many files", "one file"])
async def test_decisions_that_use_history_can_be_replayed(
    world: World, tmp_path: Path, size: int
) -> None:
    await configure(world, FAIR % "")
    path = tmp_path / "decisions"
    log = DecisionLog(path, max_bytes=size, max_files=50)
    await world.node("n1", 2)
    scheduler = await started(world, decision_log=log)
    await keep_and_work(world, scheduler)
    await world.stack.aclose()
    await asyncio.to_thread(log.close)
    for file in files_in(tmp_path):
        for outcome in replay(file, builtin()):
            assert outcome.difference == [], f"{file.name}, cycle {outcome.number}"


async def keep_and_work(world: World, scheduler: Turning) -> None:
    await world.gang("a", 1)
    await world.bound("a-0")
    await world.gang("b", 1)
    await world.bound("a-0", "b-0")
    await world.gang("c", 1)
    await world.condition("c", "")
    await world.remove("a-0")
    await world.until(PODS, lambda pods: pods["c-0"]["spec"].get("nodeName"))
    await scheduler._usage_store.write()
    await world.gang("d", 1)
    await world.condition("d", "")
