"""The sentence of each situation in which a job is pending, word for word."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.scheduler.framework import config
from hekla.scheduler.framework.plan import Event, Evict
from hekla.scheduler.framework.verdict import shown_job
from hekla.testing import GroupBuilder, TestCluster, cluster, gang, node, queue

CAPACITY = config.DEFAULT.replace("proportion", "capacity")
PREEMPT = config.DEFAULT.replace("backfill", "preempt")
RECLAIM = CAPACITY.replace("backfill", "reclaim")
LIMITED = [queue("q", capability={"cpu": 4})]


def running(name: str, count: int, **more: Any) -> GroupBuilder:
    return gang(name, members=count, cpu=1, running_on=["n1"] * count, phase="Running", **more)


def enqueued(**more: Any) -> GroupBuilder:
    return gang("job", **more)


def pending(requests: dict[str, Any], **more: Any) -> GroupBuilder:
    """A job that is not enqueued yet; its minimum is one task."""
    return gang("job", phase="Pending", requests=requests, min_resources=requests, **more)


GPU = {"cpu": "1", "nvidia.com/gpu": "1"}
SITUATIONS: dict[str, tuple[TestCluster, str]] = {
    "not enqueued: no node has a GPU": (
        cluster([node("n1", cpu=4)], [pending(GPU)]),
        "no node has nvidia.com/gpu; what helps: add a node with nvidia.com/gpu, or correct the "
        "request",
    ),
    "enqueued: no node has a GPU": (
        cluster([node("n1", cpu=4), node("n2", cpu=4)], [enqueued(requests=GPU)]),
        "0/1 tasks fit; no node has nvidia.com/gpu; 0/2 nodes are available: 2 Insufficient "
        "nvidia.com/gpu; what helps: add a node with nvidia.com/gpu, or correct the request",
    ),
    "not enqueued: no node has a GPU, and the queue has a capability without GPUs": (
        cluster([node("n1", cpu=4)], [pending(GPU, queue="q")], queues=LIMITED, conf=CAPACITY),
        "no node has nvidia.com/gpu; what helps: add a node with nvidia.com/gpu, or correct the "
        "request",
    ),
    "not enqueued: more than the cluster has": (
        cluster([node("n1", cpu=2)], [pending({"cpu": "3k"})]),
        "resource in cluster is overused: overused cpu; cpu: asked 3000, used 0 of 2.4 (the "
        "cluster's 2, times overcommit-factor 1.2); what helps: request at most 2 cpu, all there "
        "is, or add nodes",
    ),
    "not enqueued: the cluster is full, and no queue has a right to more": (
        cluster([node("n1", cpu=2)], [running("old", 2, queue="default"), pending({"cpu": "1"})]),
        "resource in cluster is overused: overused cpu; cpu: asked 1, used 2 of 2.4 (the cluster's "
        "2, times overcommit-factor 1.2); held by default/old (2 cpu); what helps: wait for jobs "
        "to end, or add nodes",
    ),
    "not enqueued: enqueued jobs reserve what is left": (
        cluster(
            [node("n1", cpu=4)],
            [
                running("old", 2, queue="default"),
                gang("first", members=2, cpu=1, min_resources={"cpu": 2}),
                pending({"cpu": "1"}),
            ],
        ),
        "resource in cluster is overused: overused cpu; cpu: asked 1, used 4 of 4.8 (the cluster's "
        "4, times overcommit-factor 1.2; 2 of the used is reserved for enqueued jobs); held by "
        "default/old (2 cpu); what helps: wait for jobs to end, or add nodes",
    ),
    "not enqueued: another queue uses the share of this one, and nothing reclaims it": (
        cluster(
            [node("n1", cpu=2)],
            [running("old", 2, queue="other"), pending({"cpu": "1"}, queue="q")],
            queues=[queue("q"), queue("other")],
        ),
        "resource in cluster is overused: overused cpu; cpu: asked 1, used 2 of 2.4 (the cluster's "
        "2, times overcommit-factor 1.2); held by default/old (2 cpu); what helps: wait for jobs "
        "to end, or add the action reclaim to the configuration, since queue 'q' is entitled to "
        "this much of the cluster",
    ),
    "not enqueued: beyond the capability of its queue": (
        cluster(
            [node("n1", cpu=32)],
            [
                running("old", 3, queue="q", min_resources={"cpu": "3"}),
                pending({"cpu": "2"}, queue="q"),
            ],
            queues=LIMITED,
            conf=CAPACITY,
        ),
        "queue resource quota insufficient: insufficient cpu; cpu: asked 2, used 3 of 4 (the "
        "capability of queue 'q'); held by default/old (3 cpu); what helps: wait for jobs of queue "
        "'q' to end, or raise its capability by 1 cpu",
    ),
    "not enqueued: larger than the capability of its queue": (
        cluster([node("n1", cpu=32)], [pending({"cpu": "6"}, queue="q")], queues=LIMITED),
        "queue resource quota insufficient: insufficient cpu; cpu: asked 6, used 0 of 4 (the "
        "capability of queue 'q'); what helps: raise the capability of queue 'q', or request at "
        "most 4 cpu instead of 6",
    ),
    "enqueued: at the capability of its queue": (
        cluster(
            [node("n1", cpu=32)],
            [running("old", 3, queue="q"), enqueued(members=2, cpu=1, queue="q")],
            queues=LIMITED,
        ),
        "1/2 tasks fit; a task of 1 cpu would exceed the capability of queue 'q'; cpu: asked 1, "
        "used 4 of 4 (the capability of queue 'q'); held by default/old (3 cpu); what helps: wait "
        "for jobs of queue 'q' to end, or raise its capability by 1 cpu",
    ),
    "running: surplus at the capability of its queue": (
        cluster(
            [node("n1", cpu=8)],
            [enqueued(members=6, minimum=1, cpu=1, queue="q")],
            queues=LIMITED,
            conf=CAPACITY,
        ),
        "the gang runs; 2 surplus tasks do not fit; a task of 1 cpu would exceed the capability of "
        "queue 'q'; cpu: asked 1, used 4 of 4 (the capability of queue 'q'); what helps: wait for "
        "jobs of queue 'q' to end, or raise its capability by 1 cpu",
    ),
    "running: surplus in a full cluster": (
        cluster([node("n1", cpu=6)], [enqueued(members=7, minimum=1, cpu=1)]),
        "the gang runs; 1 surplus task does not fit; queue 'default' uses all cpu of the cluster; "
        "cpu: asked 1, used 6 of 6 (all in the cluster); what helps: wait for jobs to end, or add "
        "nodes with 1 more cpu",
    ),
    "its queue uses its share": (
        cluster(
            [node("n1", cpu=4, memory="1Gi")],
            [
                running("old", 3, queue="q"),
                enqueued(cpu=1, queue="q"),
                gang("other", members=4, minimum=1, cpu=1, queue="r"),
            ],
            queues=[queue("q"), queue("r")],
        ),
        "queue 'q' uses its share (proportion); cpu: asked 1, used 3 of 2 (the share of queue 'q');"
        " held by default/old (3 cpu); what helps: wait for jobs of queue 'q' to end, or raise its "
        "weight",
    ),
    "the nodes are full": (
        cluster([node("n1", cpu=4)], [running("old", 2), enqueued(members=3, cpu=1)]),
        "2/3 tasks fit; cpu: asked 1, used 4 of 4 (node n1); 0/1 nodes are available: 1 "
        "Insufficient cpu; held by default/old (2 cpu); what helps: capacity for 1 more task of 1 "
        "cpu",
    ),
    "no node is large enough": (
        cluster([node("n1", cpu=4)], [enqueued(cpu=6)]),
        "0/1 tasks fit; cpu: asked 6, used 0 of 4 (node n1); 0/1 nodes are available: 1 "
        "Insufficient cpu; what helps: a node with 6 cpu; the largest has 4 cpu",
    ),
    "reclaim was tried, but the victims are a rigid gang": (
        cluster(
            [node("n1", cpu=4)],
            [running("old", 4, queue="r"), enqueued(cpu=1, queue="q", min_resources={"cpu": 1})],
            queues=[queue("q", deserved={"cpu": 3}), queue("r", deserved={"cpu": 1})],
            conf=RECLAIM,
        ),
        "0/1 tasks fit; cpu: asked 1, used 4 of 4 (the nodes that are feasible); 0/1 nodes are "
        "available: 1 Insufficient cpu; held by default/old (4 cpu); what helps: capacity for 1 "
        "more task of 1 cpu; note: reclaim was tried: no victims that may be evicted free enough "
        "for it",
    ),
    "reclaim was tried, but the gang is more than its queue deserves": (
        cluster(
            [node("n1", cpu=8, memory="64Gi")],
            [
                running("old", 8, minimum=1, queue="r"),
                enqueued(members=4, cpu=1, queue="q", min_resources={"cpu": 4}),
            ],
            queues=[queue("q", deserved={"cpu": 2}), queue("r", deserved={"cpu": 6})],
            conf=RECLAIM,
        ),
        "0/4 tasks fit; cpu: asked 4, used 8 of 8 (the nodes that are feasible); 0/1 nodes are "
        "available: 1 Insufficient cpu; held by default/old (8 cpu); what helps: capacity for 4 "
        "more tasks of 1 cpu; note: reclaim was tried and evicts nothing for it: queue 'q' "
        "deserves 2 cpu and would use 4",
    ),
    "held by scheduling gates": (
        cluster(
            [node("n1", cpu=4)],
            [enqueued(members=2, cpu=1, spec={"schedulingGates": [{"name": "a/b"}]})],
        ),
        "2 tasks are held by scheduling gates; what helps: remove the gates",
    ),
    "waiting for the pods that it evicts": (
        cluster(
            [node("n1", cpu=4)],
            [running("old", 4, minimum=1), enqueued(cpu=1, priority_class="high")],
            priorities={"high": 9},
            conf=PREEMPT,
        ),
        "1 task is placed once the pods evicted for it have terminated",
    ),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_sentence(situation: str) -> None:
    world, want = SITUATIONS[situation]
    assert str(world.run().verdict("job")) == want


def test_jobs_are_named_without_the_uid_of_their_podgroup() -> None:
    uid = "1ff7fe48-a1f7-4ca8-85e7-e41b42268b5c"
    assert shown_job(f"a/train-{uid}") == "a/train"
    assert shown_job("a/train-2") == "a/train-2"
    assert shown_job(f"a/podgroup-{uid}") == f"a/podgroup-{uid}"
    old = gang(f"old-{uid}", members=2, cpu=1, running_on=["n1"] * 2, phase="Running")
    result = cluster([node("n1", cpu=2)], [old, enqueued(cpu=1)]).run()
    assert "held by default/old (2 cpu)" in result.why("job")


def _evictions(world: TestCluster) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the reasons of evicted pods, and the Events of preemptors."""
    effects = world.run().plan.effects
    reasons = [f"{e.reason} for {e.preemptor}" for e in effects if isinstance(e, Evict)]
    events = [each for each in effects if isinstance(each, Event)]
    return reasons, [(e.name, e.message) for e in events if e.reason == "Preempting"]


def test_preemption_names_the_preemptor_and_its_rule_on_both_jobs() -> None:
    old = running("old", 4, minimum=1, priority_class="low")
    job = gang("job", members=2, cpu=1, priority_class="high")
    world = cluster([node("n1", cpu=4)], [old, job], priorities={"low": 1, "high": 9}, conf=PREEMPT)
    rule = "its priority 9 is above 1 of job default/old"
    reasons, events = _evictions(world)
    assert reasons == [f"preempt for job default/job: {rule}"] * 2
    assert events == [("job", f"evicts 2 pods (old-2, old-3) of job default/old (preempt: {rule})")]


def test_reclaim_names_both_queues() -> None:
    shares = [queue(name, deserved={"cpu": 2}) for name in ("q", "r")]
    jobs = [running("old", 4, minimum=1, queue="q")]
    jobs += [gang("job", cpu=1, queue="r", min_resources={"cpu": 1})]
    world = cluster([node("n1", cpu=4, memory="8Gi")], jobs, queues=shares, conf=RECLAIM)
    reasons, _ = _evictions(world)
    assert reasons == [
        "reclaim for job default/job: its queue 'r' uses less than it deserves, and queue 'q' of "
        "job default/old has more"
    ]
