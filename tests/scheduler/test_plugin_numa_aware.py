"""numa-aware: exclusive CPUs on as few NUMA nodes as the policy requires."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.api.meta import convert
from hekla.api.nodeinfo import Numatopology, ResourceInfo
from hekla.api.numa import read_decision
from hekla.api.wellknown import NUMA_TOPOLOGY_POLICY, TOPOLOGY_DECISION
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.numa import Layout
from hekla.scheduler.state.status import PENDING
from hekla.testing import GroupBuilder, Result, TestCluster, cluster, gang, node, pod
from hekla.units.cpusets import format_cpuset, parse_cpuset

CONF = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: numa-aware
    arguments:
      weight: 2
"""


def layout(
    name: str,
    policy: str = "single-numa-node",
    *,
    manager: str = "static",
    numas: int = 2,
    each: int = 4,
    reserved: str = "0",
    pods: tuple[dict[str, Any], ...] = (),
) -> Numatopology:
    """NUMA node 0 has the first CPUs, node 1 the next, …"""
    count = numas * each
    details = {str(c): {"numa": c // each, "socket": c // each, "core": c} for c in range(count)}
    spec = {
        "policies": {"CPUManagerPolicy": manager, "TopologyManagerPolicy": policy},
        "resReserved": {"cpu": reserved},
        "numares": {"cpu": {"allocatable": f"0-{count - 1}", "capacity": count}},
        "cpuDetail": details,
        "podAllocations": list(pods),
    }
    return convert({"metadata": {"name": name}, "spec": spec}, Numatopology)


def job(name: str, members: int = 1, cpu: Any = 2, policy: str = "", **more: Any) -> GroupBuilder:
    notes = {NUMA_TOPOLOGY_POLICY: policy} if policy else {}
    status = {"qosClass": more.pop("qos", "Guaranteed")}
    return gang(name, members=members, cpu=cpu, pod_annotations=notes, status=status, **more)


def world(jobs: list[GroupBuilder], *layouts: Numatopology, cpu: int = 8) -> TestCluster:
    made = cluster([node(each.name, cpu=cpu) for each in layouts], jobs, conf=CONF)
    for each in layouts:
        made.state.numa_topologies[each.name] = each
    return made


def decisions(result: Result) -> dict[str, dict[int, int]]:
    return {
        bind.pod: read_decision(bind.annotations.get(TOPOLOGY_DECISION))
        for bind in result.plan.binds
    }


def test_the_founding_configuration_is_this_one() -> None:
    founding = Path(__file__).parents[3] / "shared" / "founding" / "scheduler-numa.conf"
    if founding.exists():
        assert founding.read_text() == CONF


def test_a_decision_is_written_as_volcano_writes_it() -> None:
    result = world([job("a", cpu=3, policy="single-numa-node")], layout("n")).run()
    assert result.plan.binds[0].annotations == {TOPOLOGY_DECISION: '{"numa":{"0":{"cpu":"3"}}}'}


def test_pods_of_three_cpus_leave_one_of_each_numa_node_that_no_fourth_can_use() -> None:
    result = world([job("a", 3, cpu=3, minimum=1, policy="single-numa-node")], layout("n")).run()
    assert decisions(result) == {"a-0": {0: 3}, "a-1": {1: 3}}


ADMITTED = {
    # Of 4 + 4 CPUs, 3 + 3 are used: one is idle on each NUMA node.
    ("none", 2): True,
    ("best-effort", 2): True,
    ("restricted", 2): False,  # two could be on one NUMA node, and are not
    ("single-numa-node", 2): False,
    ("restricted", 1): True,
    ("single-numa-node", 1): True,
}


@pytest.mark.parametrize(("policy", "cpu"), ADMITTED)
def test_policies_on_a_node_with_one_free_cpu_per_numa_node(policy: str, cpu: int) -> None:
    taken = {"uid": "x", "containerAllocations": [{"name": "c", "allocations": {"cpu": "0-2,4-6"}}]}
    result = world([job("a", cpu=cpu)], layout("n", policy, pods=(taken,))).run()
    assert bool(result.binds) == ADMITTED[policy, cpu]


def test_restricted_uses_two_numa_nodes_if_one_is_never_enough() -> None:
    result = world([job("a", cpu=6, policy="restricted")], layout("n", "restricted")).run()
    assert decisions(result) == {"a-0": {0: 4, 1: 2}}
    result = world([job("a", cpu=6, policy="single-numa-node")], layout("n")).run()
    assert "no NUMA nodes that fit under policy single-numa-node" in result.why("a")


REFUSED = {
    "no Numatopology": (None, "single-numa-node", "no Numatopology"),
    "no pinning": (layout("n", manager="none"), "single-numa-node", "not static"),
    "another policy": (layout("n", "best-effort"), "restricted", "another topology policy"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_pod_with_a_numa_policy_uses_only_nodes_with_that_policy(case: str) -> None:
    found, policy, want_text = REFUSED[case]
    made = cluster([node("n", cpu=8)], [job("a", policy=policy)], conf=CONF)
    if found is not None:
        made.state.numa_topologies["n"] = found
    assert want_text in made.run().why("a")


@pytest.mark.parametrize("odd", [{"cpu": "2500m"}, {"qos": "Burstable"}, {"policy": "none"}])
def test_pods_without_exclusive_cpus_are_ignored(odd: dict[str, Any]) -> None:
    full = {"uid": "x", "containerAllocations": [{"name": "c", "allocations": {"cpu": "0-7"}}]}
    result = world([job("a", **odd)], layout("n", pods=(full,))).run()
    assert (result.binds, decisions(result)) == ({"a-0": "n"}, {"a-0": {}})


def test_the_node_that_needs_fewer_numa_nodes_is_preferred() -> None:
    # On `a` six CPUs span two NUMA nodes of four, on `b` one of eight.
    nodes = (layout("a", "best-effort"), layout("b", "best-effort", each=8))
    assert world([job("j", cpu=6)], *nodes, cpu=16).run().binds == {"j-0": "b"}


def test_reserved_cpus_are_not_allocated() -> None:
    result = world([job("a", 2, cpu=4, minimum=1)], layout("n", reserved="500m")).run()
    assert decisions(result) == {"a-0": {1: 4}}


def test_a_decision_counts_until_the_node_reports_it() -> None:
    made = world([job("a", cpu=4)], layout("n"))
    made.live(made.run())
    made.add(job("b", cpu=4))
    made.add(job("c", cpu=1))
    second = made.run()
    assert decisions(second) == {"b-0": {1: 4}}
    told = {"uid": "default-a-0", "containerAllocations": [
        {"name": "main", "allocations": {"cpu": "0-3"}}]}  # fmt: skip
    made.state.numa_topologies["n"] = layout("n", pods=(told,))
    assert decisions(made.run()) == {"b-0": {1: 4}}


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.sampled_from(
    ["best-effort", "restricted", "single-numa-node"]))  # fmt: skip
def test_no_numa_node_is_overcommitted(sizes: list[int], policy: str) -> None:
    jobs = [job(f"j{i}", cpu=cpu) for i, cpu in enumerate(sizes)]
    result = world(jobs, layout("n", policy), layout("m", policy)).run()
    used: dict[tuple[str, int], int] = {}
    for bind in result.plan.binds:
        for numa, cpus in read_decision(bind.annotations.get(TOPOLOGY_DECISION)).items():
            used[bind.node, numa] = used.get((bind.node, numa), 0) + cpus
    assert all(cpus <= 4 for cpus in used.values())
    for bind in result.plan.binds:
        wanted = sizes[int(bind.pod[1:-2])]
        found = read_decision(bind.annotations.get(TOPOLOGY_DECISION))
        assert sum(found.values()) == wanted
        if policy == "single-numa-node":
            assert len(found) == 1
        if policy == "restricted":
            assert len(found) == -(-wanted // 4)


@given(st.sets(st.integers(0, 200)))
def test_a_set_of_cpus_is_read_as_it_was_written(cpus: set[int]) -> None:
    assert parse_cpuset(format_cpuset(cpus)) == cpus


def test_invalid_numatopology_entries_are_no_cpus() -> None:
    broken = layout("n")
    broken.spec.numares["cpu"] = ResourceInfo(allocatable="x-y")
    found = Layout.of(broken, cluster([node("n")]).state.nodes["n"])
    assert set(found.free.values()) == {0}


def test_a_numatopology_with_absurd_numbers_offers_its_valid_part() -> None:
    broken = layout("n", reserved="-100")
    broken.spec.cpu_detail["9" * 5000] = broken.spec.cpu_detail["0"]
    found = Layout.of(broken, cluster([node("n")]).state.nodes["n"])
    assert found.free == found.capacity == {0: 4, 1: 4}


LIES = {
    "less than nothing": '{"numa":{"0":{"cpu":"-100"}}}',
    "less than nothing, and something": '{"numa":{"0":{"cpu":"-100"},"1":{"cpu":"100"}}}',
    "without end": "[" * 100_000,
    "more than there is": '{"numa":{"0":{"cpu":"1e30"}}}',
    "more than it asks for": '{"numa":{"0":{"cpu":"4"}}}',
    "a negative place": '{"numa":{"-1":{"cpu":"1"}}}',
    "no number": '{"numa":{"0":{"cpu":NaN}}}',
    "a long number": '{"numa":{"0":{"cpu":%s}}}' % ("9" * 5000),
}


@pytest.mark.parametrize("case", LIES)
def test_pod_annotations_neither_free_nor_take_cpus(case: str) -> None:
    made = world([job("a", cpu=4), job("b", cpu=4), job("c", cpu=4)], layout("n"), cpu=14)
    made.state.set_pod(
        pod(
            "liar",
            node="n",
            cpu=2,
            status={"qosClass": "Guaranteed"},
            annotations={TOPOLOGY_DECISION: LIES[case]},
        )
    )
    first = made.run()
    assert first.plan.failures == []
    assert decisions(first) == {"a-0": {0: 4}, "b-0": {1: 4}}
    made.live(first)
    assert made.run().binds == {}


def test_pods_with_a_numa_policy_are_pending_without_layouts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = world([job("a", cpu=4)], layout("n", "best-effort"))

    def fails(*given: object) -> None:
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(made.state.node_table.layouts, "by_column", fails)
    assert made.run().binds == {}


POLICIES = ["none", "best-effort", "restricted", "single-numa-node"]


@st.composite
def machines(draw: st.DrawFn) -> list[Numatopology]:
    return [
        layout(
            f"n{i}",
            draw(st.sampled_from(POLICIES)),
            numas=draw(st.sampled_from([1, 2, 4])),
            each=draw(st.sampled_from([2, 4])),
            reserved=draw(st.sampled_from(["0", "1"])),
        )
        for i in range(draw(st.integers(1, 6)))
    ]


@given(machines(), st.sampled_from([1, 2, 3, 5]), st.integers(2, 15))
def test_session_placement_of_many_tasks_equals_one_by_one(
    layouts: list[Numatopology], cpu: int, count: int
) -> None:
    made = world([job("a", 15, cpu=cpu, minimum=1)], *layouts, cpu=16)
    pending = made.state.jobs["default/a"].by_status[PENDING].values()
    with Session(made.state, made.config, 0.0) as session:
        tasks = session.in_task_order(pending)
        at_once = session.placer.best_nodes(tasks[0], count).tolist()
        affects_other_nodes: list[int] = []
        with session.statement() as statement:
            for task in tasks[:count]:
                index = session.placer.best_nodes(task, 1)
                if len(index) == 0:
                    break
                statement.allocate((task,), index)
                affects_other_nodes += index.tolist()
        again = session.placer.best_nodes(tasks[0], count).tolist()
    assert affects_other_nodes == at_once
    assert again == at_once  # rolled-back CPUs are idle again
    assert not session.plan.failures


def test_a_numa_layout_is_updated_when_pods_with_exclusive_cpus_change() -> None:
    made = world([job("a", cpu=4), job("b", cpu=4), job("c", cpu=4)], layout("n"), cpu=12)
    made.live(made.run())
    assert made.run().binds == {}  # both NUMA nodes are full, though the node has CPUs left
    made.state.delete_pod("default-a-0")
    assert decisions(made.run()) == {"c-0": {0: 4}}
