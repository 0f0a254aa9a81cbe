"""HyperNodes from labels, their node counts, and crash consistency."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.api import wellknown
from hekla.controllers.hypernode.discovery import (
    ConfigError,
    CreateHyperNode,
    DeleteHyperNode,
    PatchHyperNode,
    TopologyTypes,
    discover,
    node_counts,
    parse_config,
)
from hekla.kube.resources import CONFIGMAPS, HYPER_NODES, NODES
from hekla.units.objects import Object

from .cluster import Cluster, running_cluster

CONFIG = """\
networkTopologyDiscovery:
- source: label
  enabled: true
  interval: 10m
  config:
    networkTopologyTypes:
      pods:
      - nodeLabel: x/spine
      - nodeLabel: x/rack
      - nodeLabel: kubernetes.io/hostname
"""
TYPES: TopologyTypes = {"pods": ("x/rack", "x/spine")}


def node(name: str, rack: str = "", spine: str = "") -> Object:
    labels = {"x/rack": rack, "x/spine": spine}
    return {"metadata": {"name": name, "labels": {k: v for k, v in labels.items() if v}}}


def play(existing: dict[str, Object], nodes: list[Object]) -> int:
    """Apply the effects of discovery; return their number."""
    effects = discover(TYPES, nodes, existing.values())
    for effect in effects:
        match effect:
            case CreateHyperNode(body):
                assert body["metadata"]["name"] not in existing
                existing[body["metadata"]["name"]] = body
            case PatchHyperNode(name, patch):
                existing[name] = {
                    **existing[name],
                    **{k: patch[k] for k in ("spec",) if k in patch},
                }
            case DeleteHyperNode(name, _):
                del existing[name]
    return len(effects)


def members(existing: dict[str, Object]) -> dict[str, list[str]]:
    """Return HyperNodes by label value, with members by theirs."""
    values = {}
    for name, each in existing.items():
        labels = each["metadata"]["labels"]
        values[name] = labels.get("x/rack") or labels["x/spine"]
    return {
        values[name]: sorted(
            values.get(m["selector"]["exactMatch"]["name"], m["selector"]["exactMatch"]["name"])
            for m in each["spec"]["members"]
        )
        for name, each in existing.items()
    }


def test_label_values_become_hypernodes_in_tiers() -> None:
    found: dict[str, Object] = {}
    play(found, [node("a", "r0", "s0"), node("b", "r0", "s0"), node("c", "r1", "s0"), node("d")])
    assert members(found) == {"r0": ["a", "b"], "r1": ["c"], "s0": ["r0", "r1"]}
    tiers = {each["spec"]["tierName"]: each["spec"]["tier"] for each in found.values()}
    assert tiers == {"x/rack": 1, "x/spine": 2}
    assert all(name.startswith("hypernode-pods-tier") for name in found)
    assert all(
        each["metadata"]["labels"][wellknown.NETWORK_TOPOLOGY_SOURCE] == "label"
        for each in found.values()
    )


def test_a_node_without_an_outer_label_is_in_the_inner_tier_only() -> None:
    found: dict[str, Object] = {}
    play(found, [node("a", "r0"), node("b", "", "s0")])
    assert members(found) == {"r0": ["a"]}


def test_changed_hypernodes_are_patched_and_obsolete_ones_deleted() -> None:
    found: dict[str, Object] = {}
    play(found, [node("a", "r0", "s0"), node("b", "r1", "s0")])
    before = set(found)
    assert play(found, [node("a", "r0", "s0"), node("c", "r0", "s0")]) == 3
    assert members(found) == {"r0": ["a", "c"], "s0": ["r0"]}
    assert set(found) < before


def test_an_existing_hypernode_of_the_value_keeps_its_name() -> None:
    """A HyperNode of Volcano, with a random suffix."""
    old = {
        "metadata": {
            "name": "hypernode-pods-tier1-zzzzz",
            "labels": {wellknown.NETWORK_TOPOLOGY_SOURCE: "label", "x/rack": "r0"},
        },
        "spec": {},
    }
    found = {"hypernode-pods-tier1-zzzzz": old}
    play(found, [node("a", "r0")])
    assert list(found) == ["hypernode-pods-tier1-zzzzz"]
    assert members(found) == {"r0": ["a"]}


def test_hypernodes_of_other_sources_are_not_changed() -> None:
    theirs = {"metadata": {"name": "mine", "labels": {}}, "spec": {}}
    assert discover(TYPES, [], [theirs]) == []


@given(
    st.lists(
        st.tuples(st.sampled_from(["", "r0", "r1", "r2"]), st.sampled_from(["", "s0", "s1"])),
        max_size=8,
    ),
    st.lists(st.sampled_from(["", "r0", "r1"]), max_size=8),
)
def test_discovery_converges_from_any_initial_state(
    labels: list[tuple[str, str]], earlier: list[str]
) -> None:
    found: dict[str, Object] = {}
    play(found, [node(f"n{i}", rack, "s0") for i, rack in enumerate(earlier)])
    nodes = [node(f"n{i}", rack, spine) for i, (rack, spine) in enumerate(labels)]
    play(found, nodes)
    assert play(found, nodes) == 0
    fresh: dict[str, Object] = {}
    play(fresh, nodes)
    assert members(found) == members(fresh)


BROKEN = {
    "not a list": ("networkTopologyDiscovery: x", "must be a list"),
    "invalid YAML": ("{", "invalid YAML"),
    "a duplicate label": (CONFIG.replace("x/spine", "x/rack"), "duplicate nodeLabel"),
    "a type too long": (CONFIG.replace("pods:", "p" * 21 + ":"), "at most 20"),
    "a missing label": (CONFIG.replace("nodeLabel: x/rack", "label: x/rack"), "needs a nodeLabel"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_invalid_configuration_is_rejected_with_the_field(name: str) -> None:
    text, want = BROKEN[name]
    with pytest.raises(ConfigError, match=want):
        parse_config(text)


def test_configuration_lists_labels_from_widest_to_closest() -> None:
    assert parse_config(CONFIG) == (TYPES, [])
    assert parse_config(CONFIG.replace("enabled: true", "enabled: false")) == (None, [])
    assert parse_config(CONFIG.replace("source: label", "source: ufm")) == (None, ["ufm"])
    assert parse_config("") == (None, [])


def hyper(name: str, tier: int, *selectors: Object, kind: str = "Node") -> Object:
    chosen = [{"type": kind, "selector": each} for each in selectors]
    return {"metadata": {"name": name}, "spec": {"tier": tier, "members": chosen}}


def test_nodes_are_counted_once_and_only_if_they_exist() -> None:
    parts = [
        hyper("r0", 1, {"exactMatch": {"name": "a"}}, {"exactMatch": {"name": "gone"}}),
        hyper("r1", 1, {"regexMatch": {"pattern": "^[ab]"}}, {"regexMatch": {"pattern": "("}}),
        hyper("r2", 1, {"labelMatch": {"matchLabels": {"x/rack": "r9"}}}, {"labelMatch": {}}),
        hyper("s0", 2, {"exactMatch": {"name": "r0"}}, {"exactMatch": {"name": "r1"}},
              {"exactMatch": {"name": "s0"}}, kind="HyperNode"),
    ]  # fmt: skip
    counts = node_counts(parts, [node("a"), node("b"), node("c", "r9")])
    assert counts == {"r0": 1, "r1": 2, "r2": 1, "s0": 2}


# --- on a server ------------------------------------------------------------------------------


async def configure(cluster: Cluster) -> None:
    place = {"name": wellknown.CONTROLLER_CONFIG_MAP, "namespace": wellknown.SYSTEM_NAMESPACE}
    data = {wellknown.CONTROLLER_CONFIG_KEY: CONFIG}
    await cluster.client.create(CONFIGMAPS, {"metadata": place, "data": data})


async def shape(cluster: Cluster) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in await cluster.client.list(HYPER_NODES)}


async def life(cluster: Cluster) -> None:
    """Create nodes, change their labels, and delete them."""
    await configure(cluster)
    for name, rack in (("a", "r0"), ("b", "r0"), ("c", "r1")):
        await cluster.client.create(NODES, node(name, rack, "s0"))

    async def is_so(want: dict[str, list[str]], counts: list[int]) -> bool:
        found = await shape(cluster)
        counted = sorted((each.get("status") or {}).get("nodeCount", 0) for each in found.values())
        return members(found) == want and counted == counts

    want = {"r0": ["a", "b"], "r1": ["c"], "s0": ["r0", "r1"]}
    await cluster.until(lambda: is_so(want, [1, 2, 3]), "three HyperNodes")
    await cluster.client.patch(NODES, "c", {"metadata": {"labels": {"x/rack": "r0"}}})
    want = {"r0": ["a", "b", "c"], "s0": ["r0"]}
    await cluster.until(lambda: is_so(want, [3, 3]), "the empty rack is deleted")
    await cluster.client.delete(NODES, "a")
    await cluster.until(
        lambda: is_so({"r0": ["b", "c"], "s0": ["r0"]}, [2, 2]), "one node is removed"
    )
    await cluster.settle()


async def test_hypernodes_follow_the_nodes(tmp_path: Path) -> None:
    async with running_cluster(tmp_path / "data") as cluster:
        await life(cluster)


async def test_hypernodes_are_the_same_after_a_crash_at_any_write(tmp_path: Path) -> None:
    async with running_cluster(tmp_path / "whole") as cluster:
        cluster.select = ["hyperNode-controller"]
        await life(cluster)
        assert cluster.control is not None
        writes = len(cluster.control.writes)
        want = {name: each["spec"] for name, each in (await shape(cluster)).items()}
    for after in range(1, writes + 1, 2):
        async with running_cluster(tmp_path / f"dies-{after}", start=False) as cluster:
            cluster.select = ["hyperNode-controller"]
            await cluster.start(crash_after=after)
            await life(cluster)
            assert {n: each["spec"] for n, each in (await shape(cluster)).items()} == want
