"""Reservations: nodes are reserved for a large overdue job, and others are backfilled."""

from __future__ import annotations

from hekla.scheduler.framework.verdict import Gate
from hekla.testing import TestCluster, cluster, gang, node, pod

CONF = """\
actions: "allocate%s"
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}]
- plugins: [{name: predicates}, {name: proportion}]
configurations:
- {name: allocate, arguments: {reserveAfter: %s}}
"""
NODES = [node(f"n{i}", cpu=4) for i in (1, 2, 3)]


def stage(age: float = 700.0, after: str = "10m", more: str = "") -> TestCluster:
    """n1 has 1 of 4 cpu in use, n2 has 2, n3 has 3; the large job needs two whole nodes."""
    busy = [
        gang(f"busy{i}", members=i, cpu=1, running_on=[f"n{i}"] * i, phase="Running")
        for i in (1, 2, 3)
    ]
    large = gang("large", members=2, cpu=4, age=age)
    small = [gang(f"s{i}", cpu=1, age=1.0) for i in range(6)]
    return cluster(NODES, [*busy, large, *small], conf=CONF % (more, after))


def test_small_jobs_are_backfilled_while_no_job_is_overdue() -> None:
    assert len(stage(age=60.0).run().binds) == 6


def test_the_freest_nodes_are_reserved_for_a_large_overdue_job() -> None:
    """n1 and n2 have the least used; n3 fits one small job."""
    result = stage().run()
    assert result.binds == {"s0-0": "n3"}
    large, small = result.verdict("large"), result.verdict("s1")
    assert large is not None
    assert small is not None
    assert "2 nodes are reserved for it until it fits" in large.message
    assert small.gate == Gate.ORDERING
    assert "reserved for default/large, which has been pending for long" in small.message
    assert small.nodes == {
        "Insufficient cpu": 1,
        "node(s) had capacity that is reserved for other pods": 2,
    }


def test_a_large_job_starts_on_its_reserved_nodes_while_small_jobs_arrive() -> None:
    world = stage()
    for cycle in range(6):
        result = world.run()
        world.live(result)
        if "large-0" in result.binds:
            break
        world.add(gang(f"more{cycle}", cpu=1, age=0.5))
        for name in (f"busy1-{cycle}", f"busy2-{cycle}"):
            world.state.delete_pod(f"default-{name}")
    assert result.binds["large-0"] != result.binds["large-1"]
    assert cycle == 2, "as soon as the last of three pods had ended"


def test_no_node_is_reserved_for_a_job_that_can_never_run() -> None:
    """A pod that belongs to no job does not end: only one node could ever be whole."""
    world = stage()
    for i in (2, 3):
        world.state.set_pod(pod(f"daemon{i}", cpu=1, node=f"n{i}", scheduler="other"))
    assert len(world.run().binds) == 4


def test_the_reservation_can_be_turned_off() -> None:
    assert len(stage(after='"0"').run().binds) == 6


def test_higher_priority_comes_before_usage() -> None:
    world = stage()
    world.add(gang("vip", members=2, cpu=2, priority_class="vip", age=1.0))
    world.state.jobs["default/vip"].priority = 100
    binds = world.run().binds
    assert {"vip-0", "vip-1"} <= set(binds)


def test_a_job_with_a_reservation_may_preempt_on_its_reserved_nodes() -> None:
    """With preempt, the large job evicts the pods of the lowest eviction cost from one node."""
    world = stage(more=", preempt")
    world.state.jobs["default/large"].priority = 9
    result = world.run()
    assert set(result.pipelined) == {"large-0", "large-1"}
    assert set(result.pipelined.values()) == {"n1", "n2"}
    assert sorted(result.evictions) == ["busy1-0", "busy2-0", "busy2-1"]


def test_no_node_is_reserved_for_a_gated_gang() -> None:
    world = stage(age=60.0)
    gate = {"schedulingGates": [{"name": "example.com/hold"}]}
    held = gang("held", members=2, cpu=4, age=900.0)
    held.pods[1] = pod("held-1", cpu=4, group="held", spec=gate)
    world.add(held)
    assert len(world.run().binds) == 6
