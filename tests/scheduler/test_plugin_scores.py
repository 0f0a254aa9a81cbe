"""Scores of binpack and nodeorder, computed by hand from their formulas."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.scheduler.session.session import Session
from hekla.testing import cluster, gang, node, pod


def conf(plugin: str, **arguments: Any) -> str:
    lines = "".join(f"      {key}: {value}\n" for key, value in arguments.items())
    return (
        'actions: "allocate"\ntiers:\n- plugins:\n  - name: gang\n'
        f"  - name: {plugin}\n    arguments:\n{lines}"
    )


def scores(nodes: list[Any], job: Any, text: str, pods: tuple[Any, ...] = ()) -> list[float]:
    world = cluster(nodes, [job], pods=pods, conf=text)
    task = next(iter(world.state.jobs["default/job"].tasks.values()))
    with Session(world.state, world.config, 0.0) as session:
        state = session.placer._state(task)
        assert not session.tiers.failures
        return [float(score) for score in state.score_n]


NO_NODEORDER = {
    "leastrequested.weight": 0,
    "balancedresource.weight": 0,
    "imagelocality.weight": 0,
}


def test_binpack_is_the_weighted_mean_of_how_full_the_node_would_be() -> None:
    """cpu (1+1)/4 = 0.5, memory (2+2)/8 = 0.5: 50; with cpu weight 3 and memory 2/8: 43.75."""
    nodes = [node("n1", cpu=4, memory="8Gi")]
    job = gang("job", cpu=1, memory="2Gi")
    used = (pod("r", cpu=1, memory="2Gi", node="n1"),)
    assert scores(nodes, job, conf("binpack", **{"binpack.weight": 1}), used) == [50.0]
    only_cpu = (pod("r", cpu=1, node="n1"),)
    weighted = conf("binpack", **{"binpack.weight": 1, "binpack.cpu": 3})
    assert scores(nodes, job, weighted, only_cpu) == [pytest.approx(43.75)]


def test_binpack_scores_zero_where_the_task_would_not_fit() -> None:
    nodes = [node("n1", cpu=1, memory="8Gi"), node("n2", cpu=4, memory="8Gi")]
    job = gang("job", cpu=2, memory="2Gi")
    # (2/4 + 2/8) / 2 = 0.375
    assert scores(nodes, job, conf("binpack", **{"binpack.weight": 1})) == [0.0, 37.5]


def test_binpack_counts_named_resources_with_their_weights() -> None:
    """gpu 2/8 × 2, cpu 1/4, memory 2/8: (0.5 + 0.25 + 0.25) / 4 × 100 × 10."""
    nodes = [node("n1", cpu=4, memory="8Gi", gpu=8)]
    job = gang("job", cpu=1, memory="2Gi", gpu=2)
    text = conf(
        "binpack",
        **{
            "binpack.weight": 10,
            "binpack.resources": "nvidia.com/gpu",
            "binpack.resources.nvidia.com/gpu": 2,
        },
    )
    assert scores(nodes, job, text) == [250.0]


def test_binpack_leaves_resources_without_weight_out_and_counts_negative_ones_as_one() -> None:
    nodes = [node("n1", cpu=4, memory="8Gi", gpu=8)]
    job = gang("job", cpu=1, gpu=8)
    assert scores(nodes, job, conf("binpack", **{"binpack.cpu": -5})) == [25.0]


def test_least_requested_is_cut_to_whole_numbers() -> None:
    """cpu (3000-1000)·100/3000 = 66, memory (8-2)/8 = 75: (66+75)/2 = 70."""
    arguments = NO_NODEORDER | {"leastrequested.weight": 1}
    job = gang("job", cpu=1, memory="2Gi")
    assert scores([node("n1", cpu=3, memory="8Gi")], job, conf("nodeorder", **arguments)) == [70.0]


def test_most_requested_mirrors_it() -> None:
    """cpu 33, memory 25: 29; with weight 3: 87."""
    arguments = NO_NODEORDER | {"mostrequested.weight": 3}
    job = gang("job", cpu=1, memory="2Gi")
    assert scores([node("n1", cpu=3, memory="8Gi")], job, conf("nodeorder", **arguments)) == [87.0]


def test_containers_without_requests_count_as_100m_and_200mi_when_spreading() -> None:
    """cpu (1000-100)/1000 = 90, memory (1000-200)/1000 = 80: 85."""
    arguments = NO_NODEORDER | {"leastrequested.weight": 1}
    job = gang("job")
    nodes = [node("n1", cpu=1, memory="1000Mi")]
    assert scores(nodes, job, conf("nodeorder", **arguments)) == [85.0]


def test_balanced_resource_is_100_less_half_the_difference() -> None:
    """fractions 0.5 and 0.25: (1 - 0.125) · 100 = 87 (cut)."""
    arguments = NO_NODEORDER | {"balancedresource.weight": 1}
    job = gang("job", cpu=2, memory="2Gi")
    assert scores([node("n1", cpu=4, memory="8Gi")], job, conf("nodeorder", **arguments)) == [87.0]


def test_balanced_resource_counts_gpus_for_pods_that_request_them() -> None:
    """fractions 1/4, 1/4, 1: mean 0.5, population deviation 0.35355: 64."""
    arguments = NO_NODEORDER | {"balancedresource.weight": 1}
    job = gang("job", cpu=1, memory="2Gi", gpu=1)
    nodes = [node("n1", cpu=4, memory="8Gi", gpu=1)]
    assert scores(nodes, job, conf("nodeorder", **arguments)) == [64.0]


def test_image_locality_rewards_nodes_that_have_the_image() -> None:
    """500 MiB on one of two nodes: 250 MiB; (250-23)/(1000-23)·100 = 23."""
    arguments = NO_NODEORDER | {"imagelocality.weight": 1}
    job = gang("job", cpu=1, image="train:1")
    nodes = [node("n1"), node("n2", images={"train:1": 500 * 2**20})]
    assert scores(nodes, job, conf("nodeorder", **arguments)) == [0.0, 23.0]


def test_preferred_taints_and_node_affinity_change_the_score() -> None:
    preferred = {
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "preference": {
                            "matchExpressions": [
                                {"key": "disk", "operator": "In", "values": ["ssd"]}
                            ]
                        },
                    }
                ]
            }
        }
    }
    nodes = [node("n1"), node("n2", labels={"disk": "ssd"})]
    assert cluster(nodes, [gang("a", cpu=1, spec=preferred)]).run().binds == {"a-0": "n2"}
    tainted = [node("n1", taints=["x=y:PreferNoSchedule"]), node("n2")]
    assert cluster(tainted, [gang("a", cpu=1)]).run().binds == {"a-0": "n2"}


def test_among_equal_nodes_the_first_by_name_wins_whatever_the_order_of_arrival() -> None:
    nodes = [node("n3"), node("n1"), node("n2")]
    assert cluster(nodes, [gang("a", cpu=1)]).run().binds == {"a-0": "n1"}
