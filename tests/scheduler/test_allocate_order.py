"""The order of allocate: priority, minimums among equals, repairs, leftovers, namespaces."""

from __future__ import annotations

from collections import Counter

import pytest

from hekla.testing import Result, cluster, gang, node, queue

TIERS = """\
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
  - {name: conformance}
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
CONF = 'actions: "enqueue, allocate, backfill"\n' + TIERS
PRIORITIES = {"high": 100, "low": 1}


def placed(result: Result) -> dict[str, int]:
    """The number of bound pods by job."""
    return dict(Counter(name.rpartition("-")[0] for name in result.binds))


def test_surplus_of_high_priority_comes_before_the_minimum_of_low_priority() -> None:
    jobs = [
        gang("low", members=2, cpu=1, priority_class="low", age=100),
        gang("high", members=4, minimum=1, cpu=1, priority_class="high"),
    ]
    result = cluster([node("n1", cpu=4)], jobs, priorities=PRIORITIES, conf=CONF).run()
    assert placed(result) == {"high": 4}


def test_minimums_come_first_among_equal_priorities() -> None:
    jobs = [
        gang("elastic", members=4, minimum=1, cpu=1, age=100),
        gang("rigid", members=2, cpu=1),
    ]
    result = cluster([node("n1", cpu=4)], jobs, conf=CONF).run()
    assert placed(result) == {"elastic": 2, "rigid": 2}


def test_priority_does_not_count_across_queues() -> None:
    """The surplus of `high` in queue a does not precede the minimum of `low` in queue b."""
    jobs = [
        gang("high", members=4, minimum=1, cpu=1, priority_class="high", queue="a"),
        gang("low", members=2, cpu=1, priority_class="low", queue="b"),
    ]
    result = cluster(
        [node("n1", cpu=4)],
        jobs,
        queues=[queue("a"), queue("b")],
        priorities=PRIORITIES,
        conf=CONF,
    ).run()
    assert placed(result) == {"high": 2, "low": 2}


def test_low_priority_gets_what_high_priority_cannot_use() -> None:
    """The surplus of `high` needs 3 cpu a pod and does not fit any more."""
    jobs = [
        gang("high", members=4, minimum=1, cpu=3, priority_class="high"),
        gang("low", members=1, cpu=1, priority_class="low"),
    ]
    result = cluster([node("n1", cpu=4)], jobs, priorities=PRIORITIES, conf=CONF).run()
    assert placed(result) == {"high": 1, "low": 1}


def tiers(*plugins: str) -> str:
    """A configuration with one tier per argument, without enqueue."""
    listed = (", ".join(f"{{name: {name}}}" for name in tier.split()) for tier in plugins)
    return 'actions: "allocate"\ntiers:\n' + "".join(f"- plugins: [{tier}]\n" for tier in listed)


def test_gang_before_priority_puts_minimums_first() -> None:
    jobs = [
        gang("low", cpu=1, priority_class="low"),
        gang("high", members=2, minimum=1, cpu=1, priority_class="high"),
    ]
    nodes = [node("n1", cpu=2)]
    for order, expected in (
        ("gang priority", {"high": 1, "low": 1}),
        ("priority gang", {"high": 2}),
    ):
        conf = tiers(order, "predicates")
        result = cluster(nodes, jobs, priorities=PRIORITIES, conf=conf).run()
        assert placed(result) == expected


def test_without_gang_the_highest_priority_comes_first() -> None:
    """`elastic` is between the two others, which have no surplus."""
    jobs = [
        gang("least", cpu=1),
        gang("high", cpu=1, priority_class="high"),
        gang("elastic", members=2, minimum=1, cpu=1, priority_class="low"),
    ]
    conf = tiers("priority predicates")
    result = cluster([node("n1", cpu=1)], jobs, priorities=PRIORITIES, conf=conf).run()
    assert placed(result) == {"high": 1}


def test_surplus_waits_for_the_turn_of_its_queue() -> None:
    """No plugin orders queues, so their names do."""
    jobs = [
        gang("small", cpu=1, queue="b"),
        gang("elastic", members=4, minimum=1, cpu=2, priority_class="low", queue="b"),
        gang("other", cpu=1, queue="a"),
    ]
    result = cluster(
        [node("n1", cpu=8)],
        jobs,
        queues=[queue("a"), queue("b")],
        priorities=PRIORITIES,
        conf=tiers("priority predicates"),
    ).run()
    assert placed(result) == {"small": 1, "elastic": 3, "other": 1}


def test_a_job_that_waited_for_surplus_in_vain_comes_before_surplus_of_another_queue() -> None:
    """`fixed` has one pod per node, so its surplus never fits; `small` needs the last slot."""
    jobs = [
        gang("small", cpu=1, queue="a"),
        gang("elastic", members=2, minimum=1, cpu=1, queue="b"),
        gang("fixed", members=3, minimum=1, cpu=2, queue="a", priority_class="high", ports=[80]),
    ]
    conf = """\
actions: "allocate"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}]
"""
    result = cluster(
        [node("n1", cpu=4)],
        jobs,
        queues=[queue("a"), queue("b")],
        priorities=PRIORITIES,
        conf=conf,
    ).run()
    assert placed(result) == {"small": 1, "elastic": 1, "fixed": 1}


def test_a_queue_keeps_its_turn_when_its_first_job_does_not_fit() -> None:
    """`wide` has surplus, but gets no minimum, so nothing waits for it."""
    jobs = [
        gang("wide", members=3, minimum=2, cpu=1, priority_class="low", queue="a"),
        gang("fits", cpu=1, queue="a"),
        gang("other", cpu=1, age=100),
    ]
    result = cluster(
        [node("n1", cpu=1)],
        jobs,
        queues=[queue("default"), queue("a", deserved={"cpu": 2})],
        priorities=PRIORITIES,
        conf=tiers("priority gang", "predicates capacity"),
    ).run()
    assert placed(result) == {"fits": 1}


def test_a_started_gang_that_lost_a_member_comes_before_a_new_job() -> None:
    """drf prefers `new`, which uses nothing yet."""
    jobs = [
        gang("new", cpu=1, age=100),
        gang("started", members=3, cpu=1, running_on=["n1", "n1"], phase="Running"),
    ]
    result = cluster([node("n1", cpu=3)], jobs, conf=CONF).run()
    assert placed(result) == {"started": 1}


def test_a_repair_does_not_come_before_a_higher_priority() -> None:
    jobs = [
        gang("new", cpu=1, priority_class="high"),
        gang("started", members=3, cpu=1, running_on=["n1", "n1"], phase="Running"),
    ]
    result = cluster([node("n1", cpu=3)], jobs, priorities=PRIORITIES, conf=CONF).run()
    assert placed(result) == {"new": 1}


@pytest.mark.parametrize("slots", [3, 5, 7])
@pytest.mark.parametrize("minimum", [1, 0])
def test_two_equal_queues_share_an_odd_number_of_slots_and_leave_none_idle(
    slots: int, minimum: int
) -> None:
    jobs = [
        gang(name, members=9, minimum=minimum, cpu=1, memory="1Gi", queue=name)
        for name in ("a", "b")
    ]
    machine = node("n1", cpu=slots, memory="100Gi")
    world = cluster([machine], jobs, queues=[queue("a"), queue("b")], conf=CONF)
    result = world.run()
    assert sum(placed(result).values()) == slots
    assert abs(placed(result)["a"] - placed(result)["b"]) == 1


def test_the_leftover_slot_is_not_reclaimed_again_and_again() -> None:
    conf = CONF.replace("allocate,", "allocate, reclaim,")
    jobs = [gang(f"{q}{i}", cpu=1, queue=q) for q in ("a", "b") for i in range(4)]
    world = cluster([node("n1", cpu=3)], jobs, queues=[queue("a"), queue("b")], conf=conf)
    world.live(world.run())
    for _ in range(5):
        result = world.run()
        assert (result.binds, result.evictions) == ({}, [])
        world.live(result)


def test_a_leftover_slot_does_not_break_a_capability() -> None:
    limit = {"capability": {"cpu": 1}}
    jobs = [gang(name, members=4, minimum=1, cpu=1, queue=name) for name in ("a", "b")]
    queues = [queue("a", capability=limit["capability"]), queue("b", capability={"cpu": 1})]
    result = cluster([node("n1", cpu=3)], jobs, queues=queues, conf=CONF).run()
    assert placed(result) == {"a": 1, "b": 1}


@pytest.mark.parametrize("spelling", ["enableNamespaceOrder", "enabledNamespaceOrder"])
def test_namespaces_share_by_both_spellings_of_the_switch(spelling: str) -> None:
    """Five jobs of one namespace and three of another, 6 slots: three each."""
    jobs = [gang(f"x{i}", cpu=1, namespace="x", age=100) for i in range(5)]
    jobs += [gang(f"y{i}", cpu=1, namespace="y") for i in range(5)]
    conf = CONF.replace("{name: drf}", f"{{name: drf, {spelling}: true}}")
    result = cluster([node("n1", cpu=6)], jobs, conf=conf).run()
    assert Counter(name[0] for name in result.binds) == {"x": 3, "y": 3}


@pytest.mark.parametrize("before", ["reclaim", "preempt", "gangreclaim", "gangpreempt"])
def test_a_job_that_fits_is_bound_when_allocate_runs_last(before: str) -> None:
    conf = CONF.replace("allocate, backfill", f"{before}, allocate")
    result = cluster([node("n1", cpu=2)], [gang("a", members=2, cpu=1)], conf=conf).run()
    assert placed(result) == {"a": 2}
