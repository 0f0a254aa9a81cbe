"""The victim hooks of plugins, with numbers computed by hand."""

from __future__ import annotations

from hekla.scheduler.plugins.conformance import Conformance
from hekla.scheduler.plugins.drf.plugin import Drf
from hekla.scheduler.plugins.gang import Gang
from hekla.scheduler.plugins.priority import Priority
from hekla.scheduler.plugins.proportion import Proportion
from hekla.scheduler.session.session import Session
from hekla.scheduler.state.model import Task
from hekla.scheduler.state.status import PENDING, RUNNING
from hekla.testing import TestCluster, cluster, gang, node, pod, queue


def tasks(world: TestCluster, job: str, status: int = RUNNING) -> list[Task]:
    found = world.state.jobs[f"default/{job}"].by_status[status].values()
    return sorted(found, key=lambda task: task.name)


def test_gang_allows_only_surplus_victims() -> None:
    elastic = gang("v", members=4, minimum=2, cpu=1, running_on=["n1"] * 4)
    world = cluster([node("n1", cpu=4)], [elastic, gang("p", cpu=1)])
    votes = Gang().preemptable(tasks(world, "p", PENDING)[0], tasks(world, "v"))
    assert votes.tolist() == [True, True, False, False]


def test_priority_allows_victims_of_lower_priority_only() -> None:
    jobs = [
        gang("low", cpu=1, running_on=["n1"], priority_class="low"),
        gang("same", cpu=1, running_on=["n1"], priority_class="mid"),
        gang("p", cpu=1, priority_class="mid"),
    ]
    world = cluster([node("n1", cpu=4)], jobs, priorities={"low": 1, "mid": 5})
    candidates = [*tasks(world, "low"), *tasks(world, "same")]
    votes = Priority().preemptable(tasks(world, "p", PENDING)[0], candidates)
    assert votes.tolist() == [True, False]


def test_conformance_protects_critical_pods_and_kube_system() -> None:
    jobs = [
        gang("crit", cpu=1, running_on=["n1"], spec={"priorityClassName": "system-node-critical"}),
        gang("plain", cpu=1, running_on=["n1"]),
    ]
    world = cluster([node("n1", cpu=4)], jobs)
    world.state.set_pod(pod("dns", namespace="kube-system", cpu=1, node="n1"))
    dns = world.state.tasks["kube-system-dns"]
    candidates = [*tasks(world, "crit"), *tasks(world, "plain"), dns]
    assert Conformance().reclaimable(dns, candidates).tolist() == [False, True, False]


def test_drf_preempts_while_the_victim_keeps_the_larger_share() -> None:
    """10 cpu. Preemptor would have 2/10. Victim 4: after one 3/10, after two 2/10, then 1/10."""
    victim = gang("v", members=4, minimum=1, cpu=1, running_on=["n1"] * 4)
    preemptor = gang("p", members=2, minimum=1, cpu=1, running_on=["n1"])
    world = cluster([node("n1", cpu=10, memory="1000Gi")], [victim, preemptor])
    plugin = Drf()
    with Session(world.state, world.config, 0.0) as session:
        plugin.open(session)
        votes = plugin.preemptable(tasks(world, "p", PENDING)[0], tasks(world, "v"))
    assert votes is not None
    assert votes.tolist() == [True, True, False, False]


def test_drf_orders_the_job_with_the_smaller_dominant_share_first() -> None:
    rich = gang("rich", members=3, minimum=1, cpu=1, running_on=["n1", "n1"], age=99)
    poor = gang("poor", members=1, cpu=1)
    conf = 'actions: "allocate"\ntiers:\n- plugins: [{name: drf}, {name: predicates}]\n'
    result = cluster([node("n1", cpu=3)], [rich, poor], conf=conf).run()
    assert result.binds == {"poor-0": "n1"}


def test_namespaces_share_by_weight_if_enabled() -> None:
    """a holds 2 of 6 cpu, b 1 of 6: b first; by job shares the order would differ."""
    jobs = [
        gang("a1", namespace="a", cpu=1, running_on=["n1"]),
        gang("a2", namespace="a", cpu=1, running_on=["n1"]),
        gang("b1", namespace="b", cpu=1, running_on=["n1"]),
        gang("a3", namespace="a", cpu=3, age=99),
        gang("b2", namespace="b", cpu=3),
    ]
    conf = """\
actions: "allocate"
tiers:
- plugins: [{name: gang}, {name: drf, enabledNamespaceOrder: true}, {name: predicates}]
"""
    assert set(cluster([node("n1", cpu=6)], jobs, conf=conf).run().binds) == {"b2-0"}
    flat = conf.replace(", enabledNamespaceOrder: true", "")
    assert set(cluster([node("n1", cpu=6)], jobs, conf=flat).run().binds) == {"a3-0"}


def test_proportion_allows_victims_down_to_the_deserved_share() -> None:
    """Weights 1:1 over 4 cpu, both request 4: each deserves 2; the queue with 4 yields 2."""
    over = gang("over", members=4, minimum=1, cpu=1, queue="a", running_on=["n1"] * 4)
    under = gang("under", members=4, cpu=1, queue="b")
    world = cluster([node("n1", cpu=4)], [over, under], queues=[queue("a"), queue("b")])
    plugin = Proportion()
    with Session(world.state, world.config, 0.0) as session:
        plugin.open(session)
        votes = plugin.reclaimable(tasks(world, "under", PENDING)[0], tasks(world, "over"))
    assert votes.tolist() == [True, True, False, False]
