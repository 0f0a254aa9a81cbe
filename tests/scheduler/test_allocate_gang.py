"""Gangs are placed whole or not at all."""

from hekla.scheduler.framework.plan import SetPodCondition
from hekla.scheduler.framework.verdict import Gate
from hekla.testing import cluster, gang, node, pod


def test_gang_of_four_waits_when_only_three_fit() -> None:
    result = cluster(nodes=[node("n1", cpu=3)], jobs=[gang("train", members=4, cpu=1)]).run()
    assert result.binds == {}
    assert "3/4 tasks fit" in result.why("train")


def test_gang_of_four_is_bound_whole_once_a_fourth_fits() -> None:
    nodes = [node("n1", cpu=3), node("n2", cpu=1)]
    result = cluster(nodes=nodes, jobs=[gang("train", members=4, cpu=1)]).run()
    assert {"train-0", "train-1", "train-2", "train-3"} == set(result.binds)
    assert result.why("train") == ""


def test_resources_of_a_rolled_back_gang_are_used_by_the_next_job() -> None:
    big = gang("big", members=4, cpu=1, age=60)
    small = gang("small", members=2, cpu=1)
    result = cluster(nodes=[node("n1", cpu=3)], jobs=[big, small]).run()
    assert result.binds == {"small-0": "n1", "small-1": "n1"}


def test_an_elastic_job_gets_its_minimum_and_then_what_is_left() -> None:
    """minMember 2, 5 pods, capacity for 4: checklist item 2 of the reference."""
    job = gang("elastic", members=5, minimum=2, cpu=1)
    result = cluster(nodes=[node("n1", cpu=4)], jobs=[job]).run()
    assert {"elastic-0", "elastic-1", "elastic-2", "elastic-3"} == set(result.binds)
    verdict = result.verdict("elastic")
    assert verdict is not None
    assert verdict.gate in (Gate.SURPLUS, Gate.QUEUE_SHARE)


def test_role_minimums_keep_a_gang_pending_without_its_parameter_server() -> None:
    """Two workers fit and no ps: not ready, though half of three members would be placed."""
    workers = gang("tf", members=2, minimum=3, roles={"ps": 1, "worker": 2}, role="worker", cpu=1)
    server = pod("tf-ps-0", group="tf", role="ps", cpu=8)
    result = cluster([node("n1", cpu=4)], [workers.and_pods(server)]).run()
    assert result.binds == {}
    bound = cluster([node("n1", cpu=4), node("n2", cpu=8)], [workers.and_pods(server)]).run()
    assert {"tf-worker-0", "tf-worker-1", "tf-ps-0"} == set(bound.binds)


def test_a_gang_with_fewer_pods_than_its_minimum_has_a_verdict() -> None:
    result = cluster([node("n1", cpu=8)], [gang("half", members=2, minimum=4, cpu=1)]).run()
    assert result.binds == {}
    verdict = result.verdict("half")
    assert verdict is not None
    assert verdict.gate == Gate.NOT_ENOUGH_TASKS
    assert "2 of the 4 needed exist" in verdict.message


def test_members_that_finished_count_towards_the_minimum() -> None:
    job = gang("late", members=1, minimum=2, cpu=1).and_pods(
        pod("late-9", group="late", cpu=1, node="n1", phase="Succeeded")
    )
    result = cluster([node("n1", cpu=1)], [job]).run()
    assert result.binds == {"late-0": "n1"}


def test_a_gang_is_pipelined_on_releasing_resources_and_not_bound() -> None:
    terminating = pod("old", cpu=2, node="n1", deleting=True)
    world = cluster([node("n1", cpu=3)], [gang("next", members=3, cpu=1)], pods=[terminating])
    result = world.run()
    assert result.binds == {}
    assert result.pipelined == {"next-1": "n1", "next-2": "n1"}
    verdict = result.verdict("next")
    assert verdict is not None
    assert verdict.gate == Gate.PIPELINED


def test_resources_pipelined_for_one_gang_are_not_used_by_the_next() -> None:
    terminating = pod("old", cpu=2, node="n1", deleting=True)
    first = gang("first", members=3, cpu=1, age=60)
    second = gang("second", members=1, cpu=1)
    result = cluster([node("n1", cpu=3)], [first, second], pods=[terminating]).run()
    assert result.binds == {}


def test_gated_pods_keep_their_gang_pending() -> None:
    job = gang("gated", members=2, cpu=1, spec={"schedulingGates": [{"name": "example.com/x"}]})
    result = cluster([node("n1", cpu=4)], [job]).run()
    assert result.binds == {}
    verdict = result.verdict("gated")
    assert verdict is not None
    assert verdict.gate == Gate.GATED


def test_best_effort_members_count_as_ready_and_are_backfilled() -> None:
    job = gang("mixed", members=2, minimum=3, cpu=1).and_pods(pod("mixed-free", group="mixed"))
    result = cluster([node("n1", cpu=2)], [job]).run()
    assert result.binds == {"mixed-0": "n1", "mixed-1": "n1", "mixed-free": "n1"}


def test_jobs_of_one_queue_go_by_priority_then_age() -> None:
    jobs = [
        gang("young", members=1, cpu=1, age=1),
        gang("old", members=1, cpu=1, age=99),
        gang("urgent", members=1, cpu=1, priority_class="high"),
    ]
    result = cluster([node("n1", cpu=2)], jobs, priorities={"high": 5}).run()
    assert [bind.pod for bind in result.plan.binds] == ["urgent-0", "old-0"]


def test_a_nominated_pod_uses_another_node_that_is_free_earlier() -> None:
    """Idle resources are preferred to releasing ones."""
    terminating = gang("old", cpu=1, running_on=["n1"], deleting=True)
    chosen = gang("a", cpu=1, status={"nominatedNodeName": "n1"})
    with_idle = [node("n1", cpu=1), node("n2", cpu=1)]
    assert cluster(nodes=with_idle, jobs=[terminating, chosen]).run().binds == {"a-0": "n2"}
    without = cluster(nodes=[node("n1", cpu=1)], jobs=[terminating, chosen]).run()
    assert (without.binds, without.pipelined) == ({}, {"a-0": "n1"})


def test_a_nominated_pod_is_bound_to_its_nominated_node() -> None:
    nodes = [node("n1", cpu=4), node("n2", cpu=4)]
    chosen = gang("a", cpu=1, status={"nominatedNodeName": "n2"})
    assert cluster(nodes, [chosen]).run().binds == {"a-0": "n2"}
    full = pod("r", cpu=4, node="n2")
    assert cluster(nodes, [chosen], pods=[full]).run().binds == {"a-0": "n1"}


def test_equal_pods_nominated_for_one_node_use_its_idle_resources_first() -> None:
    """Two of three CPUs of n1 are releasing; n2 has one idle, and one pod stays pending."""
    terminating = gang("old", members=1, cpu=1, running_on=["n1"], deleting=True)
    chosen = gang("a", members=4, minimum=1, cpu=1, status={"nominatedNodeName": "n1"})
    result = cluster([node("n1", cpu=3), node("n2", cpu=1)], [terminating, chosen]).run()
    assert result.binds == {"a-0": "n1", "a-1": "n1", "a-2": "n2"}
    assert result.pipelined == {"a-3": "n1"}


def test_pods_with_anti_affinity_nominated_for_one_node_are_separated() -> None:
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "a"}},
                }
            ]
        }
    }
    chosen = gang(
        "a",
        members=2,
        cpu=1,
        labels={"app": "a"},
        spec={"affinity": apart},
        status={"nominatedNodeName": "n1"},
    )
    result = cluster([node("n1", cpu=4), node("n2", cpu=4)], [chosen]).run()
    assert result.binds == {"a-0": "n1", "a-1": "n2"}


def test_a_pending_gang_does_not_take_nominated_resources_of_others() -> None:
    """The idle CPU on n2 is not enough for `a`, and `b` needs it."""
    nodes = [node("n1", cpu=2), node("n2", cpu=2)]
    jobs = [
        gang("old", members=3, cpu=1, running_on=["n1", "n1", "n2"], deleting=True),
        gang("a", members=2, cpu=1, age=9, status={"nominatedNodeName": "n1"}),
        gang("b", members=2, cpu=1, status={"nominatedNodeName": "n2"}),
    ]
    result = cluster(nodes, jobs).run()
    assert result.binds == {}
    assert result.pipelined == {"a-0": "n1", "a-1": "n1", "b-1": "n2"}


def test_a_pod_that_lost_its_nominated_node_is_nominated_for_another() -> None:
    jobs = [
        gang("firm", cpu=1, running_on=["n1"]),
        gang("old", cpu=1, running_on=["n2"], deleting=True),
        gang("a", cpu=1, status={"nominatedNodeName": "n1"}),
    ]
    result = cluster([node("n1", cpu=1), node("n2", cpu=1)], jobs).run()
    assert (result.binds, result.pipelined) == ({}, {"a-0": "n2"})
    (told,) = [effect for effect in result.plan.effects if isinstance(effect, SetPodCondition)]
    assert told.nominated_node == "n2"
