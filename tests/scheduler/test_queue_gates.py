"""The queue-allocation gate: pods wait behind it while their queue is at its limit."""

from __future__ import annotations

from typing import Any

from hekla.api.volcano.groups import default_queue_gate
from hekla.api.wellknown import QUEUE_ALLOCATION_GATE as GATE
from hekla.kube.resources import PODS, QUEUES
from hekla.scheduler.framework.plan import OpenGate
from hekla.testing import GroupBuilder, TestCluster, cluster, gang, node, queue

from .world import Objects, World, pod

CONF = """\
actions: "enqueue, allocate"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: capacity}]
"""


def gated(name: str, *, gates: tuple[str, ...] = (GATE,), **more: Any) -> GroupBuilder:
    spec = {"schedulingGates": [{"name": gate} for gate in gates]}
    return gang(name, cpu=1, queue="q", spec=spec, **more)


def world(*jobs: GroupBuilder, cpu: int = 2, nodes: int = 1) -> TestCluster:
    machines = [node(f"n{i}", cpu=8) for i in range(nodes)]
    return cluster(machines, jobs, queues=[queue("q", capability={"cpu": cpu})], conf=CONF)


def opened(world: TestCluster) -> list[str]:
    return sorted(e.pod for e in world.run().plan.effects if isinstance(e, OpenGate))


def test_gates_are_opened_up_to_the_limit_of_the_queue() -> None:
    assert opened(world(gated("a", members=3, minimum=1))) == ["a-0", "a-1"]


def test_no_gate_is_opened_for_half_a_gang() -> None:
    assert opened(world(gated("a", members=3))) == []


def test_pods_without_a_gate_come_first() -> None:
    """`b` waits for nodes; what it requests is not given to `a`."""
    b = gang("b", members=2, cpu=1, queue="q")
    assert opened(world(b, gated("a"), nodes=0)) == []


def test_other_gates_stay() -> None:
    assert opened(world(gated("a", gates=(GATE, "example.com/quota")))) == []
    assert opened(world(gated("a", gates=("example.com/quota",)))) == []


def test_gates_do_not_wait_for_nodes() -> None:
    """An autoscaler sees the pod once its queue allows it."""
    full = gang("full", members=8, cpu=1, running_on=["n0"] * 8, phase="Running")
    assert opened(world(full, gated("a"))) == ["a-0"]


def test_the_annotation_adds_the_gate_once() -> None:
    made: dict[str, Any] = {"metadata": {"annotations": {GATE: "true"}}}
    default_queue_gate(made)
    default_queue_gate(made)
    assert made["spec"]["schedulingGates"] == [{"name": GATE}]
    other: dict[str, Any] = {"metadata": {"annotations": {GATE: "false"}}}
    default_queue_gate(other)
    assert "spec" not in other


async def test_a_gated_pod_is_bound_when_its_queue_gets_room(world: World) -> None:
    """On the embedded server: admission adds the gate, the scheduler removes it and binds."""
    await world.scheduler()
    await world.node("n1", cpu=4)
    spec = {"weight": 1, "capability": {"cpu": "1"}}
    await world.client.create(QUEUES, {"metadata": {"name": "q"}, "spec": spec})
    for name in ("first", "second"):
        await world.group(name, 1, queue="q")
        body = pod(f"{name}-0", group=name)
        body["metadata"].setdefault("annotations", {})[GATE] = "true"
        await world.client.create(PODS, body)
        if name == "first":
            await world.bound("first-0")

    def is_gated(pods: Objects) -> bool:
        return bool(pods["second-0"]["spec"].get("schedulingGates"))

    await world.until(PODS, is_gated)
    await world.remove("first-0")
    await world.bound("second-0")
