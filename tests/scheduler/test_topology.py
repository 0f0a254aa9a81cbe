"""The tree of HyperNodes: members, sums and contradictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hekla.api.topology import HyperNode
from hekla.scheduler.state.labels import NodeLabels
from hekla.scheduler.state.topology import CLUSTER, Patterns, Tally, Tree
from hekla.testing import cluster, hypernode, node

NAMES = [f"n{i}" for i in range(8)]


def tree(
    *parts: HyperNode, names: Sequence[str] = NAMES, labels: Mapping[str, str] | None = None
) -> Tree:
    """Return the tree over nodes of which the first half has the labels."""
    have = [labels or {} if i < len(names) // 2 else {} for i in range(len(names))]
    return Tree(parts, NodeLabels(names, have, [() for _ in names]))


def members(found: Tree) -> dict[str, list[int]]:
    return {name: found.nodes(number).tolist() for number, name in enumerate(found.names)}


RACKS = [hypernode(f"r{i}", 1, nodes=NAMES[2 * i : 2 * i + 2]) for i in range(4)]
SPINES = [
    hypernode("s0", 2, children=["r0", "r1"], tier_name="spine"),
    hypernode("s1", 2, children=["r2", "r3"]),
]


def test_nodes_are_in_their_leaf_and_in_all_that_is_around_it() -> None:
    found = tree(*RACKS, *SPINES)
    assert members(found)["r1"] == [2, 3]
    assert members(found)["s1"] == [4, 5, 6, 7]
    assert [found.name(d) for d in found.ancestors(2)] == ["r2", "s1", CLUSTER]
    assert found.tier_names == {"spine": 2}
    assert found.tier_d[found.root] == 3
    assert found.problems == {}


def test_a_name_of_two_tiers_means_the_lower_and_is_reported() -> None:
    upper = hypernode("s0", 2, children=["r0"], tier_name="rack")
    found = tree(hypernode("r0", 1, nodes=["n0"], tier_name="rack"), upper)
    assert found.tier_names == {"rack": 1}
    assert found.problems == {"s0": ["its tierName rack is that of tier 1 too, and means that one"]}


def test_members_come_by_name_by_pattern_and_by_label() -> None:
    found = tree(
        hypernode("named", 1, nodes=["n7"]),
        hypernode("matched", 1, pattern="^n[56]$"),
        hypernode("labelled", 1, labels={"rack": "a"}),
        hypernode("empty-selector", 1, labels={}),
        labels={"rack": "a"},
    )
    assert members(found) == {
        "named": [7],
        "matched": [5, 6],
        "labelled": [0, 1, 2, 3],
        "empty-selector": [],
    }


def test_the_smallest_domain_around_nodes_is_found() -> None:
    found = tree(*RACKS, *SPINES)
    around = {(0, 1): "r0", (0, 2): "s0", (0, 7): CLUSTER, (5,): "r2"}
    for nodes, want in around.items():
        assert found.name(found.around(np.asarray(nodes))) == want


def test_a_cycle_of_hypernodes_is_cut_and_reported() -> None:
    found = tree(
        hypernode("a", 2, children=["b"]), hypernode("b", 2, children=["a"]), *RACKS
    )  # fmt: skip
    assert "not below its own 2" in found.problems["a"][0]
    assert "not below its own 2" in found.problems["b"][0]
    assert members(found)["r0"] == [0, 1]


def test_of_two_parents_the_first_keeps_the_child() -> None:
    found = tree(*RACKS, *SPINES, hypernode("thief", 2, children=["r0"]))
    assert found.problems == {"thief": ["its member r0 is one of s0 already"]}
    assert members(found)["s0"] == [0, 1, 2, 3]
    assert members(found)["thief"] == []


def test_a_node_in_two_racks_stays_in_the_first() -> None:
    found = tree(*RACKS, hypernode("zz", 1, nodes=["n0", "n1"]))
    assert found.problems == {"zz": ["2 nodes, as n0, are in r0 already"]}
    assert members(found)["zz"] == []


def test_a_node_that_is_also_named_further_out_is_no_contradiction() -> None:
    found = tree(*RACKS, hypernode("s0", 2, nodes=["n0", "n7"], children=["r0"]))
    assert found.problems == {"s0": ["node n7 is in r3 already"]}
    assert members(found)["s0"] == [0, 1]


def test_missing_members_and_invalid_patterns_are_reported() -> None:
    found = tree(
        hypernode("a", 1, nodes=["gone", "n0", "away"]),
        hypernode("b", 2, children=["nowhere"]),
        hypernode("c", 1, pattern="("),
    )
    assert found.problems["a"] == ["there is no node gone and 1 more"]
    assert found.problems["b"] == ["its member nowhere does not exist"]
    assert "'('" in found.problems["c"][0]
    assert members(found)["a"] == [0]


def test_patterns_are_matched_once_for_a_node() -> None:
    patterns, names = Patterns(), {"n0": 0, "n1": 1}
    assert patterns.matching("1$", names) == [1]
    assert patterns.matching("1$", {"n0": 0, "n1": 1, "x1": 2}) == [1, 2]
    patterns.forget_others(set(), names)
    assert patterns.matching("1$", names) == [1]


def test_the_cluster_builds_the_tree_anew_when_nodes_or_hypernodes_change() -> None:
    world = cluster([node("n1")], hypernodes=[hypernode("a", 1, pattern="n")]).state
    world.refresh()
    before = world.tree
    assert world.tree is before
    world.set_node(node("n0"))
    world.refresh()
    assert world.tree.nodes(0).tolist() == [0, 1]
    world.delete_hypernode("a")
    assert not world.tree


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[HyperNode], list[str]]:
    """Any HyperNodes over a few nodes, valid or not."""
    names = [f"n{i}" for i in range(draw(st.integers(0, 12)))]
    known = [f"h{i}" for i in range(draw(st.integers(0, 7)))]
    parts = []
    for name in known:
        nodes = draw(st.lists(st.sampled_from([*names, "gone"]), max_size=5))
        children = draw(st.lists(st.sampled_from([*known, "nowhere"]), max_size=3))
        parts.append(hypernode(name, draw(st.integers(0, 4)), nodes=nodes, children=children))
    return parts, names


def naive_members(found: Tree, number: int) -> set[int]:
    """Compute it by walking from every node to the root."""
    return {
        index
        for index, leaf in enumerate(found.leaf_n.tolist())
        if number in list(found.ancestors(leaf))
    }


@given(trees(), st.data())
def test_domain_sums_in_one_pass_equal_counting(
    given_tree: tuple[list[HyperNode], list[str]], data: st.DataObject
) -> None:
    parts, names = given_tree
    found = tree(*parts, names=names)
    size = len(names)
    amounts = data.draw(st.lists(st.integers(0, 9), min_size=size, max_size=size))
    values = np.asarray(amounts, dtype=np.int64)
    sums_d = found.sums(values)
    for number in range(found.root + 1):
        inside = naive_members(found, number)
        assert set(found.nodes(number).tolist()) == inside
        assert sums_d[number] == sum(int(values[i]) for i in inside)


@given(trees())
def test_no_tree_has_cycles_or_additional_nodes(
    given_tree: tuple[list[HyperNode], list[str]],
) -> None:
    parts, names = given_tree
    found = tree(*parts, names=names)
    stated = {part.name: part for part in parts}

    def reach(name: str, seen: frozenset[str]) -> set[str]:
        out: set[str] = set()
        for member in stated[name].spec.members:
            assert member.selector.exact_match is not None
            target = member.selector.exact_match.name
            if member.type == "Node":
                out.add(target)
            elif target in stated and target not in seen:
                out |= reach(target, seen | {target})
        return out

    for number, name in enumerate(found.names):
        chain = [int(found.tier_d[d]) for d in found.ancestors(number)]
        assert chain == sorted(set(chain))
        held = {names[i] for i in found.nodes(number).tolist()}
        assert held <= reach(name, frozenset({name}))


@given(st.lists(st.dictionaries(st.integers(0, 7), st.integers(0, 9)), max_size=6))
def test_an_incremental_domain_sum_equals_the_full_sum(changes: list[dict[int, int]]) -> None:
    found = tree(*RACKS[:3], *SPINES)
    tally, values_n = Tally(found), np.zeros(8)
    for change in changes:
        values_n[list(change)] = list(change.values())
        assert tally.of(values_n).tolist() == found.sums(values_n).tolist()
