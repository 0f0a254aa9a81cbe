"""nodegroup: required, preferred and avoided node groups of queues, and their limits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hekla.api.wellknown import NODEGROUP_NAME, NODEGROUP_RESOURCE_LIMITS
from hekla.testing import Result, cluster, gang, node, queue

CONF = """\
actions: "allocate"
tiers:
- plugins:
  - {name: gang}
  - {name: predicates}
  - {name: nodegroup, %s}
"""
GROUPS = ("gold", "silver", "bronze")
NODES = [
    *(node(f"on-{group}", cpu=2, labels={NODEGROUP_NAME: group}) for group in GROUPS),
    node("on-none", cpu=2),
]


def affinity(**rules: list[str]) -> dict[str, Any]:
    """`required`, `preferred`, and the same with prefix `not_` for anti-affinity."""
    long = {
        "required": "requiredDuringSchedulingIgnoredDuringExecution",
        "preferred": "preferredDuringSchedulingIgnoredDuringExecution",
    }
    wanted = {long[key]: rules[key] for key in long if key in rules}
    avoided = {long[key]: rules[f"not_{key}"] for key in long if f"not_{key}" in rules}
    return {"nodeGroupAffinity": wanted, "nodeGroupAntiAffinity": avoided}


def places(rules: dict[str, Any] | None, arguments: str = "", pods: int = 8) -> list[str]:
    """Return the groups in the order in which a queue fills them, one pod per cycle."""
    options = f"arguments: {{{arguments}}}"
    world = cluster(
        NODES, [gang("j", members=pods, minimum=1, cpu=2, queue="q")],
        queues=[queue("q", affinity=rules)], conf=CONF % options,
    )  # fmt: skip
    placed = world.run().plan.binds
    return [bind.node.removeprefix("on-") for bind in placed]


RULES: dict[str, tuple[dict[str, Any] | None, set[str]]] = {
    "no rules: no labelled node, and none without a label either": (None, set()),
    "required groups": (affinity(required=["gold"]), {"gold"}),
    "preferred groups are allowed too": (
        affinity(required=["gold"], preferred=["silver"]),
        {"gold", "silver"},
    ),
    "less those that must be avoided": (
        affinity(required=["gold"], preferred=["silver"], not_required=["silver"]),
        {"gold"},
    ),
    "those that are only better avoided stay": (
        affinity(required=["gold"], not_preferred=["bronze"]),
        {"gold", "bronze"},
    ),
    "avoiding alone allows nothing else": (affinity(not_required=["gold"]), set()),
}


@pytest.mark.parametrize("case", RULES)
def test_a_queue_uses_its_allowed_node_groups(case: str) -> None:
    rules, want = RULES[case]
    assert set(places(rules)) == want


def test_without_strict_a_queue_without_rules_uses_nodes_without_a_group() -> None:
    assert set(places(None, "strict: false")) == {"none"}
    assert set(places(affinity(required=["gold"]), "strict: false")) == {"gold"}


def test_required_node_groups_come_first_and_avoided_ones_last() -> None:
    rules = affinity(required=["silver"], preferred=["gold"], not_preferred=["bronze"])
    assert places(rules) == ["silver", "gold", "bronze"]


def test_a_node_group_both_preferred_and_avoided_comes_last() -> None:
    rules = affinity(preferred=["gold", "silver"], not_preferred=["gold"])
    assert places(rules) == ["silver", "gold"]


def test_empty_node_group_rules_are_no_rules() -> None:
    assert places(affinity()) == []
    assert set(places(affinity(), "strict: false")) == {"none"}


def test_preferred_node_groups_are_ordered_if_enabled() -> None:
    rules = affinity(preferred=["silver", "bronze", "gold"])
    assert places(rules, "enablePreferredOrder: true") == ["silver", "bronze", "gold"]


def test_the_reason_names_the_queue() -> None:
    options = "arguments: {}"
    result = cluster(
        NODES, [gang("j", cpu=1, queue="q")], queues=[queue("q")], conf=CONF % options
    ).run()
    assert result.verdict("j").nodes == {  # type: ignore[union-attr]
        "node(s) are of groups that queue q may not use": 4
    }


def nested(enabled: bool) -> Result:
    queues = [
        queue("dept", affinity=affinity(required=["gold"])),
        queue("team", parent="dept"),
        queue("person", parent="team"),
    ]
    options = f"enableHierarchy: {str(enabled).lower()}"
    return cluster(
        NODES, [gang("j", cpu=1, queue="person")], queues=queues, conf=CONF % options
    ).run()


def test_in_a_hierarchy_a_queue_without_rules_inherits_them() -> None:
    assert nested(True).binds == {"j-0": "on-gold"}
    assert nested(False).binds == {}


def limited(text: str, *, running: int = 0, members: int = 4) -> Result:
    nodes = [node(f"g{n}", cpu=4, labels={NODEGROUP_NAME: "gold"}) for n in range(3)]
    rules = affinity(required=["gold"])
    mine = queue("q", affinity=rules, annotations={NODEGROUP_RESOURCE_LIMITS: text})
    jobs = [gang("j", members=members, minimum=1, cpu=1, queue="q")]
    if running:
        jobs.append(
            gang("old", members=running, minimum=1, cpu=1, queue="q", phase="Running",
                 running_on=[f"g{n % 3}" for n in range(running)])
        )  # fmt: skip
    return cluster(nodes, jobs, queues=[mine], conf=CONF % "arguments: {}").run()


@pytest.mark.parametrize(("running", "want"), [(0, 3), (2, 1), (3, 0)])
def test_a_limit_applies_to_the_whole_node_group(running: int, want: int) -> None:
    result = limited(json.dumps({"gold": {"cpu": "3"}}), running=running)
    assert len(result.binds) == want
    if not want:
        assert "node(s) are of groups of which queue q has its share" in result.why("j")


def test_resources_without_a_limit_are_not_limited() -> None:
    assert len(limited(json.dumps({"gold": {"memory": "1Gi"}, "lead": {"cpu": 0}})).binds) == 4


@pytest.mark.parametrize("text", ["{", '{"gold": 3}', '{"gold": {"cpu": "much"}}'])
def test_invalid_node_group_limits_keep_the_queue_pending_with_a_reason(text: str) -> None:
    result = limited(text)
    assert result.binds == {}
    assert "queue q" in result.why("j")
