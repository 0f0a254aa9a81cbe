"""Reclaim from queues that hold several jobs: votes count only candidates that can be evicted."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.testing import GroupBuilder, cluster, gang, node, queue

CONF = """\
actions: "enqueue, allocate, reclaim, backfill"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
  - {name: conformance}
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
"""
ONE_TIER = CONF.replace("- plugins: [{name: predicates}", "  - {name: predicates}").replace(
    ", {name: proportion}, {name: nodeorder}]", "\n  - {name: proportion}\n  - {name: nodeorder}"
)
LAYOUTS = {
    "gang in the first tier, proportion in the second": CONF,
    "one tier, gang first": ONE_TIER,
    "one tier, proportion first": ONE_TIER.replace("name: priority", "name: tmp")
    .replace("name: proportion", "name: priority")
    .replace("name: tmp", "name: proportion"),
    "proportion in the first tier, gang in the second": CONF.replace("name: gang", "name: tmp")
    .replace("name: proportion", "name: gang")
    .replace("name: tmp", "name: proportion"),
    "capacity": ONE_TIER.replace("proportion", "capacity"),
}


def running(name: str, nodes: list[str], *, minimum: int, queue: str = "a") -> GroupBuilder:
    count = len(nodes)
    return gang(
        name, members=count, minimum=minimum, cpu=1, queue=queue, phase="Running", running_on=nodes
    )


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if "gang in the second" not in name])
@pytest.mark.parametrize("tight_is_older", [True, False])
@pytest.mark.parametrize("nodes", [["n1"] * 6, ["n1", "n1", "n2", "n2", "n3", "n3"]])
def test_reclaim_takes_the_surplus_beside_a_rigid_gang(
    layout: str, tight_is_older: bool, nodes: list[str]
) -> None:
    """6 cpu: a has `tight` 3 of 3 and `elastic` 3 with minimum 1; b deserves 3 and needs 2."""
    tight = running("tight", nodes[0::2], minimum=3)
    elastic = running("elastic", nodes[1::2], minimum=1)
    for builder, age in ((tight, 100.0 if tight_is_older else 1.0), (elastic, 50.0)):
        builder.group = gang(
            builder.group.name, members=3, minimum=3 if builder is tight else 1,
            queue="a", phase="Running", age=age,
        ).group  # fmt: skip
    shares: dict[str, Any] = {"deserved": {"cpu": 3}}
    world = cluster(
        [node(name, cpu=nodes.count(name)) for name in sorted(set(nodes))],
        [tight, elastic, gang("b", members=2, cpu=1, queue="b")],
        queues=[queue("a", **shares), queue("b", **shares)],
        conf=LAYOUTS[layout],
    )
    result = world.run()
    assert sorted(name.split("-")[0] for name in result.evictions) == ["elastic", "elastic"]
    assert set(result.pipelined) == {"b-0", "b-1"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_queue_within_its_deserved_amount_loses_no_pod(layout: str) -> None:
    """9 cpu, 3 queues: `over` uses 6, `within` 3 and b is entitled to 3. Only `over` loses pods."""
    shares: dict[str, Any] = {"deserved": {"cpu": 3}}
    world = cluster(
        [node("n1", cpu=9)],
        [
            running("over", ["n1"] * 6, minimum=1, queue="over"),
            running("within", ["n1"] * 3, minimum=1, queue="within"),
            gang("b", members=3, cpu=1, queue="b"),
        ],
        queues=[queue("within", **shares), queue("over", **shares), queue("b", **shares)],
        conf=LAYOUTS[layout],
    )
    result = world.run()
    assert [name.split("-")[0] for name in result.evictions] == ["over"] * 3
    assert len(result.pipelined) == 3


def test_a_waiting_job_is_told_that_reclaim_found_no_victim() -> None:
    """All of a is one rigid gang: reclaim is tried and the verdict says so."""
    world = cluster(
        [node("n1", cpu=4)],
        [running("tight", ["n1"] * 4, minimum=4), gang("b", members=2, cpu=1, queue="b")],
        queues=[queue("a"), queue("b")],
        conf=CONF,
    )
    result = world.run()
    assert result.evictions == []
    assert "reclaim" in result.why("b")
