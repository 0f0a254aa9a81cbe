"""Enqueue on a full cluster and beside jobs that can never be placed."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.scheduler.core import decide
from hekla.testing import GroupBuilder, Result, cluster, gang, node, queue
from hekla.testing.objects import START

CONF = """\
actions: "enqueue, allocate, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: overcommit}, {name: predicates}, {name: SHARE}, {name: nodeorder}]
"""


def conf(share: str = "proportion", actions: str = "enqueue, allocate, reclaim") -> str:
    return CONF.replace("SHARE", share).replace("enqueue, allocate, reclaim", actions)


def pending(name: str, cpu: int, **more: Any) -> GroupBuilder:
    """A PodGroup without pods: its controller waits for Inqueue."""
    return gang(
        name, members=0, minimum=1, phase="Pending", min_resources={"cpu": cpu}, **more
    )  # fmt: skip


def full(**more: Any) -> GroupBuilder:
    options = {"minimum": 1, "cpu": 1, "queue": "a", "phase": "Running", **more}
    return gang("over", members=4, running_on=["n1"] * 4, **options)


@pytest.mark.parametrize("share", ["proportion", "capacity"])
def test_an_entitled_job_is_enqueued_on_a_full_cluster(share: str) -> None:
    deserved: dict[str, Any] = {"deserved": {"cpu": 2}}
    world = cluster(
        [node("n1", cpu=4)],
        [full(), pending("b", 2, queue="b")],
        queues=[queue("a", **deserved), queue("b", **deserved)],
        conf=conf(share),
    )
    assert world.run().phases["b"] == "Inqueue"


@pytest.mark.parametrize(
    ("cpu", "actions"), [(3, "enqueue, allocate, reclaim"), (2, "enqueue, allocate")]
)
def test_a_full_cluster_keeps_out_what_reclaim_cannot_serve(cpu: int, actions: str) -> None:
    """Queue b deserves 2 cpu: 3 are too many; and without reclaim no pod would be evicted."""
    world = cluster(
        [node("n1", cpu=4)],
        [full(), pending("b", cpu, queue="b")],
        queues=[queue("a"), queue("b")],
        conf=conf(actions=actions),
    )
    assert world.run().phases.get("b", "Pending") == "Pending"


def test_the_entitled_job_then_reclaims() -> None:
    job = pending("b", 2, queue="b")
    world = cluster(
        [node("n1", cpu=4)], [full(), job], queues=[queue("a"), queue("b")], conf=conf()
    )
    world.live(world.run())
    created = gang("b", members=2, cpu=1, queue="b", min_resources={"cpu": 2})
    world.add(created)
    assert len(world.run().evictions) == 2


@pytest.mark.parametrize("share", ["proportion", "capacity"])
@pytest.mark.parametrize("capability", [None, {"cpu": 6}])
def test_a_job_that_fits_on_no_empty_nodes_does_not_keep_others_out(
    share: str, capability: Any
) -> None:
    """Two nodes of 3 cpu: three pods of 2 cpu fit by their sum and not by their shape."""
    world = cluster(
        [node("n1", cpu=3), node("n2", cpu=3)],
        [
            gang("shape", members=3, cpu=2, min_resources={"cpu": 6}),
            pending("small", 2),
        ],
        queues=[queue("default", capability=capability)],
        conf=conf(share),
    )
    assert world.run().phases["small"] == "Inqueue"


def test_a_job_that_fits_once_others_end_keeps_its_quota() -> None:
    world = cluster(
        [node("n1", cpu=4)],
        [
            full(queue="default"),
            gang("next", members=4, cpu=1, min_resources={"cpu": 4}),
            pending("small", 2),
        ],
        queues=[queue("default", capability={"cpu": 8})],
        conf=conf(),
    )
    assert world.run().phases.get("small", "Pending") == "Pending"


def test_a_job_whose_bindings_fail_does_not_keep_others_out() -> None:
    """The whole cluster is admitted to a job that backs off because its bindings are refused."""
    jobs = [gang("doomed", cpu=4, min_resources={"cpu": 4}), pending("good", 4)]
    world = cluster([node("n1", cpu=4)], jobs, conf=conf().replace("{name: overcommit}, ", ""))
    assert world.run().phases.get("good", "Pending") == "Pending"
    plan = decide(world.state, world.config, START, skipped={"default/doomed": "bind refused"})
    assert Result(plan, world.state).phases["good"] == "Inqueue"
