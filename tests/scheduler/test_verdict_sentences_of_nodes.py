"""The sentence of a job that queues, quotas or nodes refuse for what they are, word for word."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.api import core, wellknown
from hekla.api.meta import convert
from hekla.scheduler.core import decide
from hekla.scheduler.framework import config
from hekla.testing import GroupBuilder, TestCluster, cluster, gang, hypernode, node, pod, queue
from hekla.testing.objects import START
from tests.scheduler.test_status import written

CAPACITY = config.DEFAULT.replace("proportion", "capacity")
TREE = CAPACITY.replace("name: capacity", "name: capacity\n    enableHierarchy: true")
TOPOLOGY = config.DEFAULT.replace("name: binpack", "name: network-topology-aware")
FAIRSHARE = config.DEFAULT.replace("proportion", "fairshare")
NODE_GROUPS = config.DEFAULT.replace("name: binpack", "name: nodegroup")
QUOTA = config.DEFAULT.replace("name: overcommit", "name: resourcequota")
HARD = {"mode": "hard", "highestTierAllowed": 1}
TEAM = [
    queue("root"),
    queue("team", capability={"cpu": 4}),
    queue("x", parent="team"),
    queue("y", parent="team"),
]
QUOTA_OF_5 = convert(
    {
        "metadata": {"name": "small", "namespace": "default"},
        "status": {"hard": {"requests.cpu": "5"}, "used": {"requests.cpu": "4"}},
    },
    core.ResourceQuota,
)
RACKS = [hypernode(f"r{i}", 1, nodes=[f"n{2 * i}", f"n{2 * i + 1}"]) for i in range(2)]


def job(**more: Any) -> GroupBuilder:
    return gang("job", **{"cpu": 1, **more})


def pending(cpu: int, **more: Any) -> GroupBuilder:
    return job(cpu=cpu, phase="Pending", min_resources={"cpu": cpu}, **more)


def old(**more: Any) -> GroupBuilder:
    count = more.get("members", 1)
    running = {"cpu": 1, "running_on": ["n1"] * count, "phase": "Running"}
    return gang("old", **{**running, **more})


def four_nodes(**more: Any) -> TestCluster:
    nodes = [node(f"n{i}", cpu=2) for i in range(4)]
    return cluster(nodes, [job(members=6, network=HARD)], conf=TOPOLOGY, **more)


def with_claim(name: str) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}


def repelled_by(label: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": label}}, "topologyKey": "host"}
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {"podAntiAffinity": rules}}


SITUATIONS: dict[str, tuple[TestCluster, str]] = {
    "its queue does not exist": (
        cluster([node("n1")], [job(queue="q")]),
        "queue 'q' does not exist; what helps: create queue 'q', or name another in the PodGroup",
    ),
    "its queue is closed": (
        cluster([node("n1")], [pending(1, queue="q")], queues=[queue("q", state="Closed")]),
        "queue 'q' is Closed; what helps: open queue 'q'",
    ),
    "its queue has children": (
        cluster([node("n1")], [pending(1, queue="team")], queues=TEAM, conf=TREE),
        "queue 'team' has children, and takes no jobs itself; what helps: name a queue below it in "
        "the job, such as 'x', 'y'",
    ),
    "the parent of its queue does not exist": (
        cluster(
            [node("n1")],
            [pending(1, queue="x")],
            queues=[queue("root"), queue("x", parent="away")],
            conf=TREE,
        ),
        "queue 'away', above queue 'x', does not exist; what helps: create queue 'away', or give "
        "queue 'x' another parent",
    ),
    "the parents of its queue form a circle": (
        cluster(
            [node("n1")],
            [pending(1, queue="x")],
            queues=[queue("root"), queue("x", parent="y"), queue("y", parent="x")],
            conf=TREE,
        ),
        "the parents of queue 'x' form a circle; what helps: give queue 'x' another parent",
    ),
    "its queue is the root": (
        cluster([node("n1")], [pending(1, queue="root")], queues=[queue("root")], conf=TREE),
        "queue 'root' takes no jobs; what helps: name another queue in the job",
    ),
    "enqueued: its queue is the root": (
        cluster([node("n1")], [job(cpu=1, queue="root")], queues=[queue("root")], conf=TREE),
        "0/1 tasks fit; queue 'root' takes no task of 1 cpu; what helps: name another queue in the "
        "job",
    ),
    "not enqueued: its own queue uses more than it deserves, and no other uses anything": (
        cluster(
            [node("n1", cpu=4)],
            [old(members=4, minimum=1, queue="q"), pending(1, queue="q")],
            queues=[queue("q", deserved={"cpu": 2}), queue("r", deserved={"cpu": 2})],
            conf=CAPACITY,
        ),
        "resource in cluster is overused: overused cpu; cpu: asked 1, used 4 of 4.8 (the cluster's "
        "4, times overcommit-factor 1.2); held by default/old (4 cpu); what helps: wait for jobs "
        "to end, or add nodes",
    ),
    "fairshare: another queue uses the whole cluster": (
        cluster(
            [node("n1", cpu=4)],
            [old(members=4, queue="q"), job(members=2, queue="r")],
            queues=[queue("q"), queue("r")],
            conf=FAIRSHARE,
        ),
        "0/2 tasks fit; cpu: asked 2, used 4 of 4 (the nodes that are feasible); 0/1 nodes are "
        "available: 1 Insufficient cpu; held by default/old (4 cpu); what helps: capacity for 2 "
        "more tasks of 1 cpu",
    ),
    "not enqueued: beyond the capability of a queue above": (
        cluster(
            [node("n1", cpu=32)],
            [old(members=3, queue="y", min_resources={"cpu": 3}), pending(2, queue="x")],
            queues=TEAM,
            conf=TREE,
        ),
        "queue resource quota insufficient: insufficient cpu; cpu: asked 2, used 3 of 4 (the "
        "capability of queue 'team'); held by default/old (3 cpu); what helps: wait for jobs of "
        "queue 'team' to end, or raise its capability by 1 cpu",
    ),
    "enqueued: at the capability of a queue above": (
        cluster(
            [node("n1", cpu=32)],
            [old(members=3, queue="y"), job(members=2, queue="x")],
            queues=TEAM,
            conf=TREE,
        ),
        "1/2 tasks fit; a task of 1 cpu would exceed the capability of queue 'team'; cpu: asked 1, "
        "used 4 of 4 (the capability of queue 'team'); held by default/old (3 cpu); what helps: "
        "wait for jobs of queue 'team' to end, or raise its capability by 1 cpu",
    ),
    "beyond a quota of its namespace": (
        cluster([node("n1")], [pending(2)], quotas=[QUOTA_OF_5], conf=QUOTA),
        "resource quota insufficient: 'small' of namespace 'default'; cpu: asked 2, used 4 of 5; "
        "what helps: 1 more cpu in quota 'small'",
    ),
    "fewer pods than its minimum": (
        cluster([node("n1")], [job(minimum=3)]),
        "not enough pods: 1 of the 3 needed exist; what helps: create the missing pods, or lower "
        "the minimum",
    ),
    "a request that no node can have": (
        cluster([node("n1")], [gang("job", requests={"cpu": "-1"})]),
        "pod job-0 has invalid requests: cpu: -1 is negative; what helps: correct the pods' "
        "requests",
    ),
    "not enqueued: there are no nodes": (
        cluster([], [pending(1)]),
        "the cluster has no nodes; what helps: add a node",
    ),
    "enqueued: there are no nodes": (
        cluster([], [job()]),
        "the cluster has no nodes; what helps: add a node",
    ),
    "no requests, and there are no nodes": (
        cluster([], [gang("job")]),
        "0/1 tasks fit; the cluster has no nodes; what helps: add a node",
    ),
    "no requests, and every node is cordoned": (
        cluster([node("n1", unschedulable=True)], [gang("job", members=2)]),
        "0/2 tasks fit; 0/1 nodes are available: 1 node(s) were unschedulable; what helps: return "
        "a node to service: `kubectl uncordon n1`",
    ),
    "no node has the labels": (
        cluster([node("n1")], [job(spec={"nodeSelector": {"disk": "ssd"}})]),
        "0/1 tasks fit; 0/1 nodes are available: 1 node(s) didn't match Pod's node "
        "affinity/selector; what helps: a node with the labels that the pod's nodeSelector and "
        "node affinity name, or correct them",
    ),
    "every node is tainted": (
        cluster([node("n1", taints=["gpu=yes:NoSchedule"])], [job()]),
        "0/1 tasks fit; 0/1 nodes are available: 1 node(s) had untolerated taint(s); what helps: a "
        "node without taints, or a toleration of gpu=yes:NoSchedule",
    ),
    "every node is drained": (
        cluster(
            [node("n1", unschedulable=True, annotations={wellknown.DRAIN_REASON: "new disk"})],
            [job()],
        ),
        "0/1 tasks fit; 0/1 nodes are available: 1 node(s) were drained: new disk; what helps: "
        "undrain a node: `hekla undrain n1`",
    ),
    "every node is cordoned": (
        cluster([node("n1", unschedulable=True)], [job()]),
        "0/1 tasks fit; 0/1 nodes are available: 1 node(s) were unschedulable; what helps: return "
        "a node to service: `kubectl uncordon n1`",
    ),
    "no node is ready": (
        cluster([node("n1", ready=False)], [job()]),
        "0/1 tasks fit; 0/1 nodes are available: 1 node(s) were not ready; what helps: make a node "
        "ready: `kubectl describe node n1` tells what it reports",
    ),
    "the host port is taken": (
        cluster([node("n1")], [old(ports=[80]), job(ports=[80])]),
        "0/1 tasks fit; 0/1 nodes are available: 1 node(s) didn't have free ports for the "
        "requested pod ports; what helps: wait for the pods that use the host port to end, or "
        "request another host port",
    ),
    "nodes run as many pods as they may": (
        cluster([node("n1", pods=1)], [old(), job()]),
        "0/1 tasks fit; 0/1 nodes are available: 1 node(s) pod number exceeded; what helps: wait "
        "for pods to end, or add nodes: the nodes run as many as they may",
    ),
    "a neighbour repels it": (
        cluster(
            [node("n1", labels={"host": "n1"})],
            [old(labels={"app": "web"}), job(spec=repelled_by("web"))],
        ),
        "0/1 tasks fit; 0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules; "
        "what helps: wait for the pods that the anti-affinity names to end, or add nodes",
    ),
    "its claim does not exist": (
        cluster([node("n1")], [job(spec=with_claim("data"))]),
        '0/1 tasks fit; 0/1 nodes are available: 1 persistentvolumeclaim "data" not found; what '
        "helps: create the claim that the pod names, or correct its name",
    ),
    "no rack is large enough": (
        four_nodes(hypernodes=RACKS),
        "4/6 tasks fit; 2 HyperNodes of tier 1 or lower were tried for 6 tasks, capacity is for 4 "
        "in r0 (tier 1), 4 in r1 (tier 1); what helps: capacity for 2 more tasks of 1 cpu in r0",
    ),
    "racks are large enough, but used": (
        cluster(
            [node(f"n{i}", cpu=2) for i in range(4)],
            [
                gang("old", members=2, cpu=2, running_on=["n0", "n2"], phase="Running"),
                job(members=3, network=HARD),
            ],
            hypernodes=RACKS,
            conf=TOPOLOGY,
        ),
        "2/3 tasks fit; 2 HyperNodes of tier 1 or lower were tried for 3 tasks, capacity is for 2 "
        "in r0 (tier 1), 2 in r1 (tier 1); cpu: asked 3, used 4 of 8 (the nodes that are "
        "feasible); 2/4 nodes are available: 2 Insufficient cpu; held by default/old (4 cpu); what "
        "helps: capacity for 1 more task of 1 cpu in r0",
    ),
    "there are no HyperNodes": (
        four_nodes(),
        "0/6 tasks fit; there are no HyperNodes; 0/4 nodes are available: 4 node(s) are outside "
        "the HyperNodes that the job may use; what helps: correct the HyperNodes, or the job's "
        "networkTopology",
    ),
    "the nodes are of other groups": (
        cluster(
            [node("n1", labels={wellknown.NODEGROUP_NAME: "gold"})],
            [job(queue="q")],
            queues=[queue("q")],
            conf=NODE_GROUPS,
        ),
        "0/1 tasks fit; 0/1 nodes are available: 1 node(s) are of groups that queue q may not use; "
        "what helps: a node without: node(s) are of groups that queue q may not use",
    ),
    "idle resources are reserved for a gang that goes first": (
        cluster(
            [node("n1", cpu=4)],
            [gang("first", cpu=4, age=9), job()],
            pods=[pod("leaving", cpu=2, node="n1", deleting=True)],
            conf=CAPACITY,
        ),
        "0/1 tasks fit; idle capacity is reserved for pods that are placed on it before; 0/1 nodes "
        "are available: 1 node(s) had capacity that is reserved for other pods; what helps: wait: "
        "the pods that it is reserved for start first",
    ),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_sentence(situation: str) -> None:
    world, want = SITUATIONS[situation]
    assert str(world.run().verdict("job")) == want


def test_a_job_that_backs_off_shows_why_its_bindings_failed() -> None:
    world = cluster([node("n1")], [job()])
    plan = decide(world.state, world.config, START, skipped={"default/job": "bind refused"})
    assert str(plan.verdicts["default/job"]) == "bind refused"


def test_pods_of_a_missing_podgroup_are_told_apart_from_a_full_cluster() -> None:
    named = pod("lost-0", cpu=1, group="away")
    why = str(cluster([node("n1")], [], pods=[named]).run().verdict("away"))
    assert why == (
        "PodGroup 'away' of namespace 'default' does not exist, and 1 pod names it; what helps: "
        "create PodGroup 'away', or create the pods again without naming it"
    )


def test_several_taints_are_named_and_tolerated_ones_are_not() -> None:
    nodes = [node(f"n{i}", taints=[f"t{i}:NoSchedule", "fine:NoSchedule"]) for i in range(5)]
    spec = {"tolerations": [{"key": "fine", "operator": "Exists"}]}
    why = cluster(nodes, [job(spec=spec)]).run().why("job")
    assert "a toleration of t0:NoSchedule, t1:NoSchedule, t2:NoSchedule and 2 more" in why


def test_gang_without_requests_is_unschedulable_until_it_has_nodes() -> None:
    world = cluster([node("n1", unschedulable=True)], [gang("job", members=2)])
    (condition,) = written(world.run(), "job").conditions
    assert (condition.type, condition.status) == ("Unschedulable", "True")
    assert condition.message.startswith("2/2 tasks in gang unschedulable: 0/2 tasks fit; ")
