"""Preemption within a queue: victims, preemptors, and cases without eviction."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from hekla.api import core
from hekla.api.meta import convert
from hekla.scheduler.framework.plan import SetPodCondition
from hekla.scheduler.framework.verdict import Gate
from hekla.testing import GroupBuilder, cluster, gang, node, pod, queue

CONF = """\
actions: "enqueue, allocate, preempt, backfill"
tiers:
- plugins:
  - {name: priority}
  - {name: gang, enablePreemptable: false}
  - {name: conformance}
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
"""
GANG = CONF.replace(", enablePreemptable: false", "")
PRIORITIES = {"low": 1, "mid": 5, "high": 9}


def low(name: str, on: list[str], **more: Any) -> GroupBuilder:
    options = {"cpu": 1, "priority_class": "low", "phase": "Running", **more}
    return gang(name, members=len(on), running_on=on, **options)


def high(name: str = "p", **more: Any) -> GroupBuilder:
    return gang(name, **{"cpu": 1, "priority_class": "high", **more})


def run(nodes: list[Any], jobs: list[GroupBuilder], conf: str = CONF, **more: Any) -> Any:
    return cluster(nodes, jobs, priorities=PRIORITIES, conf=conf, **more).run()


def test_a_job_of_higher_priority_evicts_just_enough() -> None:
    """4 cpu full with four of 1; the preemptor requests 2: two victims, highest index first."""
    result = run([node("n1", cpu=4)], [low("v", ["n1"] * 4), high(cpu=2)])
    assert result.evictions == ["v-3", "v-2"]
    assert result.pipelined == {"p-0": "n1"}
    assert result.binds == {}


def test_the_node_with_fewer_victims_is_chosen() -> None:
    """n1 has two of 1 cpu, n2 one of 2: n2 needs one victim."""
    jobs = [low("a", ["n1", "n1"]), low("b", ["n2"], cpu=2), high(cpu=2)]
    result = run([node("n1", cpu=2), node("n2", cpu=2)], jobs)
    assert result.evictions == ["b-0"]
    assert result.pipelined == {"p-0": "n2"}


def test_of_equally_many_victims_the_lowest_priority_is_evicted() -> None:
    jobs = [low("a", ["n1"], priority_class="mid"), low("b", ["n2"]), high()]
    result = run([node("n1", cpu=1), node("n2", cpu=1)], jobs)
    assert result.evictions == ["b-0"]


def test_of_equal_victims_the_youngest_is_evicted() -> None:
    jobs = [low("a", ["n1"], age=10), low("b", ["n2"], age=500), high()]
    result = run([node("n1", cpu=1), node("n2", cpu=1)], jobs)
    assert result.evictions == ["a-0"]


def test_victims_that_are_not_needed_are_dropped() -> None:
    """Lowest first: 1 cpu, then 3 cpu; 3 are requested, so the first is reprieved."""
    jobs = [low("a", ["n1"]), low("b", ["n1"], cpu=3, priority_class="mid"), high(cpu=3)]
    assert run([node("n1", cpu=4)], jobs).evictions == ["b-0"]


def test_a_gang_that_does_not_fit_evicts_no_pod() -> None:
    """Three members of 2 cpu; only two fit even on the empty cluster."""
    result = run([node("n1", cpu=4)], [low("v", ["n1"] * 4), high(members=3, cpu=2)])
    assert result.evictions == []
    assert result.pipelined == {}
    assert result.verdict("p").gate != Gate.VICTIMS


def test_a_gang_uses_idle_resources_first_and_preempts_for_the_rest() -> None:
    """2 of 4 cpu are idle: a gang of 3 needs one victim."""
    result = run([node("n1", cpu=4)], [low("v", ["n1"] * 2), high(members=3)])
    assert result.evictions == ["v-1"]
    assert set(result.pipelined) == {"p-0", "p-1", "p-2"}


@pytest.mark.parametrize("priority", ["low", "mid"])
def test_no_job_preempts_jobs_of_equal_or_higher_priority(priority: str) -> None:
    jobs = [low("v", ["n1"], priority_class="mid"), high(priority_class=priority)]
    assert run([node("n1", cpu=1)], jobs).evictions == []


@pytest.mark.parametrize(
    "victim",
    [
        {"annotations": {"volcano.sh/preemptable": "false"}},
        {"spec": {"priorityClassName": "system-node-critical"}},
    ],
)
def test_protected_pods_are_not_evicted(victim: dict[str, Any]) -> None:
    spec = dict(victim)
    notes = spec.pop("annotations", {})
    job = low("v", ["n1"], **spec)
    for each in job.pods:
        assert each.metadata.annotations is not None
        each.metadata.annotations.update(notes)
    assert run([node("n1", cpu=1)], [job, high()]).evictions == []


def test_a_pod_with_preemption_policy_never_evicts_no_pod() -> None:
    pending = high(spec={"preemptionPolicy": "Never"})
    assert run([node("n1", cpu=1)], [low("v", ["n1"]), pending]).evictions == []


def test_preempt_evicts_no_pod_of_other_queues() -> None:
    queues = [queue("a"), queue("b")]
    jobs = [low("v", ["n1"], queue="a"), high(queue="b")]
    assert run([node("n1", cpu=1)], jobs, queues=queues).evictions == []


def test_no_pod_is_evicted_from_an_infeasible_node() -> None:
    picky = high(spec={"nodeSelector": {"kubernetes.io/hostname": "n2"}})
    nodes = [node("n1", cpu=1), node("n2", cpu=1)]
    jobs = [low("a", ["n1"], age=1), low("b", ["n2"], age=100), picky]
    assert run(nodes, jobs).evictions == ["b-0"]


def test_with_protected_gangs_only_surplus_is_evicted() -> None:
    """Minimum 3 of 4: one may be evicted, enough for a job of one task, not for a gang of two."""
    victim = low("v", ["n1"] * 4, minimum=3)
    assert run([node("n1", cpu=4)], [victim, high()], GANG).evictions == ["v-3"]
    assert run([node("n1", cpu=4)], [victim, high(members=2)], GANG).evictions == []


def test_the_preemptor_is_nominated_and_the_verdict_says_what_it_waits_for() -> None:
    result = run([node("n1", cpu=1)], [low("v", ["n1"]), high()])
    (told,) = [e for e in result.plan.effects if isinstance(e, SetPodCondition)]
    assert (told.pod, told.nominated_node) == ("p-0", "n1")
    verdict = result.verdict("p")
    assert verdict.gate == Gate.VICTIMS
    assert verdict.message == ("1 task is placed once the pods evicted for it have terminated")


def test_freed_resources_are_used_by_the_preemptor() -> None:
    """The victim is created again at once, and a third job is pending: the preemptor is bound."""
    jobs = [low("v", ["n1"]), high(), gang("w", cpu=1)]
    world = cluster([node("n1", cpu=1)], jobs, priorities=PRIORITIES, conf=CONF)
    world.live(world.run())
    after = world.run()
    assert after.binds == {"p-0": "n1"}
    assert after.evictions == []


def test_no_more_victims_are_evicted_while_victims_terminate() -> None:
    world = cluster(
        [node("n1", cpu=2)], [low("v", ["n1"] * 2), high()], priorities=PRIORITIES, conf=CONF
    )
    first = world.run()
    assert first.evictions == ["v-1"]
    world.state.tasks["default-p-0"].nominated_node = "n1"
    terminating = world.pods["default-v-1"]
    stamp = {"deletion_timestamp": "2023-11-14T22:13:20Z"}
    world.state.set_pod(replace(terminating, metadata=replace(terminating.metadata, **stamp)))
    second = world.run()
    assert second.evictions == []
    assert second.pipelined == {"p-0": "n1"}
    assert second.why("p") == first.why("p"), "the text does not flap"


def test_within_a_job_a_task_of_higher_priority_preempts_one_of_lower() -> None:
    """The job starves at one of two; the task with priority 7 is the one to run."""
    job = gang("j", members=2, cpu=1, running_on=["n1"], phase="Running")
    job.pods[1] = replace(job.pods[1], spec=replace(job.pods[1].spec, priority=7))
    result = run([node("n1", cpu=1)], [job])
    assert result.evictions == ["j-0"]
    assert result.pipelined == {"j-1": "n1"}


def test_a_preemption_that_the_victim_could_reverse_is_refused() -> None:
    """Without `priority` the two gangs are equal: each could evict the other for ever."""
    conf = """\
actions: "allocate, preempt"
tiers:
- plugins: [{name: gang, enablePreemptable: false}, {name: conformance}, {name: predicates}]
"""
    result = run([node("n1", cpu=1)], [low("v", ["n1"]), high()], conf)
    assert result.evictions == []


def test_a_disruption_budget_makes_the_plan_use_another_node() -> None:
    """Both victims cost the same and `a` is younger, but its budget allows no disruption."""
    jobs = [low("a", ["n1"], age=1, labels={"app": "a"}), low("b", ["n2"], age=100), high()]
    conf = CONF.replace("{name: conformance}", "{name: conformance}\n  - {name: pdb}")
    nodes = [node("n1", cpu=1), node("n2", cpu=1)]
    world = cluster(nodes, jobs, priorities=PRIORITIES, conf=conf)
    assert world.run().evictions == ["a-0"]
    budget = convert(
        {
            "metadata": {"name": "keep", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "a"}}},
            "status": {"disruptionsAllowed": 0},
        },
        core.PodDisruptionBudget,
    )
    world.state.budgets["default", "keep"] = budget
    assert world.run().evictions == ["b-0"]


def test_a_gang_that_does_not_fit_keeps_no_resources_and_gets_a_verdict() -> None:
    nodes = [node("free", cpu=4), node("other", cpu=4, taints=["for=others:NoSchedule"])]
    conf = 'actions: "allocate, preempt"\ntiers:\n- plugins: [{name: gang}, {name: predicates}]\n'
    result = cluster(nodes, [gang("half", members=2, cpu=3)], conf=conf).run()
    assert result.pipelined == {}
    assert "1/2 tasks fit" in result.why("half")


@pytest.mark.parametrize("age_of_the_gang", [100, 1])
def test_a_gang_that_preempts_in_vain_does_not_stop_a_smaller_job_of_equal_pods(
    age_of_the_gang: int,
) -> None:
    """4 cpu, 2 of them surplus of a low job: one pod of 3 cpu finds room, two never do."""
    jobs = [
        low("v", ["n1", "n1"], minimum=1),
        high("two", members=2, cpu=3, age=age_of_the_gang),
        high("one", cpu=3, age=50),
    ]
    result = run([node("n1", cpu=4)], jobs)
    assert result.evictions == ["v-1"]
    assert result.pipelined == {"one-0": "n1"}


def test_a_job_that_preempts_in_vain_for_one_role_does_not_stop_a_job_of_the_other() -> None:
    """The second role of `both` fits on no node."""
    large = pod("both-1", group="both", cpu=9)
    both = high("both", minimum=2, cpu=3, age=100).and_pods(large)
    jobs = [low("v", ["n1", "n1"], minimum=1), both, high("one", cpu=3, age=50)]
    result = run([node("n1", cpu=4)], jobs)
    assert result.pipelined == {"one-0": "n1"}
