"""cdp: who was just scheduled is left alone for the time it asked for."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.api.wellknown import COOLDOWN_TIME
from hekla.testing import TestCluster, cluster, gang, node, queue
from hekla.testing.objects import START
from hekla.units.timestamps import format_time

CONF = """\
actions: "allocate, preempt, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}, {name: cdp}]
- plugins: [{name: proportion}, {name: predicates}]
"""


def since(seconds: float) -> dict[str, Any]:
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": format_time(START - seconds),
    }
    return {"conditions": [scheduled]}


def world(asks_in: str, seconds: float, **victim: Any) -> TestCluster:
    low = gang(
        "low", members=2, minimum=1, cpu=2, running_on=["n1"] * 2, phase="Running",
        queue="a", status=since(seconds), **victim,
    )  # fmt: skip
    high = gang("high", members=1, cpu=2, queue=asks_in, priority_class="high")
    return cluster(
        [node("n1", cpu=4)], [low, high], queues=[queue("a"), queue("b")],
        priorities={"high": 10}, conf=CONF,
    )  # fmt: skip


@pytest.mark.parametrize("asks_in", ["a", "b"])
@pytest.mark.parametrize("where", ["labels", "pod_annotations"])
@pytest.mark.parametrize(("seconds", "leave"), [(599, 0), (600, 1)])
def test_a_pod_is_spared_until_its_time_is_over(
    asks_in: str, where: str, seconds: float, leave: int
) -> None:
    """In one queue it would be preempted, from another reclaimed."""
    result = world(asks_in, seconds, **{where: {COOLDOWN_TIME: "10m"}}).run()
    assert len(result.evictions) == leave
    if not leave:
        assert result.plan.wake_at == START + 1, "then it can be taken"


@pytest.mark.parametrize("text", ["soon", "", "0s"])
def test_no_time_is_no_protection(text: str) -> None:
    assert len(world("a", 0, labels={COOLDOWN_TIME: text}).run().evictions) == 1
    assert len(world("a", 0).run().evictions) == 1
