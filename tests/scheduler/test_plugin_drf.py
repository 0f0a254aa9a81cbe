"""drf: dominant shares of jobs, namespaces and hierarchical queues, computed by hand."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.api import core, scheduling
from hekla.api.meta import convert
from hekla.scheduler.framework.config import parse
from hekla.scheduler.plugins import builtin
from hekla.scheduler.plugins.drf.plugin import Drf
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.status import PENDING
from hekla.testing import TestCluster, cluster, gang, node

FLAT = """\
actions: "allocate"
tiers:
- plugins: [{name: gang}, {name: drf}, {name: predicates}]
"""
TREE = FLAT.replace("{name: drf}", "{name: drf, enableHierarchy: true}")
SPACES = FLAT.replace("{name: drf}", "{name: drf, enabledNamespaceOrder: true}")
RECLAIM = TREE.replace("allocate", "allocate, reclaim")


def branch(name: str, path: str, weights: str) -> scheduling.Queue:
    notes = {"volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": weights}
    body = {
        "metadata": {"name": name, "annotations": notes},
        "spec": {"weight": 1},
        "status": {"state": "Open"},
    }
    return convert(body, scheduling.Queue)


def drf_of(session: Session) -> Drf:
    found = session.plugin("drf")
    assert isinstance(found, Drf)
    return found


def test_the_smaller_dominant_share_comes_first() -> None:
    """Of 10 cpu and 20Gi: 3 cpu is 0.3, 4Gi is 0.2, so the second job is served first."""
    by_cpu = gang("c", members=2, minimum=1, cpu=3, memory="1Gi", running_on=["n1"])
    by_memory = gang("m", members=2, minimum=1, cpu=1, memory="4Gi", running_on=["n1"], age=-5)
    world = cluster([node("n1", cpu=10, memory="20Gi")], [by_cpu, by_memory], conf=FLAT)
    with Session(world.state, world.config, 0.0) as session:
        shares = [drf_of(session).job_order(world.state.jobs[f"default/{k}"])[0] for k in "cm"]
    assert shares == pytest.approx([0.3, 0.2])


def test_namespaces_share_by_weight_before_their_jobs_do() -> None:
    """team-a holds 4 of 12 with weight 1, team-b 6 of 12 with weight 2: 0.33 against 0.25."""
    jobs = [gang("a", namespace="team-a", cpu=4, running_on=["n1"], phase="Running")]
    jobs += [gang("b", namespace="team-b", cpu=6, running_on=["n1"], phase="Running")]
    jobs += [gang("old", namespace="team-a", cpu=2, age=50)]
    jobs += [gang("new", namespace="team-b", cpu=2)]
    quota = convert(
        {
            "metadata": {"name": "w", "namespace": "team-b"},
            "spec": {"hard": {"volcano.sh/namespace.weight": "2"}},
        },
        core.ResourceQuota,
    )
    world = cluster([node("n1", cpu=12)], jobs, quotas=[quota], conf=SPACES)
    assert world.run().binds == {"new-0": "n1"}
    world.config = parse(FLAT, builtin())
    assert world.run().binds == {"old-0": "n1"}, "without it the older job goes first"


def test_namespace_shares_grow_as_jobs_are_placed() -> None:
    """Six slots, two namespaces of equal weight, one with six older jobs: three each."""
    jobs = [gang(f"a{i}", namespace="team-a", cpu=1, age=50) for i in range(6)]
    jobs += [gang(f"b{i}", namespace="team-b", cpu=1) for i in range(6)]
    binds = cluster([node("n1", cpu=6)], jobs, conf=SPACES).run().binds
    assert sum(name.startswith("a") for name in binds) == 3


def hierarchy(eng: str = "3", prod: str = "2") -> TestCluster:
    """root/sci has weight 1; root/eng has two children, of which dev has weight 1."""
    queues = [
        branch("sci", "root/sci", "100/1"),
        branch("dev", "root/eng/dev", f"100/{eng}/1"),
        branch("prod", "root/eng/prod", f"100/{eng}/{prod}"),
    ]
    jobs = [
        gang(f"{name}{i:02d}", cpu=1, memory="1Gi", queue=name)
        for name in ("sci", "dev", "prod")
        for i in range(24)
    ]
    return cluster([node("n1", cpu=24, memory="48Gi")], jobs, queues=queues, conf=TREE)


def test_a_tree_of_queues_shares_by_the_weights_on_each_level() -> None:
    """24 cpu at 1:2 is 8 and 16; the 16 at 1:1 are 8 and 8. At 1:3 it is 6, 9 and 9."""
    for weight, want in (("2", [8, 8, 8]), ("3", [6, 9, 9])):
        binds = hierarchy(eng=weight, prod="1").run().binds
        got = [sum(b.startswith(name) for b in binds) for name in ("sci", "dev", "prod")]
        assert got == want


def test_queues_are_compared_at_their_first_different_ancestor() -> None:
    world = hierarchy()
    with Session(world.state, world.config, 0.0) as session:
        for _ in range(4):
            for name in ("dev", "prod"):
                job = next(
                    j for j in world.state.queues[name].jobs.values() if j.by_status[PENDING]
                )
                task = next(iter(job.by_status[PENDING].values()))
                with session.statement() as statement:
                    statement.allocate((task,), session.placer.best_nodes(task, 1))
                    statement.keep()
        keys = {n: drf_of(session).queue_order(world.state.queues[n]) for n in ("dev", "prod")}
    # dev and prod hold 4 of 24 each: 1/6; eng together twice that, 1/3, by its weight of 3.
    assert keys["dev"][1] == keys["prod"][1] == (False, pytest.approx(1 / 9))
    assert keys["dev"][2] == (False, pytest.approx(1 / 6))
    assert keys["prod"][2] == (False, pytest.approx(1 / 12))


def running(name: str, count: int, queue: str, **more: Any) -> Any:
    return gang(
        name, members=count, minimum=1, cpu=1, queue=queue, running_on=["n1"] * count, **more
    )


def test_a_queue_behind_in_the_hierarchy_reclaims() -> None:
    """Equal weights on 8 cpu, shares 7 and 1: after each eviction the preemptor must be first.

    With 2 against 6 and 3 against 5 it is still first; with 4 against 4 it is not.
    """
    queues = [branch("rich", "root/rich", "1/1"), branch("poor", "root/poor", "1/1")]
    jobs = [running("rich", 7, "rich", phase="Running"), running("p", 1, "poor", phase="Running")]
    jobs += [gang(f"poor{i}", cpu=1, queue="poor", age=-float(i)) for i in range(5)]
    more = gang("more", members=4, minimum=1, cpu=1, queue="rich")
    world = cluster([node("n1", cpu=8)], [*jobs, more], queues=queues, conf=RECLAIM)
    result = world.run()
    assert 1 <= len(result.evictions) <= 3
    assert all(name.startswith("rich-") for name in result.evictions)
    for _ in range(12):
        world.live(result)
        result = world.run()
    assert result.evictions == []
