"""network-topology-aware: gangs in one network domain, and verdicts if none fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from hekla.api.topology import HyperNode
from hekla.api.wellknown import JOB_ALLOCATED_HYPERNODE, PARTITION_ID
from hekla.scheduler.framework.plan import SetGroupStatus
from hekla.testing import (
    GroupBuilder,
    Result,
    TestCluster,
    cluster,
    gang,
    hypernode,
    node,
    pod,
    queue,
)

CONF = """\
actions: "%s"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
  - {name: conformance}
- plugins:
  - {name: predicates}
  - {name: network-topology-aware, arguments: {%s}}
"""
NODES = [f"n{i}" for i in range(8)]
RACKS = [
    hypernode(f"r{i}", 1, nodes=NODES[2 * i : 2 * i + 2], tier_name="rack") for i in range(4)
]  # fmt: skip
SPINES = [
    hypernode("s0", 2, children=["r0", "r1"], tier_name="spine"),
    hypernode("s1", 2, children=["r2", "r3"], tier_name="spine"),
]
HARD1 = {"mode": "hard", "highestTierAllowed": 1}
HARD2 = {"mode": "hard", "highestTierAllowed": 2}
SOFT = {"mode": "soft"}


def world(
    *jobs: GroupBuilder,
    cpus: Mapping[str, int] | None = None,
    parts: Iterable[HyperNode] = (*RACKS, *SPINES),
    actions: str = "allocate",
    arguments: str = "",
    **more: Any,
) -> TestCluster:
    """Eight nodes of two CPUs in four racks under two spines."""
    nodes = [node(name, cpu=(cpus or {}).get(name, 2)) for name in NODES]
    return cluster(nodes, jobs, hypernodes=parts, conf=CONF % (actions, arguments), **more)


def racks(result: Result) -> set[str]:
    return {f"r{int(name[1:]) // 2}" for name in result.binds.values()}


def busy(where: str, cpu: int = 1) -> GroupBuilder:
    """A job of one pod that runs on a node."""
    return gang(f"on-{where}", cpu=cpu, running_on=[where], phase="Running")


# --- one domain -------------------------------------------------------------------------------


def test_a_gang_with_hard_topology_is_placed_in_one_rack() -> None:
    result = world(gang("train", members=4, cpu=1, network=HARD1)).run()
    assert len(result.binds) == 4
    assert racks(result) == {"r0"}


def test_without_topology_a_gang_may_use_any_node() -> None:
    jobs = [busy("n0"), gang("train", members=4, cpu=2)]
    assert len(racks(world(*jobs).run())) > 1


def test_a_gang_takes_the_fullest_rack_that_still_holds_it() -> None:
    result = world(busy("n4"), gang("train", members=3, cpu=1, network=HARD1)).run()
    assert racks(result) == {"r2"}


def test_a_rack_without_enough_capacity_is_skipped() -> None:
    result = world(busy("n4"), gang("train", members=4, cpu=1, network=HARD1)).run()
    assert racks(result) == {"r0"}


def test_a_gang_too_large_for_a_rack_goes_up_a_tier_and_no_further() -> None:
    result = world(busy("n0"), gang("train", members=8, cpu=1, network=HARD2)).run()
    assert racks(result) == {"r2", "r3"}


def test_a_wider_domain_is_filled_rack_by_rack() -> None:
    result = world(gang("train", members=6, cpu=1, network=HARD2)).run()
    per_node = [list(result.binds.values()).count(name) for name in NODES]
    assert sorted((sum(per_node[2 * i : 2 * i + 2]) for i in range(4)), reverse=True) == [
        4,
        2,
        0,
        0,
    ]


def test_the_tier_may_be_given_by_name() -> None:
    by_name = {"mode": "hard", "highestTierName": "rack"}
    assert racks(world(gang("t", members=4, cpu=1, network=by_name)).run()) == {"r0"}
    assert not world(gang("t", members=5, cpu=1, network=by_name)).run().binds


def test_soft_topology_prefers_low_tiers_and_accepts_any() -> None:
    assert racks(world(gang("t", members=4, cpu=1, network=SOFT)).run()) == {"r0"}
    assert len(world(gang("t", members=16, cpu=1, network=SOFT)).run().binds) == 16


def test_a_wider_domain_now_is_preferred_to_a_closer_one_later() -> None:
    terminating = [
        gang(f"old-{name}", cpu=2, running_on=[name], phase="Running", deleting=True)
        for name in ("n0", "n1")
    ]
    result = world(
        *terminating, *(busy(name) for name in NODES[2:]),
        gang("t", members=4, cpu=1, network=HARD2),
    ).run()  # fmt: skip
    assert racks(result) == {"r2", "r3"}


def test_a_gang_is_pipelined_on_releasing_resources_of_its_domain() -> None:
    terminating = [
        gang(f"old-{name}", cpu=2, running_on=[name], phase="Running", deleting=True)
        for name in ("n0", "n1")
    ]
    full = [busy(name) for name in NODES[2:]]
    result = world(*terminating, *full, gang("t", members=4, cpu=1, network=HARD1)).run()
    assert result.binds == {}
    assert set(result.pipelined.values()) == {"n0", "n1"}


# --- members that come later ------------------------------------------------------------------


def test_a_replaced_member_returns_to_its_gangs_rack() -> None:
    crowded = [busy("n0"), busy("n6", 2)]  # packing alone would choose r3
    job = gang("t", members=4, cpu=1, network=HARD1, running_on=["n2", "n2", "n3"])
    result = world(*crowded, job).run()
    assert result.binds == {"t-3": "n3"}


def test_a_replaced_member_is_pending_if_its_rack_is_full() -> None:
    job = gang("t", members=4, cpu=1, network=HARD1, running_on=["n2", "n2", "n3"])
    result = world(busy("n3"), job).run()
    assert result.binds == {}
    assert "around its other members" in result.why("t")
    assert "0 in r1 (tier 1)" in result.why("t")


def said(result: Result, name: str = "t") -> list[str | None]:
    """Return the recorded domain of a gang."""
    found = (e for e in result.plan.effects if isinstance(e, SetGroupStatus))
    return [effect.domain for effect in found if effect.group == name]


PLACES: dict[str, tuple[dict[str, Any], str | None]] = {
    "one rack": ({"members": 4, "network": HARD1}, "r0"),
    "two racks of a spine": ({"members": 6, "network": HARD2}, "s0"),
    "both spines: that is no HyperNode": ({"members": 9, "network": SOFT}, None),
    "nothing is said of who asks for nothing": ({"members": 4}, None),
}


@pytest.mark.parametrize("case", PLACES)
def test_a_podgroup_has_the_hypernode_of_its_gang(case: str) -> None:
    shape, want = PLACES[case]
    assert said(world(gang("t", cpu=1, **shape)).run()) == [want]


def test_the_hypernode_of_a_gang_is_written_once_and_when_it_changes() -> None:
    state = world(gang("t", members=5, minimum=2, cpu=1, network=HARD2))
    told = []
    for moment in range(4):
        result = state.run(now=1_700_000_000.0 + moment)
        told += said(result)
        state.live(result)
    assert [domain for domain in told if domain is not None] == ["s0"]
    gone = next(uid for uid, pod in state.pods.items() if pod.spec.node_name == "n2")
    state.pods.pop(gone)
    state.state.delete_pod(gone)
    result = state.run(now=1_700_000_010.0)
    assert said(result) == ["r0"]


def test_without_the_plugin_no_hypernode_is_written() -> None:
    conf = CONF.replace("  - {name: network-topology-aware, arguments: {%s}}\n", "") % "allocate"
    nodes = [node(name, cpu=2) for name in NODES]
    job = gang("t", members=2, cpu=1, network=HARD1)
    assert said(cluster(nodes, [job], hypernodes=RACKS, conf=conf).run()) == [None]


BACK: dict[str, tuple[str, list[GroupBuilder], str]] = {
    "to its rack, though packing would choose another": ("r2", [busy("n0")], "r2"),
    "within its spine": ("s1", [busy("n0")], "r2"),
    "elsewhere if there is no room": ("r2", [busy("n4", 2), busy("n0")], "r0"),
    "anywhere if the rack is gone": ("r9", [busy("n6")], "r3"),
}


@pytest.mark.parametrize("case", BACK)
def test_a_restarted_gang_is_placed_in_its_former_domain(case: str) -> None:
    where, crowd, want = BACK[case]
    notes = {JOB_ALLOCATED_HYPERNODE: where}
    job = gang("t", members=3, cpu=1, network=HARD1, annotations=notes)
    assert racks(world(*crowd, job).run()) == {want}


def test_surplus_members_stay_in_the_domain() -> None:
    job = gang("t", members=9, minimum=2, cpu=1, network=HARD1)
    result = world(job).run()
    assert len(result.binds) == 4
    assert racks(result) == {"r0"}
    assert "surplus tasks do not fit" in result.why("t")


def test_surplus_members_are_placed_as_close_as_possible() -> None:
    job = gang("t", members=6, minimum=2, cpu=1, network=HARD2, running_on=["n2", "n3"])
    result = world(job).run()
    assert sorted(result.binds.values()) == ["n0", "n0", "n2", "n3"]


# --- verdicts ---------------------------------------------------------------------------------


def test_the_verdict_names_the_domains_and_what_each_lacks() -> None:
    result = world(busy("n0"), gang("t", members=5, cpu=1, network=HARD1)).run()
    verdict = result.verdict("t")
    assert verdict is not None
    assert verdict.gate == "NetworkTopology"
    assert "4 HyperNodes of tier 1 or lower were tried for 5 tasks" in verdict.message
    assert "4 in r1 (tier 1), 4 in r2 (tier 1), 4 in r3 (tier 1)" in verdict.message
    assert verdict.fitting == 4
    assert "1 more task of 1 cpu in r1" in verdict.change


PROBLEMS: dict[str, tuple[Mapping[str, Any], list[HyperNode], str]] = {
    "a tier name that nobody has": (
        {"mode": "hard", "highestTierName": "pod"},
        RACKS,
        "no HyperNode has the tier name 'pod' (there are: rack)",
    ),
    "a tier below the lowest": (
        {"mode": "hard", "highestTierAllowed": 0},
        RACKS,
        "no HyperNode is of tier 0 or lower; the lowest is 1",
    ),
    "no HyperNodes": (HARD1, [], "there are no HyperNodes"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_an_impossible_hard_topology_stays_pending_with_a_reason(name: str) -> None:
    network, parts, want = PROBLEMS[name]
    result = world(gang("t", members=2, cpu=1, network=network), parts=parts).run()
    assert result.binds == {}
    assert want in result.why("t")


def test_a_discarded_preemption_does_not_affect_the_next() -> None:
    """Tried in both racks, role by role, and rolled back: the verdict names the same pod."""
    members = [
        pod(f"t-{role}-{i}", group="t", role=role, cpu=cpu)
        for role, cpu, count in (("a", 2, 2), ("b", 1, 3))
        for i in range(count)
    ]
    made = gang("t", members=0, minimum=5, network=HARD1).and_pods(*members)
    found = world(made, cpus=dict.fromkeys(NODES, 3))
    first = found.run().plan.effects
    assert first
    assert first == found.run().plan.effects


def test_contradicting_hypernodes_are_notes_and_stop_no_job() -> None:
    parts = [*RACKS, hypernode("bad", 1, children=["bad"]), hypernode("thief", 2, nodes=["gone"])]
    result = world(
        gang("t", members=4, cpu=1, network=HARD1), gang("u", members=5, cpu=1, network=HARD1),
        parts=parts,
    ).run()  # fmt: skip
    assert len(racks(result)) == 1
    assert "HyperNode bad: its member bad is of tier 1" in result.why("u")
    assert "HyperNode thief: there is no node gone" in result.why("u")


def test_without_the_plugin_the_topology_is_ignored_and_noted() -> None:
    conf = 'actions: "allocate"\ntiers: [{plugins: [{name: gang}, {name: predicates}]}]'
    result = cluster(
        [node("n0", cpu=1)], [gang("t", members=2, cpu=1, network=HARD1)], conf=conf
    ).run()  # fmt: skip
    assert "network-topology-aware is not configured" in result.why("t")


# --- sub-groups -------------------------------------------------------------------------------


def parted(
    sizes: Iterable[int], *, each: Mapping[str, Any] | None = None, least: int = 0,
    size: int = 2, minimum: int | None = None, network: Mapping[str, Any] | None = None,
    running: Mapping[str, str] | None = None,
) -> GroupBuilder:  # fmt: skip
    """Return a job whose pods have a partition label, as the Job controller creates them."""
    policy = {
        "name": "worker",
        "subGroupSize": size,
        "minSubGroups": least,
        "matchLabelKeys": [PARTITION_ID],
        "labelSelector": {"matchLabels": {"role": "worker"}},
    }
    if each is not None:
        policy["networkTopology"] = dict(each)
    pods, index = [], 0
    for part, count in enumerate(sizes):
        for _ in range(count):
            name = f"j-worker-{index}"
            labels = {PARTITION_ID: str(part), "role": "worker"}
            where = (running or {}).get(name, "")
            pods.append(pod(name, group="j", role="worker", cpu=1, labels=labels, node=where))
            index += 1
    least_members = len(pods) if minimum is None else minimum
    job = gang("j", members=0, minimum=least_members, network=network, subgroups=[policy])
    return job.and_pods(*pods)


def rack_of(result: Result, *numbers: int) -> set[str]:
    return {f"r{int(result.binds[f'j-worker-{n}'][1:]) // 2}" for n in numbers}


def test_subgroups_with_similar_names_are_distinct() -> None:
    policy = {"name": "p", "subGroupSize": 1, "matchLabelKeys": ["a", "b"]}
    pods = [
        pod(f"j-{a}", group="j", cpu=1, labels={"a": a, "b": b})
        for a, b in (("1-2", "3"), ("1", "2-3"))
    ]
    made = world(gang("j", members=0, minimum=2, subgroups=[policy]).and_pods(*pods))
    groups = {task.subgroup for task in made.state.jobs["default/j"].tasks.values()}
    assert {group.name for group in groups if group} == {"p-1-2-3"}
    assert len(groups) == 2


def test_every_subgroup_is_placed_in_one_rack() -> None:
    result = world(parted([4, 4, 4], each=HARD1, size=4)).run()
    assert len(result.binds) == 12
    for first in (0, 4, 8):
        assert len(rack_of(result, *range(first, first + 4))) == 1


def test_subgroups_are_in_racks_and_the_job_in_a_spine() -> None:
    result = world(busy("n0"), parted([4, 4], each=HARD1, size=4, network=HARD2)).run()
    assert rack_of(result, *range(8)) == {"r2", "r3"}
    assert len(rack_of(result, 0, 1, 2, 3)) == 1


def test_subgroups_that_fit_no_rack_keep_the_job_pending() -> None:
    result = world(parted([5, 3], each=HARD1, size=3)).run()
    assert result.binds == {}
    assert "r0" in result.why("j")


def test_only_the_minimum_of_subgroups_must_be_placed() -> None:
    crowded = [busy(name) for name in ("n2", "n4", "n6")]
    result = world(*crowded, parted([4, 4], each=HARD1, size=4, least=1, minimum=4)).run()
    assert len(result.binds) == 4
    assert rack_of(result, 0, 1, 2, 3) == {"r0"}
    assert "tier 1 or lower" in result.why("j")


def test_a_subgroup_is_placed_whole_or_not_at_all_without_topology() -> None:
    nodes = [node("n0", cpu=5)]
    job = parted([3, 3], size=3, least=1, minimum=3)
    result = cluster(nodes, [job], conf=CONF % ("allocate", "")).run()
    assert sorted(result.binds) == ["j-worker-0", "j-worker-1", "j-worker-2"]


def test_a_job_with_too_few_subgroups_is_pending() -> None:
    result = world(parted([2], least=2)).run()
    assert result.binds == {}
    assert "not enough sub-groups of policy 'worker'" in result.why("j")


def test_a_replaced_subgroup_member_is_placed_in_its_subgroups_rack() -> None:
    running = {"j-worker-0": "n6", "j-worker-2": "n2", "j-worker-3": "n2"}
    result = world(parted([2, 2], each=HARD1, running=running)).run()
    assert result.binds == {"j-worker-1": "n6"}


# --- eviction ---------------------------------------------------------------------------------

PRIORITIES = {"low": 1, "high": 100}


def low(name: str, where: list[str], cpu: int = 1) -> GroupBuilder:
    return gang(
        name, members=len(where), cpu=cpu, running_on=where, phase="Running",
        priority_class="low",
    )  # fmt: skip


def test_gangpreempt_evicts_from_one_rack_for_a_gang_with_hard_topology() -> None:
    victims = [low(f"v{i}", [name], 2) for i, name in enumerate(NODES)]
    taker = gang("t", members=4, cpu=1, network=HARD1, priority_class="high")
    result = world(
        *victims, taker, actions="allocate, gangpreempt", priorities=PRIORITIES
    ).run()  # fmt: skip
    assert len(result.evictions) == 2
    where = set(result.pipelined.values())
    assert len({int(name[1:]) // 2 for name in where}) == 1
    assert {f"v{name[1:]}-0" for name in where} == set(result.evictions)


def test_gangpreempt_evicts_no_pod_for_a_gang_larger_than_any_rack() -> None:
    victims = [low(f"v{i}", [name], 2) for i, name in enumerate(NODES)]
    taker = gang("t", members=5, cpu=1, network=HARD1, priority_class="high")
    result = world(
        *victims, taker, actions="allocate, gangpreempt", priorities=PRIORITIES
    ).run()  # fmt: skip
    assert result.evictions == []


def test_gangpreempt_uses_the_rack_with_the_most_idle_resources() -> None:
    victims = [low(f"v{i}", [name], 2) for i, name in enumerate(NODES) if name != "n5"]
    taker = gang("t", members=4, cpu=1, network=HARD1, priority_class="high")
    result = world(
        *victims, taker, actions="allocate, gangpreempt", priorities=PRIORITIES
    ).run()  # fmt: skip
    assert result.evictions == ["v4-0"]


def test_gangreclaim_evicts_from_one_rack_of_an_overused_queue() -> None:
    victims = [
        gang(f"v{i}", cpu=2, running_on=[name], phase="Running", queue="borrower")
        for i, name in enumerate(NODES)
    ]
    taker = gang("t", members=4, cpu=1, network=HARD1, queue="lender")
    conf = CONF.replace("{name: predicates}", "{name: predicates}\n  - {name: proportion}")
    result = cluster(
        [node(name, cpu=2) for name in NODES],
        [*victims, taker],
        hypernodes=(*RACKS, *SPINES),
        queues=[queue("borrower"), queue("lender")],
        conf=conf % ("allocate, gangreclaim", ""),
    ).run()
    assert len(result.evictions) == 2
    assert len({int(name[1:]) // 2 for name in result.pipelined.values()}) == 1
    assert {f"v{name[1:]}-0" for name in result.pipelined.values()} == set(result.evictions)


def test_preempt_evicts_surplus_in_one_rack_for_a_gang_with_hard_topology() -> None:
    """Each node has an elastic job of two pods; plugins allow one of each to be evicted."""
    victims = [
        gang(
            f"v{i}", members=2, minimum=1, cpu=1, running_on=[name] * 2,
            phase="Running", priority_class="low",
        )
        for i, name in enumerate(NODES)
    ]  # fmt: skip
    taker = gang("t", members=2, cpu=1, network=HARD1, priority_class="high")
    for actions in ("allocate, preempt", "allocate, preempt, gangpreempt"):
        result = world(*victims, taker, actions=actions, priorities=PRIORITIES).run()
        assert len(result.evictions) == 2
        assert len({int(name[1:]) // 2 for name in result.pipelined.values()}) == 1


def test_reclaim_serves_a_gang_with_hard_topology() -> None:
    victims = [
        gang(
            f"v{i}", members=2, minimum=1, cpu=1, running_on=[name] * 2,
            phase="Running", queue="borrower",
        )
        for i, name in enumerate(NODES)
    ]  # fmt: skip
    conf = CONF.replace("{name: predicates}", "{name: predicates}\n  - {name: proportion}")
    result = cluster(
        [node(name, cpu=2) for name in NODES],
        [*victims, gang("t", members=2, cpu=1, network=HARD1, queue="lender")],
        hypernodes=(*RACKS, *SPINES),
        queues=[queue("borrower"), queue("lender")],
        conf=conf % ("allocate, reclaim", ""),
    ).run()
    assert len(result.evictions) == 2
    assert len({int(name[1:]) // 2 for name in result.pipelined.values()}) == 1


def test_the_gang_is_bound_in_the_cleared_rack_once_victims_are_gone() -> None:
    victims = [low(f"v{i}", [name], 2) for i, name in enumerate(NODES)]
    taker = gang("t", members=4, cpu=1, network=HARD1, priority_class="high")
    stage = world(*victims, taker, actions="allocate, gangpreempt", priorities=PRIORITIES)
    first = stage.run()
    stage.live(first)
    second = stage.run()
    assert second.evictions == []
    assert second.binds == first.pipelined


def test_nodes_of_one_rack_are_reserved_for_a_gang_with_hard_topology() -> None:
    old = gang("big", members=4, cpu=1, network=HARD1, age=3600)
    small = gang("small", members=10, minimum=1, cpu=1)
    result = world(*(busy(name) for name in NODES), old, small).run()
    assert "2 nodes are reserved for it until it fits" in result.why("big")
    kept = {0, 1, 2, 3} - {int(name[1]) // 2 for name in result.binds.values()}
    assert len(kept) == 1
    assert len(result.binds) == 6


# --- pods without requests --------------------------------------------------------------------


def test_normal_pods_fill_domains() -> None:
    result = world(busy("n4"), gang("t", cpu=1)).run()
    assert racks(result) == {"r2"}


def test_domain_packing_of_normal_pods_can_be_disabled() -> None:
    off = "hypernode.binpack.normal-pod.enable: false"
    result = world(busy("n4"), gang("t", cpu=1), arguments=off).run()
    assert racks(result) == {"r0"}
