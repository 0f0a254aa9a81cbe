"""The status of PodGroups and pods at the end of a cycle."""

from __future__ import annotations

from typing import Any

from hekla.api.scheduling import PodGroupCondition
from hekla.scheduler.explain.status import group_written
from hekla.scheduler.framework import config
from hekla.scheduler.framework.plan import Event, SetGroupStatus, SetPodCondition
from hekla.scheduler.state import changes
from hekla.testing import GroupBuilder, Result, cluster, gang, node, pod, queue
from hekla.testing.objects import START


def written(result: Result, name: str) -> SetGroupStatus:
    (effect,) = [
        e for e in result.plan.effects if isinstance(e, SetGroupStatus) and e.group == name
    ]
    return effect


def conditions(result: Result, name: str) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in written(result, name).conditions}


def test_a_group_goes_from_pending_to_inqueue_to_running_to_completed() -> None:
    nodes = [node("n1", cpu=4)]
    pending = gang("a", members=0, phase="Pending", min_resources={"cpu": 1})
    assert cluster(nodes, [pending]).run().phases == {"a": "Inqueue"}
    placed = gang("a", members=2, cpu=1)
    assert cluster(nodes, [placed]).run().phases == {"a": "Inqueue"}, "nothing is bound yet"
    bound = gang("a", members=2, cpu=1, running_on=["n1", "n1"])
    assert cluster(nodes, [bound]).run().phases == {"a": "Running"}
    over = GroupBuilder(bound.group).and_pods(
        *(pod(f"a-{i}", group="a", cpu=1, node="n1", phase="Succeeded") for i in range(2))
    )
    done = written(cluster(nodes, [over]).run(), "a")
    assert (done.phase, done.running, done.succeeded, done.failed) == ("Completed", 0, 2, 0)


def test_a_podgroup_with_minimum_zero_is_completed_once_its_pods_are_gone() -> None:
    """A group whose pods are not created yet is not finished."""
    nodes = [node("n1", cpu=4)]
    for before, after in (
        ("Running", "Completed"),
        ("Unknown", "Completed"),
        ("Inqueue", "Inqueue"),
        ("Pending", "Inqueue"),
    ):
        empty = gang("a", members=0, minimum=0, phase=before)
        world = cluster(nodes, [empty])
        assert world.run().phases.get("a", before) == after
    assert cluster(nodes, [gang("a", members=0, minimum=1, phase="Running")]).run().phases == {
        "a": "Pending"
    }
    empty = gang("a", members=0, minimum=0, phase="Completed")
    stays = cluster(nodes, [empty])
    assert stays.run().phases.get("a", "Completed") == "Completed"
    stays.add(GroupBuilder(empty.group, [pod("a-0", group="a", cpu=1)]))
    assert list(stays.run().binds) == ["a-0"], "who comes later is placed"


def test_a_podgroup_that_lost_all_pods_is_enqueued_again_without_another_event() -> None:
    """Its pods are created once it is Inqueue; the watch event of our write starts no cycle."""
    world = cluster([node("n1", cpu=4)], [gang("a", members=0, minimum=2, phase="Running")])
    first = world.run()
    assert first.phases == {"a": "Pending"}
    assert first.plan.wake_at == START
    world.live(first)
    second = world.run()
    assert (second.phases, second.plan.wake_at) == ({"a": "Inqueue"}, None)


def test_a_running_podgroup_with_unplaceable_members_is_unknown() -> None:
    job = gang("a", members=3, cpu=2, running_on=["n1", "n1"], phase="Running")
    assert cluster([node("n1", cpu=4)], [job]).run().phases == {"a": "Unknown"}


def test_the_unschedulable_condition_becomes_false_once_the_gang_is_placed() -> None:
    job = gang("a", members=2, cpu=1)
    short = cluster([node("n1", cpu=1)], [job]).run()
    assert conditions(short, "a") == {"Unschedulable": ("True", "NotEnoughResources")}
    (condition,) = written(short, "a").conditions
    assert condition.message.startswith("1/2 tasks in gang unschedulable: 1/2 tasks fit")
    world = cluster([node("n1", cpu=2)], [job])
    world.state.jobs["default/a"].conditions = (
        PodGroupCondition(
            type="Unschedulable",
            status="True",
            reason="NotEnoughResources",
            message=condition.message,
        ),
    )
    placed = world.run()
    assert {kind: status for kind, (status, _) in conditions(placed, "a").items()} == {
        "Scheduled": "True",
        "Unschedulable": "False",
    }


def test_a_gang_that_restarts_says_how_many_of_its_pods_exist() -> None:
    """Its deleted pods terminate, and the new ones are created after them."""
    left = pod("a-2", group="a", cpu=1, node="n1", phase="Running", deleting=True)
    job = gang("a", members=0, minimum=3, phase="Running")
    result = cluster([node("n1", cpu=4)], [GroupBuilder(job.group, [left])]).run()
    (condition,) = [c for c in written(result, "a").conditions if c.type == "Unschedulable"]
    assert condition.message == (
        "3/3 tasks in gang unschedulable: 1 pod exists, 1 of them terminating, and the gang needs 3"
    )


def test_nothing_is_written_twice() -> None:
    """A second cycle over the written state plans no write: messages are stable."""
    world = cluster([node("n1", cpu=1)], [gang("a", members=2, cpu=1)])
    first = world.run()
    changes.apply(world.state, group_written(written(first, "a")))
    for effect in first.plan.effects:
        if isinstance(effect, SetPodCondition):
            world.state.tasks[effect.uid].condition = ("False", effect.reason, effect.message)
    assert world.run().plan.effects == []


def test_a_podgroup_with_a_decided_status_is_not_visited_until_it_changes() -> None:
    """Among thousands of groups its write may be late; cycles before that skip it."""
    let_in = gang("a", members=0, phase="Pending", min_resources={"cpu": 1})
    runs = gang("b", members=1, cpu=1, running_on=["n1"])
    world = cluster([node("n1", cpu=4)], [let_in, runs])
    first = world.run()
    world.state.mark_clean()
    for name in ("a", "b"):
        changes.apply(world.state, group_written(written(first, name)))
    assert world.run().plan.considered == 0
    assert world.state.jobs["default/a"].phase == "Inqueue"
    assert [c.type for c in world.state.jobs["default/b"].conditions] == ["Scheduled"]


def test_pending_pods_have_the_reason_and_the_gang_gets_one_event() -> None:
    result = cluster([node("n1", cpu=1)], [gang("a", members=3, cpu=1)]).run()
    told = [e for e in result.plan.effects if isinstance(e, SetPodCondition)]
    assert [e.pod for e in told] == ["a-0", "a-1", "a-2"]
    assert {e.reason for e in told} == {"Unschedulable"}
    events = [e for e in result.plan.effects if isinstance(e, Event)]
    assert sorted((e.kind, e.reason) for e in events) == [
        ("Pod", "FailedScheduling"),
        ("PodGroup", "Unschedulable"),
    ]


def test_gated_pods_are_left_to_the_api_server() -> None:
    job = gang("a", members=1, cpu=1, spec={"schedulingGates": [{"name": "x"}]})
    result = cluster([node("n1")], [job]).run()
    assert not [e for e in result.plan.effects if isinstance(e, SetPodCondition)]


def test_a_pipelined_pod_has_a_condition() -> None:
    terminating = pod("old", cpu=1, node="n1", deleting=True)
    result = cluster([node("n1", cpu=1)], [gang("a", cpu=1)], pods=[terminating]).run()
    (told,) = [e for e in result.plan.effects if isinstance(e, SetPodCondition)]
    assert told.message.startswith("Pod default/a-0 can possibly be assigned, once resource")


def test_a_preemptor_gets_a_nominated_node() -> None:
    jobs = [
        gang("v", cpu=1, running_on=["n1"], phase="Running"),
        gang("a", cpu=1, priority_class="high"),
    ]
    conf = config.DEFAULT.replace("allocate,", "allocate, preempt,")
    result = cluster([node("n1", cpu=1)], jobs, priorities={"high": 9}, conf=conf).run()
    (told,) = [e for e in result.plan.effects if isinstance(e, SetPodCondition)]
    assert told.message.startswith("Pod default/a-0 can possibly be assigned to n1, once resource")
    assert told.nominated_node == "n1"


def test_messages_are_bounded() -> None:
    nodes = [node(f"n{i}", taints=[f"{'k' * 60}{i}=v:NoSchedule"]) for i in range(40)]
    job = gang("a" * 60, members=2, cpu=1)
    result = cluster(nodes, [job]).run()
    for condition in written(result, "a" * 60).conditions:
        assert len(condition.message) <= 1024


def test_a_gang_with_missing_pods_writes_no_pod_conditions() -> None:
    result = cluster([node("n1", cpu=9)], [gang("a", members=3, minimum=5, cpu=1)]).run()
    assert not [e for e in result.plan.effects if isinstance(e, SetPodCondition)]
    (condition,) = written(result, "a").conditions
    assert "3 of the 5 needed exist" in condition.message


FULL_CONF = """\
actions: "enqueue, allocate"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
"""


def pod_conditions(world: Any) -> dict[str, tuple[str, str]]:
    effects = world.run().plan.effects
    return {e.pod: (e.reason, e.message) for e in effects if isinstance(e, SetPodCondition)}


def test_a_pending_pod_names_every_short_resource() -> None:
    world = cluster([node("n1", cpu=1, memory="1Gi")], [gang("a", cpu=2, memory="2Gi")])
    assert pod_conditions(world)["a-0"] == (
        "Unschedulable",
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.",
    )


def test_a_pod_at_its_queues_capability_is_not_for_autoscalers() -> None:
    jobs = [
        gang("run", cpu=1, queue="q", running_on=["n1"], phase="Running"),
        gang("wait", cpu=1, queue="q"),
    ]
    queues = [queue("q", capability={"cpu": 1})]
    for cpu in (1, 4):  # also where the cluster is full: more nodes would not help
        world = cluster([node("n1", cpu=cpu)], jobs, queues=queues, conf=FULL_CONF)
        assert pod_conditions(world)["wait-0"][0] == "QueueShare"


def test_a_pod_of_a_closed_queue_is_not_for_autoscalers() -> None:
    queues = [queue("q", state="Closed")]
    world = cluster([node("n1", cpu=4)], [gang("wait", cpu=1, queue="q")], queues=queues)
    assert pod_conditions(world)["wait-0"][0] == "QueueClosed"


def test_a_share_of_a_full_cluster_is_for_autoscalers() -> None:
    """Each queue uses its half of a full cluster: with more nodes both get more."""
    jobs = [gang(n, members=2, minimum=1, cpu=1, queue=n, running_on=["n1"]) for n in "ab"]
    world = cluster([node("n1", cpu=2)], jobs, queues=[queue("a"), queue("b")], conf=FULL_CONF)
    assert {reason for reason, _ in pod_conditions(world).values()} == {"Unschedulable"}
