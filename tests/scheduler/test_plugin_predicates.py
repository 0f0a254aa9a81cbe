"""predicates: infeasible nodes and their reasons."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.api import core
from hekla.api.meta import convert
from hekla.api.wellknown import DRAIN_REASON
from hekla.testing import cluster, gang, node, pod


def required(*expressions: dict[str, Any], fields: bool = False) -> dict[str, Any]:
    key = "matchFields" if fields else "matchExpressions"
    terms = {"nodeSelectorTerms": [{key: list(expressions)}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def away_from(app: str, key: str = "kubernetes.io/hostname") -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": _required_term(app, key)}}


def near(app: str, key: str = "zone") -> dict[str, Any]:
    return {"affinity": {"podAffinity": _required_term(app, key)}}


def _required_term(app: str, key: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


NODES = [
    node("n1", labels={"zone": "a", "gen": "3"}),
    node("n2", labels={"zone": "b", "gen": "7"}),
    node("n3", labels={"gen": "x"}),
]

WHERE = {
    "a node selector": ({"nodeSelector": {"zone": "b"}}, "n2"),
    "In": (required({"key": "zone", "operator": "In", "values": ["b", "c"]}), "n2"),
    "NotIn, which nodes without the label pass": (
        required({"key": "zone", "operator": "NotIn", "values": ["a", "b"]}),
        "n3",
    ),
    "Exists": (required({"key": "zone", "operator": "Exists"}), "n1"),
    "DoesNotExist": (required({"key": "zone", "operator": "DoesNotExist"}), "n3"),
    "Gt, which text that is no number fails": (
        required({"key": "gen", "operator": "Gt", "values": ["3"]}),
        "n2",
    ),
    "Lt": (required({"key": "gen", "operator": "Lt", "values": ["7"]}), "n1"),
    "the name of a node": (
        required({"key": "metadata.name", "operator": "In", "values": ["n3"]}, fields=True),
        "n3",
    ),
}


@pytest.mark.parametrize("case", WHERE)
def test_node_affinity_restricts_nodes(case: str) -> None:
    spec, want = WHERE[case]
    assert cluster(NODES, [gang("a", cpu=1, spec=spec)]).run().binds == {"a-0": want}


def test_every_node_that_does_not_match_is_counted_with_its_reason() -> None:
    nodes = [
        node("n1", taints=["gpu=yes:NoSchedule"]),
        node("n2", unschedulable=True),
        node("n3", ready=False),
        node("n4", labels={"zone": "b"}, cpu=1),
        node("n5"),
    ]
    job = gang("a", cpu=2, spec={"nodeSelector": {"zone": "b"}})
    tolerant = gang("b", cpu=9)
    result = cluster(nodes, [job, tolerant]).run()
    verdict = result.verdict("a")
    assert verdict is not None
    assert verdict.nodes == {
        "node(s) were unschedulable": 1,
        "node(s) were not ready": 1,
        "node(s) didn't match Pod's node affinity/selector": 2,
        "Insufficient cpu": 1,
    }
    assert sum(verdict.nodes.values()) == verdict.total_nodes == 5


def drained(name: str, reason: str) -> core.Node:
    return node(name, unschedulable=True, annotations={DRAIN_REASON: reason})


def test_drained_nodes_are_counted_by_reason() -> None:
    nodes = [drained("n1", "new  disk"), drained("n2", "new disk"), node("n3", unschedulable=True)]
    verdict = cluster(nodes, [gang("a", cpu=1)]).run().verdict("a")
    assert verdict is not None
    assert verdict.nodes == {"node(s) were drained: new disk": 2, "node(s) were unschedulable": 1}
    assert verdict.change == "undrain a node: `hekla undrain n1`"


def test_only_the_most_frequent_reasons_of_drains_are_in_a_verdict() -> None:
    nodes = [drained(f"n{index}", f"reason {index}") for index in range(8)]
    nodes += [drained(f"m{index}", "power") for index in range(2)]
    verdict = cluster(nodes, [gang("a", cpu=1)]).run().verdict("a")
    assert verdict is not None
    assert verdict.nodes["node(s) were drained: power"] == 2
    assert verdict.nodes["node(s) were drained"] == 4
    assert sum(verdict.nodes.values()) == 10


def test_reason_on_a_node_that_takes_pods_means_nothing() -> None:
    """As `kubectl uncordon` leaves it."""
    nodes = [node("n1", annotations={DRAIN_REASON: "new disk"})]
    assert cluster(nodes, [gang("a", cpu=1)]).run().binds == {"a-0": "n1"}


def test_taints_exclude_pods_that_do_not_tolerate_them() -> None:
    nodes = [node("n1", taints=["gpu=yes:NoSchedule"])]
    refused = cluster(nodes, [gang("a", cpu=1)]).run()
    assert refused.binds == {}
    assert "1 node(s) had untolerated taint(s)" in refused.why("a")
    tolerance = {"tolerations": [{"key": "gpu", "operator": "Equal", "value": "yes"}]}
    assert cluster(nodes, [gang("a", cpu=1, spec=tolerance)]).run().binds == {"a-0": "n1"}
    everything = {"tolerations": [{"operator": "Exists"}]}
    assert cluster(nodes, [gang("a", cpu=1, spec=everything)]).run().binds == {"a-0": "n1"}


def test_a_node_takes_at_most_its_allocatable_pods() -> None:
    job = gang("a", members=3, minimum=1, cpu=1)
    result = cluster([node("n1", cpu=8, pods=3)], [job], pods=[pod("r", node="n1")]).run()
    assert set(result.binds) == {"a-0", "a-1"}
    assert "1 node(s) pod number exceeded" in result.why("a")


def test_two_pods_with_one_host_port_are_placed_on_two_nodes() -> None:
    job = gang("a", members=3, cpu="100m", ports=[8080])
    two = cluster([node("n1"), node("n2")], [job]).run()
    assert two.binds == {}
    three = cluster([node("n1"), node("n2"), node("n3")], [job]).run()
    assert sorted(three.binds.values()) == ["n1", "n2", "n3"]


def test_a_node_with_the_host_port_in_use_is_infeasible() -> None:
    taken = pod("r", node="n1", ports=[8080])
    result = cluster([node("n1")], [gang("a", cpu=1, ports=[8080])], pods=[taken]).run()
    assert "1 node(s) didn't have free ports for the requested pod ports" in result.why("a")


def test_anti_affinity_puts_members_on_different_nodes() -> None:
    job = gang("a", members=3, cpu="100m", labels={"app": "a"}, spec=away_from("a"))
    assert cluster([node("n1"), node("n2")], [job]).run().binds == {}
    spread = cluster([node("n1"), node("n2"), node("n3")], [job]).run()
    assert sorted(spread.binds.values()) == ["n1", "n2", "n3"]


def test_anti_affinity_of_a_running_pod_applies_to_new_pods() -> None:
    hermit = pod("r", node="n1", labels={"app": "hermit"}, spec=away_from("web"))
    job = gang("a", cpu=1, labels={"app": "web"})
    assert cluster([node("n1"), node("n2")], [job], pods=[hermit]).run().binds == {"a-0": "n2"}
    alone = cluster([node("n1")], [job], pods=[hermit]).run()
    assert "1 node(s) didn't satisfy existing pods anti-affinity rules" in alone.why("a")


def test_affinity_follows_a_running_pod_into_its_zone() -> None:
    friend = pod("r", node="n2", labels={"app": "db"})
    job = gang("a", members=2, cpu=1, spec=near("db"))
    assert cluster(NODES, [job], pods=[friend]).run().binds == {"a-0": "n2", "a-1": "n2"}


def test_the_first_of_a_group_that_wants_to_be_together_may_start_anywhere() -> None:
    """n1 and n2 are different zones; all three members must end in one."""
    job = gang("a", members=3, cpu=1, labels={"app": "a"}, spec=near("a"))
    result = cluster(NODES, [job]).run()
    assert len(result.binds) == 3
    assert len(set(result.binds.values())) == 1


def test_topology_spread_keeps_the_skew() -> None:
    """maxSkew 1 over zones a and b: four pods go two and two."""
    spread = {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "a"}},
            }
        ]
    }
    nodes = [node("n1", cpu=8, labels={"zone": "a"}), node("n2", cpu=8, labels={"zone": "b"})]
    job = gang("a", members=4, cpu=1, labels={"app": "a"}, spec=spread)
    result = cluster(nodes, [job]).run()
    assert sorted(result.binds.values()) == ["n1", "n1", "n2", "n2"]
    lopsided = [node("n1", cpu=8, labels={"zone": "a"}), node("n2", cpu=1, labels={"zone": "b"})]
    refused = cluster(lopsided, [job]).run()
    assert refused.binds == {}
    assert "topology spread constraints" in refused.why("a")


def test_a_bound_claim_restricts_a_pod_to_the_nodes_of_its_volume() -> None:
    claim = convert(
        {
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {"volumeName": "pv1"},
            "status": {"phase": "Bound"},
        },
        core.PersistentVolumeClaim,
    )
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]
    volume = convert(
        {
            "metadata": {"name": "pv1"},
            "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}},
        },
        core.PersistentVolume,
    )
    spec = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}
    job = gang("a", cpu=1, spec=spec)
    assert cluster(NODES, [job], claims=[claim], volumes=[volume]).run().binds == {"a-0": "n2"}
    missing = cluster(NODES, [job]).run()
    assert '3 persistentvolumeclaim "data" not found' in missing.why("a")


def test_a_filter_can_be_switched_off() -> None:
    conf = """\
actions: "allocate"
tiers:
- plugins:
  - name: gang
  - name: predicates
    arguments: {predicate.TaintTolerationEnable: "false"}
"""
    nodes = [node("n1", taints=["gpu=yes:NoSchedule"])]
    assert cluster(nodes, [gang("a", cpu=1)], conf=conf).run().binds == {"a-0": "n1"}


def test_static_filters_are_kept_until_a_label_changes() -> None:
    world = cluster(NODES, [gang("a", cpu=1, spec={"nodeSelector": {"zone": "c"}})])
    assert world.run().binds == {}
    version = world.state.node_table.labels_version
    world.state.set_node(NODES[0])
    world.run()
    assert world.state.node_table.labels_version == version, "a heartbeat threw the filters away"
    world.state.set_node(node("n1", labels={"zone": "c"}))
    assert world.run().binds == {"a-0": "n1"}
