"""gangpreempt and gangreclaim: gangs are evicted whole, or lose their surplus."""

from __future__ import annotations

from typing import Any

from hekla.scheduler.framework.verdict import Gate
from hekla.testing import GroupBuilder, TestCluster, cluster, gang, node, queue

CONF = """\
actions: "enqueue, allocate, %s"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: %s}, {name: nodeorder}]
"""
PREEMPT = CONF % ("gangpreempt", "capacity")
RECLAIM = CONF % ("gangreclaim", "proportion")
PRIORITIES = {"low": 1, "mid": 5, "high": 9}


def running(name: str, where: list[str], **more: Any) -> GroupBuilder:
    options = {"cpu": 1, "phase": "Running", "priority_class": "low", **more}
    return gang(name, members=len(where), running_on=where, **options)


VIP = gang("vip", members=4, cpu=1, priority_class="high")


def world(jobs: list[GroupBuilder], conf: str = PREEMPT, nodes: int = 2) -> TestCluster:
    machines = [node(f"n{i}", cpu=4) for i in range(1, nodes + 1)]
    queues = [queue("a"), queue("b")]
    return cluster(machines, jobs, queues=queues, priorities=PRIORITIES, conf=conf)


def test_a_rigid_gang_is_evicted_whole_for_one_of_higher_priority() -> None:
    """n1 and n2 run 4 + 4; the preemptor needs 4: one gang of 4 is evicted as a whole."""
    old, young = running("old", ["n1"] * 4, age=9), running("young", ["n2"] * 4, age=1)
    result = world([old, young, gang("vip", members=4, cpu=1, priority_class="high")]).run()
    assert sorted(result.evictions) == [f"young-{i}" for i in range(4)]
    assert result.pipelined == {f"vip-{i}": "n2" for i in range(4)}
    verdict = result.verdict("vip")
    assert verdict is not None
    assert verdict.gate == Gate.VICTIMS


def test_surplus_is_evicted_before_any_gang_is_broken() -> None:
    """The elastic job of 4 has minMember 1: its surplus of three is enough for the preemptor."""
    elastic = running("elastic", ["n1"] * 4, minimum=1, priority_class="mid")
    rigid = running("rigid", ["n2"] * 4)
    result = world([elastic, rigid, gang("vip", members=3, cpu=1, priority_class="high")]).run()
    assert sorted(result.evictions) == ["elastic-0", "elastic-1", "elastic-2"]


def test_role_minimums_limit_the_surplus_of_a_job() -> None:
    """Four workers, minTaskMember 3 and minMember 3: the surplus is one."""
    trainer = running("train", ["n1"] * 4, minimum=3, roles={"worker": 3}, role="worker")
    rigid = running("rigid", ["n2"] * 4, priority_class="mid")
    result = world([trainer, rigid, gang("vip", members=1, cpu=1, priority_class="high")]).run()
    assert len(result.evictions) == 1
    assert result.evictions[0].startswith("train-")


def test_a_gang_of_equal_priority_is_not_preempted() -> None:
    result = world(
        [
            running("one", ["n1"] * 4),
            running("two", ["n2"] * 4),
            gang("equal", members=4, cpu=1, priority_class="low"),
        ]
    ).run()
    assert result.evictions == []


def test_a_gang_with_a_non_preemptable_podgroup_is_never_evicted() -> None:
    flag = {"volcano.sh/preemptable": "false"}
    result = world(
        [running("one", ["n1"] * 4, age=0.0), running("two", ["n2"] * 4, age=9.0), VIP]
    ).run()
    assert sorted(result.evictions) == [f"one-{i}" for i in range(4)]
    result = world(
        [running("one", ["n1"] * 4, annotations=flag), running("two", ["n2"] * 4, age=9.0), VIP]
    ).run()
    assert sorted(result.evictions) == [f"two-{i}" for i in range(4)]


def test_allow_whole_bundle_false_evicts_surplus_only() -> None:
    conf = (
        PREEMPT + "configurations:\n- {name: gangpreempt, arguments: {allowWholeBundle: false}}\n"
    )
    jobs = [running("one", ["n1"] * 4), running("two", ["n2"] * 4)]
    jobs.append(gang("vip", members=4, cpu=1, priority_class="high"))
    assert world(jobs, conf).run().evictions == []
    assert len(world(jobs, PREEMPT).run().evictions) == 4


def test_nothing_is_evicted_for_a_gang_that_still_would_not_fit() -> None:
    jobs = [running("one", ["n1"] * 4), running("two", ["n2"] * 4)]
    jobs.append(gang("vip", members=3, cpu=3, priority_class="high"))
    assert world(jobs).run().evictions == []


def test_preemption_is_for_the_minimum_of_an_elastic_gang() -> None:
    jobs = [running("one", ["n1"] * 4), running("two", ["n2"] * 4)]
    jobs.append(gang("vip", members=8, minimum=2, cpu=1, priority_class="high"))
    assert len(world(jobs).run().evictions) == 4


def test_gangreclaim_stops_when_the_other_queue_has_its_deserved_share() -> None:
    """Weights 1:1 over 8 cpu: a uses 8 in gangs of 4 and deserves 4, b requests 8 in gangs of 4."""
    jobs = [running("one", ["n1"] * 4, queue="a", age=9), running("two", ["n2"] * 4, queue="a")]
    jobs += [gang(f"b{i}", members=4, cpu=1, queue="b") for i in range(2)]
    stage = world(jobs, RECLAIM)
    result = stage.run()
    assert sorted(result.evictions) == [f"two-{i}" for i in range(4)]
    assert {where for where in result.pipelined.values()} == {"n2"}
    stage.live(result)
    second = stage.run()
    assert set(second.binds) == {f"b0-{i}" for i in range(4)}
    stage.live(second)
    assert stage.run().evictions == [], "nobody takes it back"


def test_a_gang_is_not_reclaimed_if_its_queue_would_fall_below_deserved() -> None:
    """a deserves 4 of 8 and has one gang of 5: its eviction would leave a with nothing."""
    jobs = [running("big", ["n1"] * 4 + ["n2"], queue="a")]
    jobs += [running("b0", ["n2"] * 3, queue="b"), gang("b1", members=1, cpu=1, queue="b")]
    assert world(jobs, RECLAIM).run().evictions == []
