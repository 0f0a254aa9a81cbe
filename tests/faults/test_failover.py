"""Leaders that are killed, frozen or partitioned while users submit gangs."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from tools.faults.history import Write
from tools.faults.laws import judge
from tools.faults.proxy import Trap, is_binding, is_pod_made

from hekla.kube.resources import PODS
from tests.faults.crew import Replica
from tests.faults.crowd import Crowd
from tests.faults.sites import Site
from tests.faults.waiting import until

GANG = 6
COMPONENTS = {"scheduler": is_binding, "controllers": is_pod_made}
each_component = pytest.mark.parametrize(
    "component", ["scheduler", pytest.param("controllers", marks=pytest.mark.faults)]
)


def caught_in_the_middle(site: Site, crowd: Crowd, component: str, seed: int) -> Replica:
    """Stop the leader of a component in the middle of its writes for a gang."""
    trap = Trap(COMPONENTS[component], let_through=Random(seed).randrange(1, GANG - 1))
    # For all replicas: on a busy machine the lease may change at any time.
    set_trap(site, component, trap)
    crowd.submit(1, sizes=(GANG,))
    until(trap.reached.is_set)
    if component == "scheduler":
        until(lambda: bound(site, crowd) == trap.let_through)
    return site.crew.leader(component)


def set_trap(site: Site, component: str, trap: Trap | None) -> None:
    for replica in site.crew.replicas:
        if replica.component == component:
            replica.proxy.trap = trap


def bound(site: Site, crowd: Crowd) -> int:
    with site.client() as client:
        return sum("nodeName" in p["spec"] for p in client.list(PODS, namespace=crowd.namespace))


def follows(site: Site, leader: Replica, before: int) -> None:
    """Wait for a new leader: the other replica, or the same one with a new term."""
    until(lambda: site.crew.leader(leader.component) is not leader or led(leader) > before)


def led(replica: Replica) -> int:
    return len(replica.identities())


def check(site: Site) -> None:
    report = judge(site.history())
    print(site.name, report.counts)
    assert not report.broken, report


@each_component
def test_a_new_leader_finishes_the_work_of_a_killed_one(site: Site, component: str) -> None:
    with Crowd(site.config, site.new_namespace(), seed=1) as crowd:
        leader = caught_in_the_middle(site, crowd, component, seed=1)
        before = led(leader)
        leader.kill()
        set_trap(site, component, None)
        follows(site, leader, before)
        crowd.submit(4)
        crowd.until_ended()
    check(site)


@each_component
def test_a_frozen_leader_writes_nothing_when_it_continues(site: Site, component: str) -> None:
    with Crowd(site.config, site.new_namespace(), seed=2) as crowd:
        leader = caught_in_the_middle(site, crowd, component, seed=2)
        leader.freeze()
        set_trap(site, component, None)
        until(lambda: site.crew.leader(component) is not leader)
        crowd.submit(2)
        leader.thaw()
        crowd.submit(2)
        crowd.until_ended()
    check(site)


@each_component
def test_a_partitioned_leader_is_replaced_and_returns_as_follower(
    site: Site, component: str
) -> None:
    with Crowd(site.config, site.new_namespace(), seed=3) as crowd:
        crowd.submit(3)
        leader = site.crew.leader(component)
        leader.proxy.cut()
        crowd.submit(3)
        until(lambda: site.crew.leader(component) is not leader)
        crowd.until_ended(1)
        leader.proxy.heal()
        crowd.submit(2)
        crowd.until_ended()
    check(site)


def test_a_falsified_history_of_this_cluster_is_rejected(site: Site) -> None:
    with Crowd(site.config, site.new_namespace(), seed=9) as crowd:
        crowd.submit(2)
        crowd.until_ended()
    history = site.history()
    assert not judge(history).broken
    binding = next(w for w in reversed(history) if w.subresource == "binding" and w.succeeded)
    elsewhere = replace(binding, asked={**binding.asked, "target": {"name": "elsewhere"}})
    assert any("bound twice" in _spoken(said) for said in judge([*history, elsewhere]).broken)
    forgotten = [w for w in history if not _completes(w, crowd.namespace)]
    assert any("job is lost" in _spoken(said) for said in judge(forgotten).broken)


def _spoken(said: str) -> str:
    return said.partition(":")[0].replace("_", " ")


def _completes(write: Write, namespace: str) -> bool:
    if write.answer.get("kind") != "Job" or write.namespace != namespace:
        return False
    return bool(write.answer.get("status", {}).get("state", {}).get("phase") == "Completed")
