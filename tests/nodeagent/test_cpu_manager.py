"""Exclusive CPUs: on simulated topologies, and on this machine with real processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.api.numa import TOPOLOGY_POLICIES, write_decision
from hekla.api.wellknown import TOPOLOGY_DECISION
from hekla.kube.resources import NUMA_TOPOLOGIES, PODS
from hekla.nodeagent.cgroups import Cgroups
from hekla.nodeagent.cpu_manager import CpuLocation, CpuManager
from hekla.nodeagent.errors import AllocationError
from hekla.units.cpusets import parse_cpuset
from hekla.units.objects import Object
from tests.nodeagent.conftest import Machine


def machine_of(*numas: int, policy: str = "none") -> CpuManager:
    """Return consecutive CPUs, two threads per core, with a number per NUMA node."""
    numa_of = [numa for numa, size in enumerate(numas) for _ in range(size)]
    locations = {cpu: CpuLocation(numa, numa, cpu // 2) for cpu, numa in enumerate(numa_of)}
    return CpuManager(frozenset(locations), locations, "static", policy)


def pod(
    uid: str, *cpus: str, qos: str = "Guaranteed", decision: dict[int, int] | None = None
) -> Object:
    notes = {TOPOLOGY_DECISION: write_decision(decision)} if decision else {}
    return {
        "metadata": {"uid": uid, "name": uid, "namespace": "default", "annotations": notes},
        "spec": {
            "containers": [
                {"name": f"c{i}", "resources": {"requests": {"cpu": amount}}}
                for i, amount in enumerate(cpus)
            ]
        },
        "status": {"qosClass": qos},
    }


def allocate(cpus: CpuManager, made: Object) -> list[set[int]]:
    return [cpus.allocate(made, container) for container in made["spec"]["containers"]]


def test_exclusive_cpus_come_from_the_fullest_numa_node_that_fits() -> None:
    cpus = machine_of(4, 4)
    assert allocate(cpus, pod("a", "3")) == [{0, 1, 2}]
    assert allocate(cpus, pod("b", "2")) == [{4, 5}]
    assert allocate(cpus, pod("c", "1")) == [{3}]
    assert allocate(cpus, pod("a", "3")) == [{0, 1, 2}], "a pod keeps its CPUs"
    assert cpus.shared_pool() == {6, 7}


def test_containers_without_whole_cpu_requests_use_the_shared_pool() -> None:
    cpus = machine_of(4)
    assert allocate(cpus, pod("a", "1500m")) == [set()]
    assert allocate(cpus, pod("b", "2", qos="Burstable")) == [set()]
    cpus.policy = "none"
    assert allocate(cpus, pod("c", "2")) == [set()]
    assert cpus.shared_pool() == {0, 1, 2, 3}


def test_topology_decision_of_the_scheduler_is_followed_per_container() -> None:
    cpus = machine_of(4, 4)
    assert allocate(cpus, pod("a", "2", "2", decision={1: 3, 0: 1})) == [{0, 4}, {5, 6}]
    assert allocate(machine_of(2), pod("b", "2", decision={7: 2})) == [{0, 1}], "no such NUMA node"


@pytest.mark.parametrize(
    "text", ['{"numa":{"0":{"cpu":"-9"}}}', '{"numa":{"1":{"cpu":"1e30"}}}', "[" * 100_000, "{"]
)
def test_invalid_topology_decision_is_ignored(text: str) -> None:
    made = pod("a", "2")
    made["metadata"]["annotations"] = {TOPOLOGY_DECISION: text}
    assert allocate(machine_of(4, 4), made) == [{0, 1}]
    assert allocate(machine_of(4), pod("b", "-2")) == [set()]


@pytest.mark.parametrize(
    ("policy", "refused"),
    [("best-effort", False), ("restricted", True), ("single-numa-node", True)],
)
def test_topology_policy_rejects_scattered_cpus(policy: str, refused: bool) -> None:
    cpus = machine_of(4, 4, policy=policy)
    allocate(cpus, pod("a", "3"))
    allocate(cpus, pod("b", "3"))
    if refused:
        with pytest.raises(AllocationError, match="2 CPUs"):
            allocate(cpus, pod("c", "2"))
        assert "c" not in cpus.assignments
    else:
        assert allocate(cpus, pod("c", "2")) == [{3, 7}]


def test_restricted_allows_a_pod_that_must_span_numa_nodes() -> None:
    cpus = machine_of(2, 2, policy="restricted")
    assert allocate(cpus, pod("a", "3")) == [{0, 1, 2}]


def test_excess_requests_wait_and_the_shared_pool_is_never_empty() -> None:
    cpus = machine_of(2)
    allocate(cpus, pod("a", "2"))
    assert cpus.shared_pool() == {0, 1}
    with pytest.raises(AllocationError, match="0 are free"):
        allocate(cpus, pod("b", "1"))
    assert cpus.release("a")
    assert not cpus.release("a")
    assert allocate(cpus, pod("b", "1")) == [{0}]


def test_next_agent_restores_the_assignments(tmp_path: Path) -> None:
    cpus = machine_of(4)
    allocate(cpus, pod("a", "1", "2"))
    cpus.checkpoint("a", tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "cpus").write_text("nonsense")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "cpus").write_text("[" * 100_000)
    later = machine_of(4)
    later.restore(tmp_path)
    assert later.assignments == {"a": {"c0": {0}, "c1": {1, 2}}}


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    policy=st.sampled_from(TOPOLOGY_POLICIES),
    steps=st.lists(
        st.tuples(st.sampled_from("abcdef"), st.integers(1, 5), st.integers(0, 4)), max_size=20
    ),
)
def test_no_cpu_is_assigned_twice(
    sizes: list[int], policy: str, steps: list[tuple[str, int, int]]
) -> None:
    cpus = machine_of(*sizes, policy=policy)
    for uid, count, numa in steps:
        if uid in cpus.assignments:
            cpus.release(uid)
            continue
        try:
            (own,) = allocate(cpus, pod(uid, str(count), decision={numa: count}))
        except AllocationError:
            continue
        assert len(own) == count
        if policy == "single-numa-node":
            assert len({cpus.locations[cpu].numa for cpu in own}) == 1
        held = [cpu for mine in cpus.assignments.values() for each in mine.values() for cpu in each]
        assert len(held) == len(set(held))
        assert set(held) <= cpus.usable
        assert cpus.shared_pool().isdisjoint(held) or set(held) == cpus.usable


async def test_exclusive_cpu_is_removed_from_other_running_pods(machine: Machine) -> None:
    if not Cgroups().can_pin() or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs cgroups that bind to CPUs (root), and two CPUs")
    await machine.stop_agent()
    machine.start_agent(cpu_policy="static")
    show = "while :; do grep Cpus_allowed_list /proc/self/status; sleep 0.05; done"
    await machine.run_pod("other", "sh", "-c", show)
    await machine.running("other")
    amounts = {"cpu": "1", "memory": "64Mi"}
    own: Object = {"resources": {"requests": amounts, "limits": amounts}}
    await machine.run_pod("own", "sh", "-c", show, container=own)
    await machine.running("own")

    async def seen(name: str) -> set[int]:
        while not (text := await machine.logs(name)).endswith("\n"):
            pass
        return parse_cpuset(text.splitlines()[-1].split()[-1])

    alone = await seen("own")
    assert len(alone) == 1
    while (await seen("other")) & alone:
        pass  # the pod is ended at once; its output is read first
    allocations: list[Object] = []
    async with machine.client.watch(NUMA_TOPOLOGIES) as events:
        while not allocations:
            allocations = (await anext(events)).object["spec"].get("podAllocations") or []
    (allocation,) = allocations[0]["containerAllocations"]
    assert parse_cpuset(allocation["allocations"]["cpu"]) == alone
    await machine.stop_agent()
    machine.start_agent(cpu_policy="static")
    await machine.client.delete(PODS, "own", namespace="default", grace_period_s=0)
    while not (await seen("other")) & alone:
        pass  # an agent without the checkpoint would not release it
