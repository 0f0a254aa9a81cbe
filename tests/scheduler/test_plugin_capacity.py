"""capacity: deserved, guarantee, capability and hierarchies, with numbers computed by hand."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.scheduler.plugins.capacity import flat, tree
from hekla.testing import GroupBuilder, TestCluster, cluster, gang, node, queue

CONF = """\
actions: "enqueue, allocate, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: capacity%s}]
"""
FLAT = CONF % ""
TREE = CONF % ", enableHierarchy: true"


def world(queues: list[Any], jobs: list[GroupBuilder], conf: str, cpu: int = 8) -> TestCluster:
    return cluster([node("n1", cpu=cpu, memory="64Gi")], jobs, queues=queues, conf=conf)


def running(count: int, name: str, **more: Any) -> GroupBuilder:
    options = {"minimum": 0, "cpu": 1, "phase": "Running", **more}
    return gang(name, members=count, running_on=["n1"] * count, **options)


def test_guarantees_of_other_queues_are_not_used() -> None:
    """8 cpu, 3 guaranteed to b: a may have 5, b 5 + 3 but no more than its capability 6."""
    queues = [queue("a"), queue("b", guarantee={"cpu": 3}, capability={"cpu": 6})]
    jobs = [gang("x", cpu=1, queue="a"), gang("y", cpu=1, queue="b")]
    state = world(queues, jobs, FLAT).state
    state.refresh()
    accounts = flat(state.queues, state.node_table.total_r)
    assert accounts["a"].real_r[0] == 5000
    assert accounts["b"].real_r[0] == 6000
    assert accounts["b"].deserved_r[0] == 3000, "at least the guarantee"


def test_a_queue_uses_idle_resources_up_to_its_capability() -> None:
    queues = [queue("a", deserved={"cpu": 2}, capability={"cpu": 4})]
    result = world(queues, [gang("x", members=6, minimum=1, cpu=1, queue="a")], FLAT).run()
    assert len(result.binds) == 4


def test_a_queue_above_its_deserved_share_is_reclaimed_down_to_it() -> None:
    """a deserves 4 and uses 8, b deserves 4: exactly four are evicted."""
    queues = [queue("a", deserved={"cpu": 4}), queue("b", deserved={"cpu": 4})]
    jobs = [running(8, "v", queue="a"), *(gang(f"p{i}", cpu=1, queue="b") for i in range(6))]
    result = world(queues, jobs, FLAT).run()
    assert len(result.evictions) == 4
    assert len(result.pipelined) == 4


def test_a_queue_that_deserves_nothing_loses_first() -> None:
    queues = [
        queue("a", deserved={"cpu": 4}),
        queue("free"),
        queue("b", deserved={"cpu": 1}),
    ]
    jobs = [
        running(4, "v", queue="a"),
        running(4, "w", queue="free"),
        gang("p", cpu=1, queue="b"),
    ]
    result = world(queues, jobs, FLAT).run()
    assert result.evictions == ["w-3"]


def test_no_queue_is_reclaimed_below_its_guarantee() -> None:
    """a deserves 2 by its guarantee and has one pod of 8: it is not evicted."""
    queues = [queue("a", guarantee={"cpu": 2}), queue("b", deserved={"cpu": 4})]
    jobs = [running(1, "v", queue="a", cpu=8), gang("p", cpu=1, queue="b")]
    assert world(queues, jobs, FLAT).run().evictions == []


def test_a_job_above_the_capability_is_not_enqueued() -> None:
    queues = [queue("a", capability={"cpu": 2})]
    job = gang("x", cpu=3, queue="a", phase="Pending", min_resources={"cpu": 3})
    result = world(queues, [job], FLAT).run()
    assert "queue resource quota insufficient: insufficient cpu" in result.why("x")


TEAM = [
    queue("root"),
    queue("team", capability={"cpu": 4}, deserved={"cpu": 4}),
    queue("x", parent="team", guarantee={"cpu": 1}, deserved={"cpu": 2}),
    queue("y", parent="team", deserved={"cpu": 2}),
    queue("other", deserved={"cpu": 4}),
]


def test_a_leaf_inherits_the_limits_of_its_ancestors() -> None:
    """team may have 4; y at most 4 - 1 (guaranteed to x); x 3 + 1."""
    state = world(TEAM, [], TREE).state
    state.refresh()
    accounts = tree(state.queues, state.node_table.total_r)
    assert accounts["y"].real_r[0] == 3000
    assert accounts["x"].real_r[0] == 4000
    assert [a.queue.name for a in accounts["y"].ancestors] == ["team"]


def test_siblings_together_stay_within_their_parent() -> None:
    jobs = [
        gang("jx", members=3, minimum=1, cpu=1, queue="x"),
        gang("jy", members=3, minimum=1, cpu=1, queue="y"),
    ]
    result = world(TEAM, jobs, TREE).run()
    assert len(result.binds) == 4


def test_in_a_hierarchy_the_guarantee_of_a_sibling_stays_free() -> None:
    """8 cpu, 3 guaranteed to `sure`: `free` has 5, and the leaves of `team` too."""
    queues = [
        queue("root"),
        queue("sure", guarantee={"cpu": 3}),
        queue("free"),
        queue("team"),
        queue("leaf", parent="team"),
    ]
    for name, want in (("free", 5), ("leaf", 5), ("sure", 8)):
        job = gang("j", members=8, minimum=1, cpu=1, queue=name)
        assert len(world(queues, [job], TREE).run().binds) == want, name


@pytest.mark.parametrize("deserved", [0, 4])
def test_in_a_hierarchy_branches_compare_and_not_the_queues_in_them(deserved: int) -> None:
    """Both branches deserve nothing, so the names of queues decide, whatever a child deserves."""
    for parents in ({"a": "team"}, {"b": "team"}):
        queues = [
            queue(
                name,
                parent=parents.get(name, ""),
                deserved={"cpu": deserved} if name in parents else None,
            )
            for name in ("root", "team", "a", "b")
        ]
        jobs = [gang(f"in-{name}", cpu=8, queue=name) for name in ("b", "a")]
        assert list(world(queues, jobs, TREE).run().binds) == ["in-a-0"], parents


def test_in_a_hierarchy_queues_with_a_common_ancestor_are_reclaimed_first() -> None:
    """y and other are both one over; x reclaims from y, its sibling."""
    jobs = [
        running(3, "jy", queue="y"),
        running(5, "jo", queue="other"),
        gang("p", cpu=1, queue="x"),
    ]
    result = world(TEAM, jobs, TREE).run()
    assert result.evictions == ["jy-2"]


def test_only_jobs_of_an_invalid_branch_are_pending() -> None:
    queues = [
        *TEAM,
        queue("lost", parent="nowhere"),
        queue("c1", parent="c2"),
        queue("c2", parent="c1"),
    ]
    jobs = [
        gang(f"j-{name}", cpu=1, queue=name, phase="Pending", min_resources={"cpu": 1})
        for name in ("lost", "c1", "team", "x")
    ]
    first = world(queues, jobs, TREE)
    result = first.run()
    assert result.binds == {"j-x-0": "n1"}
    assert result.why("j-lost").startswith("queue 'nowhere', above queue 'lost', does not exist")
    assert result.why("j-c1").startswith("the parents of queue 'c1' form a circle")
    assert result.why("j-team").startswith("queue 'team' has children")
