"""Reclaim across queues: a queue below its deserved share evicts from queues above theirs."""

from __future__ import annotations

from typing import Any

from hekla.scheduler.framework.verdict import Gate
from hekla.testing import GroupBuilder, cluster, gang, node, queue

CONF = """\
actions: "enqueue, allocate, reclaim, backfill"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
  - {name: conformance}
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
"""
UNPROTECTED = CONF.replace("{name: gang}", "{name: gang, enableReclaimable: false}")


def over(count: int, **more: Any) -> GroupBuilder:
    """An elastic job of queue a that fills n1."""
    options = {"minimum": 1, "cpu": 1, "queue": "a", "phase": "Running", **more}
    return gang("over", members=count, running_on=["n1"] * count, **options)


def run(jobs: list[GroupBuilder], conf: str = CONF, cpu: int = 4, **queues: Any) -> Any:
    made = [queue(name, **queues.get(name, {})) for name in ("a", "b")]
    return cluster([node("n1", cpu=cpu)], jobs, queues=made, conf=conf).run()


def test_a_queue_reclaims_its_deserved_share_and_no_more() -> None:
    """Weights 1:1 over 4 cpu, a uses all 4, b requests 4 in jobs of 1: two are reclaimed."""
    jobs = [over(4), *(gang(f"b{i}", cpu=1, queue="b") for i in range(4))]
    result = run(jobs)
    assert result.evictions == ["over-3", "over-2"]
    assert len(result.pipelined) == 2
    gates = [result.verdict(f"b{i}").gate for i in range(4)]
    assert gates.count(Gate.VICTIMS) == 2


def test_a_gang_above_its_queues_limit_evicts_no_pod() -> None:
    """b deserves 2 of 4 cpu; a gang of 3 would be over it."""
    result = run([over(4), gang("b", members=3, cpu=1, queue="b")])
    assert result.evictions == []


def test_weights_decide_how_much_is_reclaimed() -> None:
    """1:3 over 4 cpu: b deserves 3."""
    result = run([over(4), gang("b", members=3, cpu=1, queue="b")], b={"weight": 3})
    assert result.evictions == ["over-3", "over-2", "over-1"]
    assert set(result.pipelined) == {"b-0", "b-1", "b-2"}


def test_a_queue_that_is_not_reclaimable_loses_no_pod() -> None:
    jobs = [over(4), gang("b", cpu=1, queue="b")]
    assert run(jobs, a={"reclaimable": False}).evictions == []


def test_a_guarantee_is_not_broken_even_by_one_large_pod() -> None:
    """a has one pod of 4 cpu, deserves 3 by its guarantee: an eviction would leave it nothing."""
    jobs = [over(1, cpu=4, minimum=0), gang("b", cpu=1, queue="b")]
    assert run(jobs, UNPROTECTED, a={"guarantee": {"cpu": 3}}).evictions == []
    assert run(jobs, UNPROTECTED).evictions == ["over-0"]


def test_a_gang_keeps_its_minimum_unless_the_configuration_says_otherwise() -> None:
    jobs = [over(4, minimum=4), gang("b", cpu=1, queue="b")]
    assert run(jobs).evictions == []
    assert run(jobs, UNPROTECTED).evictions == ["over-3"]


def test_pods_marked_as_not_preemptable_are_not_evicted() -> None:
    job = over(4)
    for pod in job.pods[1:]:
        assert pod.metadata.annotations is not None
        pod.metadata.annotations["volcano.sh/preemptable"] = "false"
    result = run([job, gang("b", cpu=1, queue="b")], UNPROTECTED)
    assert result.evictions == ["over-0"]


def test_no_pod_is_evicted_while_the_task_fits() -> None:
    result = run([over(3), gang("b", cpu=1, queue="b")])
    assert result.evictions == []
    assert result.binds == {"b-0": "n1"}


def test_after_reclaim_no_further_pod_is_evicted() -> None:
    """Two and two, by weight; the evicted pods stay pending and reclaim nothing."""
    made = [queue("a"), queue("b")]
    jobs = [over(4), gang("b", members=4, minimum=1, cpu=1, queue="b")]
    world = cluster([node("n1", cpu=4)], jobs, queues=made, conf=CONF)
    for _ in range(6):
        world.live(world.run())
    result = world.run()
    assert (result.binds, result.evictions) == ({}, [])
    held = {name: world.state.queues[name].allocated_r[0] for name in ("a", "b")}
    assert held == {"a": 3000.0, "b": 1000.0}, "b's job has its minimum; surplus does not starve"


def test_all_five_actions_run_together() -> None:
    """b reclaims two; the jobs of a have equal priority, so preempt does nothing."""
    conf = CONF.replace("allocate, reclaim", "allocate, preempt, reclaim")
    world = cluster(
        [node("n1", cpu=4)],
        [over(4), gang("b", members=2, cpu=1, queue="b")],
        queues=[queue("a"), queue("b")],
        conf=conf,
    )
    assert world.config.actions == ("enqueue", "allocate", "preempt", "reclaim", "backfill")
    assert world.config.warnings == ()
    assert world.run().evictions == ["over-3", "over-2"]
