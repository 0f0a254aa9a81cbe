"""Each gate that can stop a job: amounts, node counts and hints of its verdict."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.scheduler.framework import config
from hekla.scheduler.framework.verdict import Gate, Verdict
from hekla.testing import GroupBuilder, TestCluster, cluster, gang, node, pod, queue

CAPACITY = config.DEFAULT.replace("proportion", "capacity")
PREEMPT = config.DEFAULT.replace("backfill", "preempt")


def verdict_of(world: TestCluster, name: str = "job") -> Verdict:
    found = world.run().verdict(name)
    assert found is not None
    return found


def running(name: str, count: int, **more: Any) -> GroupBuilder:
    return gang(name, members=count, cpu=1, running_on=["n1"] * count, phase="Running", **more)


def test_a_closed_queue() -> None:
    for phase in ("Pending", "Inqueue"):
        queues = [queue("shut", state="Closed")]
        job = gang("job", cpu=1, queue="shut", phase=phase, min_resources={"cpu": 1})
        found = verdict_of(cluster([node("n1")], [job], queues=queues))
        assert found.gate == Gate.QUEUE_CLOSED
        assert found.message == "queue 'shut' is Closed"
        assert found.change == "open queue 'shut'"


def test_not_enqueued() -> None:
    """The cluster takes 4 · 1.2 = 4.8 cpu; 3 are used, 2 more are requested."""
    job = gang("job", members=2, cpu=1, phase="Pending", min_resources={"cpu": 2})
    found = verdict_of(cluster([node("n1", cpu=4)], [running("old", 3), job]))
    assert found.gate == Gate.NOT_ENQUEUED
    (blocked,) = found.blocked
    assert (blocked.asked, blocked.allowed, blocked.used) == (2000, 4800, 3000)
    assert [holder.job for holder in found.holders] == ["default/old"]
    assert found.change


@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
def test_over_capability(phase: str) -> None:
    """A capability of 4: 3 are used, 2 more are requested (one of which fits)."""
    queues = [queue("q", capability={"cpu": 4})]
    options: dict[str, Any] = {"queue": "q", "phase": phase, "min_resources": {"cpu": 2}}
    job = gang("job", members=2, cpu=1, **options)
    jobs = [running("old", 3, queue="q", min_resources={"cpu": 3}), job]
    found = verdict_of(cluster([node("n1", cpu=32)], jobs, queues=queues, conf=CAPACITY))
    assert found.gate == (Gate.NOT_ENQUEUED if phase == "Pending" else Gate.QUEUE_SHARE)
    (blocked,) = found.blocked
    assert blocked.allowed == 4000
    assert blocked.asked + blocked.used == 5000
    assert [holder.job for holder in found.holders] == ["default/old"]


def test_overused() -> None:
    """Weights 1:1 over 4 cpu: the queue deserves 2 and has 3."""
    queues = [queue("q"), queue("r")]
    jobs = [running("old", 3, queue="q"), gang("job", cpu=1, queue="q")]
    jobs += [gang("other", members=4, minimum=1, cpu=1, queue="r")]
    found = verdict_of(cluster([node("n1", cpu=4, memory="1Gi")], jobs, queues=queues))
    assert found.gate == Gate.QUEUE_SHARE
    blocked = next(each for each in found.blocked if each.resource == "cpu")
    assert (blocked.asked, blocked.allowed, blocked.used) == (1000, 2000, 3000)
    assert [holder.job for holder in found.holders] == ["default/old"]


def test_gang_short() -> None:
    jobs = [running("old", 2), gang("job", members=3, cpu=1)]
    found = verdict_of(cluster([node("n1", cpu=4)], jobs))
    assert (found.gate, found.fitting, found.needed) == (Gate.GANG_SHORT, 2, 3)
    assert found.change == "capacity for 1 more task of 1 cpu"
    assert found.nodes == {"Insufficient cpu": 1}


def test_node_filters() -> None:
    """Every node is in one count, even with several reasons."""
    nodes = [
        node("a", taints=["x=y:NoSchedule"]),
        node("b", taints=["x=y:NoSchedule"], unschedulable=True),
        node("c", unschedulable=True),
        node("d", ready=False),
        node("e", labels={"disk": "hdd"}),
    ]
    job = gang("job", cpu=1, spec={"nodeSelector": {"disk": "ssd"}})
    found = verdict_of(cluster(nodes, [job]))
    assert found.gate == Gate.NODE_FILTERS
    assert sum(found.nodes.values()) == found.total_nodes == 5
    assert found.nodes["node(s) were unschedulable"] == 2
    assert found.change.startswith("a node with the labels ")


def test_ordering() -> None:
    """Idle resources are reserved by a pipelined gang."""
    first = gang("first", cpu=4, age=9)
    terminating = pod("leaving", cpu=2, node="n1", deleting=True)
    jobs = [first, gang("job", cpu=1)]
    nodes = [node("n1", cpu=4), node("n2", cpu=8, taints=["x=y:NoSchedule"])]
    world = cluster(nodes, jobs, pods=[terminating], conf=CAPACITY)
    found = verdict_of(world)
    assert found.gate == Gate.ORDERING
    assert found.nodes == {
        "node(s) had capacity that is reserved for other pods": 1,
        "node(s) had untolerated taint(s)": 1,
    }


def test_waiting_for_victims_to_terminate() -> None:
    jobs = [running("old", 4, minimum=1, priority_class="low")]
    jobs += [gang("job", cpu=1, priority_class="high")]
    priorities = {"low": 1, "high": 9}
    world = cluster([node("n1", cpu=4)], jobs, priorities=priorities, conf=PREEMPT)
    found = verdict_of(world)
    assert found.gate == Gate.VICTIMS
    assert (found.fitting, found.needed) == (1, 1)


def test_too_few_pods() -> None:
    found = verdict_of(cluster([node("n1")], [gang("job", members=1, minimum=3, cpu=1)]))
    assert found.gate == Gate.NOT_ENOUGH_TASKS
    assert found.change == "create the missing pods, or lower the minimum"


def test_pods_whose_podgroup_does_not_exist() -> None:
    pods = [pod(f"p{i}", cpu=1, group="gone") for i in range(2)]
    result = cluster([node("n1")], [], pods=pods).run()
    assert result.binds == {}
    found = result.verdict("gone")
    assert found is not None
    assert found.gate == Gate.GROUP_MISSING
    assert "2 pods name it" in found.message
    assert found.change.startswith("create PodGroup 'gone'")


def test_a_pod_with_two_podgroup_annotations_uses_volcanos() -> None:
    both = {"scheduling.volcano.sh/group-name": "other"}
    jobs = [gang("job", members=2, cpu=3, annotations=None), gang("other", members=1, cpu=1)]
    jobs[0].pods[0] = pod("job-0", cpu=3, group="job", annotations=both)
    result = cluster([node("n1", cpu=4)], jobs).run()
    assert set(result.binds) == {"other-0"}, "the other's own pod is none the worse"
    found = result.verdict("job")
    assert found is not None
    assert found.notes == ("pod job-0 names two PodGroups, 'job' and 'other'; 'job' counts",)
    assert "note: pod job-0 names two PodGroups" in str(found)
    assert found.to_dict()["notes"] == list(found.notes)


def test_an_unknown_priority_class_is_noted_in_the_verdict() -> None:
    job = gang("job", cpu=8, priority_class="golden")
    found = verdict_of(cluster([node("n1", cpu=4)], [job]))
    assert found.gate == Gate.GANG_SHORT
    assert found.notes == ("priority class 'golden' does not exist; the default counts",)
