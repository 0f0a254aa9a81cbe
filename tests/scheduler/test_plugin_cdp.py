"""cdp: a pod is protected during its cooldown after scheduling."""

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


def world(requests_in: str, seconds: float, **victim: Any) -> TestCluster:
    low = gang(
        "low", members=2, minimum=1, cpu=2, running_on=["n1"] * 2, phase="Running",
        queue="a", status=since(seconds), **victim,
    )  # fmt: skip
    high = gang("high", members=1, cpu=2, queue=requests_in, priority_class="high")
    return cluster(
        [node("n1", cpu=4)], [low, high], queues=[queue("a"), queue("b")],
        priorities={"high": 10}, conf=CONF,
    )  # fmt: skip


@pytest.mark.parametrize("requests_in", ["a", "b"])
@pytest.mark.parametrize("where", ["labels", "pod_annotations"])
@pytest.mark.parametrize(("seconds", "leave"), [(599, 0), (600, 1)])
def test_a_pod_is_protected_until_its_cooldown_ends(
    requests_in: str, where: str, seconds: float, leave: int
) -> None:
    """In one queue it would be preempted, from another reclaimed."""
    result = world(requests_in, seconds, **{where: {COOLDOWN_TIME: "10m"}}).run()
    assert len(result.evictions) == leave
    if not leave:
        assert result.plan.wake_at == START + 1, "then it can be taken"
        end = format_time(START + 1)
        told = f"pods that it could preempt are in their cooldown, the first until {end}"
        assert told in result.why("high")


@pytest.mark.parametrize("text", ["soon", "", "0s"])
def test_no_cooldown_is_no_protection(text: str) -> None:
    assert len(world("a", 0, labels={COOLDOWN_TIME: text}).run().evictions) == 1
    assert len(world("a", 0).run().evictions) == 1


def test_a_job_that_could_not_preempt_gets_no_cooldown_note() -> None:
    peer = gang("peer", members=1, cpu=2, queue="a")
    low = gang(
        "low", members=2, minimum=1, cpu=2, running_on=["n1"] * 2, phase="Running", queue="a",
        status=since(0), labels={COOLDOWN_TIME: "10m"},
    )  # fmt: skip
    result = cluster([node("n1", cpu=4)], [low, peer], queues=[queue("a")], conf=CONF).run()
    assert result.evictions == []
    assert "cool down" not in result.why("peer")


def test_jobs_blocked_by_a_cooldown_have_its_end_in_the_verdict() -> None:
    made = world("a", 0, labels={COOLDOWN_TIME: "2000000h"})
    made.add(gang("second", members=1, cpu=2, queue="a", priority_class="high"))
    result = made.run()
    assert "in their cooldown, the first until" in result.why("high")
    assert "in their cooldown, the first until" in result.why("second")
