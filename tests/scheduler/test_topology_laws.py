"""Laws of network topology: hard is never violated, and other jobs are unaffected.

The oracle does not use the tree of the scheduler: it reads the HyperNode objects and checks whether
one of an allowed tier contains all nodes of a gang.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hekla.api.topology import HyperNode
from hekla.api.wellknown import GROUP_NAME, PARTITION_ID
from hekla.scheduler.placement import placer
from hekla.testing import GroupBuilder, TestCluster, cluster, gang, hypernode, node, pod

CONF = """\
actions: "allocate, backfill, preempt, gangpreempt, reclaim, gangreclaim"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins:
  - {name: predicates}
  - {name: nodeorder}
  - {name: network-topology-aware, arguments: {hypernode.binpack.normal-pod.enable: %s}}
"""
PRIORITIES = {"low": 1, "high": 100}


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[str], list[HyperNode]]:
    """A valid tree of two or three tiers, sometimes with a contradiction."""
    names = [f"n{i:02d}" for i in range(draw(st.integers(2, 12)))]
    width = draw(st.integers(1, 4))
    racks = [names[i : i + width] for i in range(0, len(names), width)]
    parts = [hypernode(f"r{i}", 1, nodes=nodes) for i, nodes in enumerate(racks)]
    if draw(st.booleans()):
        fan = draw(st.integers(1, 3))
        below = [part.name for part in parts]
        spines = [below[i : i + fan] for i in range(0, len(below), fan)]
        parts += [hypernode(f"s{i}", 2, children=each) for i, each in enumerate(spines)]
    if draw(st.booleans()):
        stray = draw(st.sampled_from(names))
        tier = draw(st.integers(1, 3))
        parts.append(hypernode("zz", tier, nodes=[stray, "gone"], children=["zz", "r0"]))
    return names, parts


@st.composite
def jobs(draw: st.DrawFn) -> list[GroupBuilder]:
    found = []
    for number in range(draw(st.integers(1, 5))):
        members = draw(st.integers(1, 6))
        network = draw(
            st.sampled_from(
                [None, {"mode": "soft"}, *({"highestTierAllowed": t} for t in range(4))]
            )
        )
        size = draw(st.integers(1, 3))
        policy: dict[str, Any] = {
            "name": "p", "subGroupSize": size, "matchLabelKeys": [PARTITION_ID],
            "networkTopology": {"highestTierAllowed": draw(st.integers(1, 2))},
        }  # fmt: skip
        priority = draw(st.sampled_from(["low", "high"]))
        job = gang(
            f"j{number}", members=0, minimum=draw(st.integers(1, members)), network=network,
            subgroups=[policy] if draw(st.booleans()) else [], priority_class=priority,
        )  # fmt: skip
        request = draw(st.sampled_from([None, 1, 2]))
        pods = [
            pod(
                f"j{number}-{i}", group=f"j{number}", cpu=request,
                labels={PARTITION_ID: str(i // size)},
            )
            for i in range(members)
        ]  # fmt: skip
        found.append(job.and_pods(*pods))
    return found


def covers(parts: Iterable[HyperNode], tier: int, nodes: set[str]) -> bool:
    """Return whether a HyperNode of this tier or lower contains all these nodes."""
    by_name = {part.name: part for part in parts}

    def below(name: str, seen: frozenset[str]) -> set[str]:
        out: set[str] = set()
        for member in by_name[name].spec.members:
            assert member.selector.exact_match is not None
            target = member.selector.exact_match.name
            if member.type == "Node":
                out.add(target)
            elif target in by_name and target not in seen:
                out |= below(target, seen | {target})
        return out

    return any(
        part.spec.tier <= tier and nodes <= below(part.name, frozenset({part.name}))
        for part in by_name.values()
    )


def check_hard(world: TestCluster, parts: list[HyperNode]) -> None:
    """Check that every placed gang and sub-group is within its required domain."""
    top = max(part.spec.tier for part in parts) + 1
    for job in world.state.jobs.values():
        here = [task for task in job.tasks.values() if task.node_name]
        demands = [(job.topology, {task.node_name for task in here})]
        for task in here:
            if task.subgroup is not None:
                group = task.subgroup
                nodes = {each.node_name for each in here if each.subgroup is group}
                demands.append((group.policy.topology, nodes))
        for topology, nodes in demands:
            if topology is None or topology.mode == "soft" or not nodes:
                continue
            tier = topology.highest_tier_allowed
            assert tier is not None
            assert tier >= top or covers(parts, tier, nodes), (job.key, tier, nodes)


@given(networks(), st.data())
def test_hard_topology_is_never_violated(
    network: tuple[list[str], list[HyperNode]], data: st.DataObject
) -> None:
    names, parts = network
    first, second = data.draw(jobs()), data.draw(jobs())
    machines = [node(name, cpu=data.draw(st.integers(1, 4))) for name in names]
    world = cluster(
        machines, first, hypernodes=parts, conf=CONF % "true", priorities=PRIORITIES
    )  # fmt: skip
    for turn in range(4):
        result = world.run()
        world.live(result)
        check_hard(world, parts)
        if turn == 1:
            for job in second:
                world.add(
                    GroupBuilder(renamed(job), [regrouped(member) for member in job.pods])
                )  # fmt: skip


def renamed(job: GroupBuilder) -> Any:
    meta = replace(job.group.metadata, name=f"x{job.group.name}", uid=f"x{job.group.uid}")
    return replace(job.group, metadata=meta)


def regrouped(member: Any) -> Any:
    meta = member.metadata
    notes = {**meta.annotations, GROUP_NAME: f"x{meta.annotations[GROUP_NAME]}"}
    changed = replace(meta, name=f"x{meta.name}", uid=f"x{meta.uid}", annotations=notes)
    return replace(member, metadata=changed)


loads = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=5)


@given(networks(), st.data())
def test_jobs_without_topology_are_placed_as_without_hypernodes(
    network: tuple[list[str], list[HyperNode]], data: st.DataObject
) -> None:
    names, parts = network
    load = [
        gang(f"j{i}", members=members, minimum=1, cpu=cpu)
        for i, (members, cpu) in enumerate(data.draw(loads))
    ]
    machines = [node(name, cpu=data.draw(st.integers(1, 6))) for name in names]
    shaped = cluster(machines, load, hypernodes=parts, conf=CONF % "false").run()
    flat = cluster(machines, load, conf=CONF % "true").run()
    assert shaped.binds == flat.binds
    assert shaped.plan.verdicts == flat.plan.verdicts


@st.composite
def rows_of_gangs(draw: st.DrawFn) -> list[GroupBuilder]:
    """Gangs of few classes and constraints, one after the other; some do not fit."""
    demands: list[Any] = [None, {"mode": "soft"}, {"highestTierAllowed": 1}]
    return [
        gang(
            f"j{i:02d}",
            members=draw(st.integers(1, 4)),
            cpu=draw(st.sampled_from([1, 1, 1, 2])),
            network=draw(st.sampled_from(demands)),
        )
        for i in range(draw(st.integers(2, 12)))
    ]


@given(networks(), rows_of_gangs(), st.data())
def test_lookahead_within_a_domain_gives_the_same_placements(
    network: tuple[list[str], list[HyperNode]], load: list[GroupBuilder], data: st.DataObject
) -> None:
    names, parts = network
    machines = [node(name, cpu=data.draw(st.integers(1, 9))) for name in names]
    ahead = cluster(machines, load, hypernodes=parts, conf=CONF % "false").run()
    with mock.patch.object(placer, "FEW", 0):
        plain = cluster(machines, load, hypernodes=parts, conf=CONF % "false").run()
    assert ahead.plan.effects == plain.plan.effects
