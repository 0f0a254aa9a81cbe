"""Verdicts: why a job is pending, in numbers, in JSON and in stable texts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hekla.scheduler.framework.verdict import Gate
from hekla.testing import cluster, gang, node, pod, queue


def test_the_verdict_of_a_gang_names_fitting_tasks_and_the_change_that_helps() -> None:
    nodes = [node("n1", cpu=4), node("n2", cpu=4, taints=["x=y:NoSchedule"])]
    busy = gang("busy", members=1, cpu=2, running_on=["n1"], phase="Running")
    result = cluster(nodes, [busy, gang("train", members=3, cpu=1)]).run()
    verdict = result.verdict("train")
    assert verdict is not None
    assert verdict.gate == Gate.GANG_SHORT
    assert (verdict.fitting, verdict.needed) == (2, 3)
    assert verdict.nodes == {"Insufficient cpu": 1, "node(s) had untolerated taint(s)": 1}
    assert verdict.total_nodes == 2
    assert verdict.change == "capacity for 1 more task of 1 cpu"
    assert [str(holder) for holder in verdict.holders] == ["default/busy (2 cpu)"]
    assert verdict.histogram == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s)."
    )


def test_the_verdict_names_the_full_queue_with_amounts() -> None:
    holder = gang("holder", members=3, cpu=1, queue="q", running_on=["n1"] * 3, phase="Running")
    wait = gang("wait", members=2, cpu=1, queue="q")
    queues = [queue("q", capability={"cpu": 4})]
    result = cluster([node("n1", cpu=32)], [holder, wait], queues=queues).run()
    assert result.binds == {}
    verdict = result.verdict("wait")
    assert verdict is not None
    assert verdict.gate == Gate.QUEUE_SHARE
    (blocked,) = verdict.blocked
    assert (blocked.resource, blocked.asked, blocked.allowed, blocked.used) == (
        "cpu",
        1000.0,
        4000.0,
        4000.0,
    )
    assert verdict.change == ("wait for jobs of queue 'q' to end, or raise its capability by 1 cpu")
    assert [h.job for h in verdict.holders] == ["default/holder"]


def test_a_resource_that_no_node_has_is_insufficient_on_every_node() -> None:
    result = cluster([node("n1"), node("n2")], [gang("a", cpu=1, gpu=1)]).run()
    verdict = result.verdict("a")
    assert verdict is not None
    assert verdict.gate == Gate.GANG_SHORT
    assert verdict.nodes == {"Insufficient nvidia.com/gpu": 2}
    assert verdict.change == "add a node with nvidia.com/gpu, or correct the request"


def test_the_json_form_has_everything_the_words_have() -> None:
    result = cluster([node("n1", cpu=1)], [gang("a", members=2, cpu=1)]).run()
    verdict = result.verdict("a")
    assert verdict is not None
    form = json.loads(json.dumps(verdict.to_dict()))
    assert form["gate"] == verdict.gate
    assert form["text"] == str(verdict)
    assert form["needed"] == 2


def test_an_empty_cluster_is_called_so() -> None:
    result = cluster([], [gang("a", cpu=1)]).run()
    assert result.binds == {}
    assert "a" in result.phases
    assert result.why("a") != ""


NONSENSE: dict[str, tuple[dict[str, Any], str]] = {
    "a negative request": ({"cpu": "-1"}, "cpu: -1 is negative"),
    "a request that no machine meets": ({"memory": "1e30"}, "is more than any machine has"),
    "a request that is no quantity": ({"cpu": "lots"}, "does not look like a number"),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_invalid_requests_are_explained_and_stop_no_other_job(case: str) -> None:
    amounts, want = NONSENSE[case]
    bad = gang("bad", members=2, requests=amounts, age=99)
    result = cluster([node("n1", cpu=4)], [bad, gang("good", members=2, cpu=1)]).run()
    assert set(result.binds) == {"good-0", "good-1"}
    verdict = result.verdict("bad")
    assert verdict is not None
    assert verdict.gate == Gate.INVALID_REQUESTS
    assert want in verdict.message
    assert "bad-0" in verdict.message


def test_deleting_a_huge_pod_restores_the_node_exactly() -> None:
    world = cluster([node("n1", cpu=4)], [gang("a", cpu=4)])
    world.state.set_pod(pod("huge", requests={"cpu": "1e30"}, node="n1"))
    assert world.run().binds == {}
    world.state.delete_pod("default-huge")
    assert world.run().binds == {"a-0": "n1"}


def test_equal_state_gives_equal_verdict_texts() -> None:
    nodes = [node(f"n{i}", cpu=1) for i in range(5)]
    world = cluster(nodes, [gang(f"j{i}", members=4, cpu=1) for i in range(4)])
    first = {key: str(v) for key, v in world.run().plan.verdicts.items()}
    assert first == {key: str(v) for key, v in world.run().plan.verdicts.items()}
    assert len(first) == 3


def test_a_priority_class_that_does_not_exist_is_noted_and_the_default_counts() -> None:
    world = cluster([node("n1")], [gang("a", cpu=1, priority_class="golden")])
    assert world.state.jobs["default/a"].problems == (
        "priority class 'golden' does not exist; the default counts",
    )
    assert world.run().binds == {"a-0": "n1"}
