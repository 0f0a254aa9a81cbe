"""resource-strategy-fit, and resources reserved for idle devices. Numbers by hand."""

from __future__ import annotations

import json

import pytest

from hekla.scheduler.errors import ConfigError
from hekla.scheduler.framework import config
from hekla.scheduler.plugins import builtin
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.status import PENDING
from hekla.testing import GroupBuilder, TestCluster, cluster, gang, node, pod

CONF = """\
actions: "allocate"
tiers:
- plugins:
  - {name: gang}
  - {name: predicates}
  - name: resource-strategy-fit
    arguments: %s
"""


def world(arguments: object, *jobs: GroupBuilder) -> TestCluster:
    """n1 has used 4 of 8 cpu and 2 of 8 GPUs, n2 1 of 8 cpu and 6 of 8 GPUs, n3 has no GPU."""
    nodes = [node(name, cpu=8, gpu=8) for name in ("n1", "n2")] + [node("n3", cpu=8)]
    busy = [pod("b1", cpu=4, gpu=2, node="n1"), pod("b2", cpu=1, gpu=6, node="n2")]
    return cluster(nodes, jobs, pods=busy, conf=CONF % json.dumps(arguments))


def scores(stage: TestCluster, name: str = "a") -> list[float]:
    with Session(stage.state, stage.config, 0.0) as session:
        task = next(iter(stage.state.jobs[f"default/{name}"].by_status[PENDING].values()))
        plugin = session.plugin("resource-strategy-fit")
        found: list[float] = plugin.node_order(task, session.nodes).tolist()  # type: ignore[union-attr]
    return found


def test_by_default_cpu_and_memory_are_spread() -> None:
    """One more cpu leaves 3/8, 6/8 and 7/8 free; weight 10."""
    assert scores(world({}, gang("a", cpu=1))) == pytest.approx([375.0, 750.0, 875.0])


def test_one_resource_is_packed_while_another_is_spread() -> None:
    """GPU packed with weight 3, cpu spread with weight 1: (3·(used+1)/8 + free/8)/4·100·1."""
    arguments = {
        "resourceStrategyFitWeight": 1,
        "resources": {
            "nvidia.com/*": {"type": "MostAllocated", "weight": 3},
            "cpu": {"type": "LeastAllocated", "weight": 1},
        },
    }
    stage = world(arguments, gang("a", cpu=1, gpu=1))
    got = scores(stage)
    assert got[:2] == pytest.approx([(9 / 8 + 3 / 8) / 4 * 100, (21 / 8 + 6 / 8) / 4 * 100])
    assert stage.run().binds == {"a-0": "n2"}


def test_the_longest_prefix_counts_and_invalid_strategies_have_defaults() -> None:
    arguments = {
        "resourceStrategyFitWeight": -5,
        "resources": {
            "nvidia.com/gpu": {"type": "What", "weight": 0},
            "nvidia.com/*": {"type": "MostAllocated", "weight": 9},
            "*": {"type": "MostAllocated", "weight": 9},
            "cpu": {"type": "MostAllocated", "weight": 1},
        },
    }
    got = scores(world(arguments, gang("a", cpu=1, gpu=1)))
    assert got[:2] == pytest.approx([(5 / 8 + 5 / 8) / 2 * 1000, (2 / 8 + 1 / 8) / 2 * 1000])


def test_a_node_on_which_the_task_does_not_fit_scores_zero() -> None:
    assert scores(world({}, gang("a", cpu=6)))[0] == 0.0


def test_a_pod_brings_its_own_strategy_and_a_broken_one_scores_nothing() -> None:
    notes = {
        "volcano.sh/resource-strategy-scoring-type": "MostAllocated",
        "volcano.sh/resource-strategy-weight": '{"cpu": 1}',
    }
    own = gang("a").and_pods(pod("a-x", group="a", cpu=1, annotations=notes))
    broken = {**notes, "volcano.sh/resource-strategy-weight": "heavy"}
    bad = gang("b").and_pods(pod("b-x", group="b", cpu=1, annotations=broken))
    own.pods, bad.pods = own.pods[1:], bad.pods[1:]
    stage = world({"resourceStrategyFitWeight": 1}, own, bad)
    assert scores(stage) == pytest.approx([62.5, 25.0, 12.5])
    assert scores(stage, "b") == [0.0, 0.0, 0.0]


def test_nodes_with_scarce_resources_score_lower() -> None:
    """GPU weighs 3 and cpu 1: a node that has both scores (1 - 4/4), one with cpu (1 - 1/4)."""
    arguments = {
        "resourceStrategyFitWeight": 0,
        "sra": {
            "enable": True,
            "resources": "nvidia.com/gpu, cpu",
            "weight": 2,
            "resourceWeight": {"nvidia.com/gpu": 3, "cpu": 1},
        },
    }
    assert scores(world(arguments, gang("a", cpu=1))) == pytest.approx([0.0, 0.0, 150.0])
    assert scores(world(arguments, gang("a", cpu=1, gpu=1)))[2] == 0.0


PROPORTIONAL = {
    "proportional": {
        "enable": True,
        "resources": "nvidia.com/gpu",
        "resourceProportion": {"nvidia.com/gpu.cpu": 1, "nvidia.com/gpu.memory": 1},
    }
}


def beside(conf: str, cpu: int) -> TestCluster:
    jobs = [gang("plain", members=cpu, minimum=1, cpu=1), gang("big", cpu=2, gpu=4, age=-9)]
    return cluster([node("g", cpu=12, memory="64Gi", gpu=8)], jobs, conf=conf)


OLDER = """\
actions: "allocate"
tiers:
- plugins:
  - name: gang
  - name: predicates
    arguments:
      predicate.ProportionalEnable: true
      predicate.resources: nvidia.com/gpu
      predicate.resources.nvidia.com/gpu.cpu: 1
      predicate.resources.nvidia.com/gpu.memory: 1
"""


@pytest.mark.parametrize("conf", [CONF % json.dumps(PROPORTIONAL), OLDER])
def test_pods_without_devices_leave_reserved_resources_of_idle_devices(conf: str) -> None:
    """12 cpu, 8 idle GPUs keep 8. One plain pod comes, then big takes 4 GPUs and 2 cpu: 9 cpu are
    idle and 4 GPUs keep 4, so 5 more plain pods come.
    """
    stage = beside(conf, 10)
    result = stage.run()
    plain = [name for name in result.binds if name.startswith("plain")]
    assert "big-0" in result.binds
    assert len(plain) == 6
    verdict = result.verdict("plain")
    assert verdict is not None
    assert verdict.nodes == {"node(s) keep cpu and memory for idle nvidia.com/gpu": 1}


def test_memory_is_reserved_for_devices() -> None:
    """20 GB and 8 idle GPUs that keep 1 GB each: 12 GB are free, so two pods of 5 GB come."""
    jobs = [gang("plain", members=4, minimum=1, cpu=1, memory="5G")]
    machine = node("g", cpu=64, memory="20G", gpu=8)
    stage = cluster([machine], jobs, conf=OLDER)
    assert len(stage.run().binds) == 2


def test_an_invalid_rate_is_refused_with_its_line() -> None:
    text = OLDER.replace("gpu.cpu: 1", "gpu.cpu: many")
    with pytest.raises(ConfigError) as error:
        config.parse(text, builtin())
    assert "line 9: plugin 'predicates': predicate.resources.nvidia.com/gpu.cpu must be" in str(
        error.value
    )
    arguments = {"resources": {"cpu": {"weight": "x"}}}
    with pytest.raises(ConfigError, match=r"resources\.cpu\.weight must be a number"):
        config.parse(CONF % json.dumps(arguments), builtin())
