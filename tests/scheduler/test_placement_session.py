"""From filters and scores to nodes: placing many tasks equals one at a time."""

from __future__ import annotations

from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.scheduler.framework import config
from hekla.scheduler.placement import placer
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.status import PENDING
from hekla.testing import TestCluster, cluster, gang, node, pod

MIXED = """\
actions: "allocate"
tiers:
- plugins:
  - {name: gang}
  - {name: predicates}
  - name: nodeorder
    arguments: {mostrequested.weight: 1, leastrequested.weight: 2}
  - name: binpack
    arguments: {binpack.weight: 1, binpack.cpu: 3}
"""
PREFERRED: dict[str, Any] = {
    "affinity": {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 7,
                    "preference": {
                        "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]
                    },
                },
                {
                    "weight": 3,
                    "preference": {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]},
                },
            ]
        }
    }
}


@st.composite
def worlds(draw: st.DrawFn) -> TestCluster:
    nodes = []
    for i in range(draw(st.integers(1, 7))):
        labels = {"zone": draw(st.sampled_from("abc"))}
        if draw(st.booleans()):
            labels["ssd"] = "yes"
        nodes.append(
            node(
                f"n{i}",
                cpu=draw(st.integers(1, 9)),
                memory=f"{draw(st.integers(1, 16))}Gi",
                labels=labels,
                pods=draw(st.integers(1, 9)),
                taints=draw(st.sampled_from([[], ["a=b:PreferNoSchedule"]])),
            )
        )
    running = [
        pod(f"r{i}", cpu=1, memory="1Gi", node=draw(st.sampled_from(nodes)).name)
        for i in range(draw(st.integers(0, 4)))
    ]
    job = gang(
        "job",
        members=20,
        minimum=1,
        cpu=draw(st.sampled_from(["500m", 1, 2])),
        memory=draw(st.sampled_from(["512Mi", "1Gi", "3Gi"])),
        spec=draw(st.sampled_from([{}, PREFERRED])),
    )
    conf = draw(st.sampled_from([config.DEFAULT, MIXED]))
    return cluster(nodes, [job], pods=running, conf=conf)


@settings(max_examples=150, deadline=None)
@given(worlds(), st.integers(1, 20))
def test_greedy_placement_of_k_tasks_equals_one_by_one(world: TestCluster, k: int) -> None:
    job = world.state.jobs["default/job"]
    with Session(world.state, world.config, 0.0) as session:
        tasks = session.in_task_order(job.by_status[PENDING].values())
        at_once = session.placer.best_nodes(tasks[0], k).tolist()
        affects_other_nodes: list[int] = []
        with session.statement() as statement:
            for task in tasks[:k]:
                index = session.placer.best_nodes(task, 1)
                if len(index) == 0:
                    break
                statement.allocate((task,), index)
                affects_other_nodes += index.tolist()
    assert affects_other_nodes == at_once
    assert not session.plan.failures


@st.composite
def rows_of_jobs(draw: st.DrawFn) -> TestCluster:
    """Small jobs of few classes, one after the other; some do not fit and are rolled back."""
    world = draw(worlds())
    for i in range(draw(st.integers(2, 25))):
        members = draw(st.sampled_from([1, 1, 1, 2, 9, 20]))
        wide = gang(f"s{i:02d}", members=members, cpu=draw(st.sampled_from([1, 1, 2])))
        world.add(wide)
    return world


@settings(max_examples=80, deadline=None)
@given(rows_of_jobs())
def test_lookahead_gives_the_same_placements(world: TestCluster) -> None:
    ahead = world.run()
    with mock.patch.object(placer, "FEW", 0):
        plain = world.run()
    assert ahead.plan.effects == plain.plan.effects
