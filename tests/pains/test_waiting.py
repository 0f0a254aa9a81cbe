"""Pains of waiting (1 to 3 and 9 to 13): no reason, no progress, deadlocks, starvation."""

from __future__ import annotations

from tools.waiting import until

from hekla.kube.resources import NODES, PODS
from tests.pains.site import AT_HERE, CONF, HERE, Place, job


def test_01_no_usable_answer_why_a_job_is_pending(place: Place) -> None:
    """volcano 3872, 2930, 3220, 604; kueue 2833; kai 1731, 1434: "1/0 tasks unschedulable"."""
    site = place.site
    site.nodes(2, cpu=4)
    place.submit(job("holder", 2, "3"))
    place.runs("holder", 2)
    place.submit(job("large", 2, "2"))
    why = place.is_pending("large")
    assert "cpu: asked 4, used 6 of 8" in why
    assert f"held by {place.namespace}/holder (6 cpu)" in why
    assert "1/0" not in why
    assert str(site.scheduler.verdicts[place.key("large")]) in why, "one answer everywhere"
    assert place.reason("holder") == "", "a running job has no reason to be pending"
    place.submit(job("selective", 1, pod={"nodeSelector": {"disk": "none"}}))
    assert place.is_pending("selective") != why, "another fact has another reason"


def test_02_pending_although_resources_are_free(place: Place) -> None:
    """volcano 2304, 2143, 1863, 1689; kueue 2391: idle resources stay idle although a job fits."""
    site = place.site
    site.nodes(2, cpu=4)
    place.submit(job("holder", 1, "3"))
    place.runs("holder", 1)
    place.submit(job("large", 2, "4"))
    place.is_pending("large")
    place.submit(job("small", 5))
    place.runs("small", 5)
    place.finish("small")
    place.finish("holder")
    place.runs("large", 2)


def test_03_only_a_restart_of_the_scheduler_helps(place: Place) -> None:
    """volcano 1689, 1947, 3220, 2284: the cache drifts from the cluster until a restart."""
    site = place.site
    site.nodes(3, cpu=4)
    place.submit(job("first", 6))
    place.runs("first", 6)
    for pod in place.pods("first")[:2]:  # deleted by a user, and made again
        name = pod["metadata"]["name"]
        place.client.delete(PODS, name, namespace=place.namespace, grace_period_s=0)
    place.submit(job("second", 4))
    place.runs("first", 6)
    place.runs("second", 4)
    place.finish("second")
    until(lambda: place.phase("second") == "Completed", "second")
    running = place.running()
    until(lambda: set().union(*_booked(place).values()) == set(running), "it drifted")
    before = _booked(place)
    site.restart_scheduler()
    until(lambda: len(list(site.scheduler.cluster.nodes)) == 3)
    until(lambda: _booked(place) == before, "a fresh scheduler sees other amounts")
    place.submit(job("third", 6))
    place.runs("third", 6)
    assert running.items() <= place.running().items()


def _booked(place: Place) -> dict[str, set[str]]:
    """The pods that the scheduler counts on each node."""
    cluster = place.site.scheduler.cluster
    return {name: set(cluster.nodes[name].tasks) for name in list(cluster.nodes)}


ORDERS = (("one", "two"), ("two", "one"))


def test_09_two_gangs_hold_half_each(place: Place) -> None:
    """volcano 3373, 2083, 1387; kueue 6214: two gangs wait for each other for ever."""
    site = place.site
    site.nodes(2, cpu=2)
    for name in ("one", "two"):
        place.submit(job(name, 3))
    first, second = until(
        lambda: next((p for p in ORDERS if len(place.running(p[0])) == 3), None), "no job runs"
    )
    place.is_pending(second)
    site.cycles()
    assert not [p for p in place.pods(second) if p["spec"].get("nodeName")], "it holds a part"
    place.finish(first)
    place.runs(second, 3)


def test_10_a_gang_is_not_repaired(place: Place) -> None:
    """volcano 5805: a started gang that lost a member waits behind newer jobs."""
    site = place.site
    nodes = site.nodes(3, cpu=2)
    place.submit(job("gang", 6))
    placed = place.runs("gang", 6)
    _cordon(place, nodes[0], True)
    for pod in place.pods("gang"):
        if placed[pod["metadata"]["uid"]] == nodes[0]:
            name = pod["metadata"]["name"]
            place.client.delete(PODS, name, namespace=place.namespace, grace_period_s=0)
    place.runs("gang", 4)
    for name in ("new-a", "new-b"):
        place.submit(job(name, 1, "2"))
        place.is_pending(name)
    _cordon(place, nodes[0], False)
    place.runs("gang", 6)
    site.cycles()
    assert not place.running("new-a")
    assert not place.running("new-b")


def _cordon(place: Place, node: str, is_cordoned: bool) -> None:
    place.client.patch(NODES, node, {"spec": {"unschedulable": is_cordoned}})


def test_11_admitted_by_sum_impossible_by_shape(place: Place) -> None:
    """volcano 665, 4617, 5006; kueue 4329, 5243, 4474: a job that fits no node blocks its queue."""
    site = place.site
    site.nodes(3, cpu=2)
    queue = site.queue(f"q-{place.namespace}")
    place.submit(job("shape", 2, "3", queue=queue))  # six CPUs are idle, no three on one node
    place.is_pending("shape")
    place.submit(job("fits", 6, queue=queue))
    place.runs("fits", 6)
    assert not place.running("shape")


def test_12_a_large_job_starves_behind_small_ones(place: Place) -> None:
    """volcano 2235, 2045, 748, 3095, 1901, 947: small jobs take every CPU that becomes idle."""
    site = place.site
    site.configure(CONF.format(shares="proportion", more=RESERVE))
    site.nodes(2, cpu=4, labels=HERE)
    site.nodes(1, cpu=32)  # sums admit every job, so all have pods
    place.submit(job("early", 8, minAvailable=1, pod=AT_HERE))
    place.runs("early", 8)
    place.submit(job("large", 1, "4", pod=AT_HERE))
    until(lambda: "reserved" in _reason_now(place, "large"), "no reservation")
    place.submit(job("late", 8, minAvailable=1, pod=AT_HERE))
    until(lambda: len(place.pods("late")) == 8)
    for left in reversed(range(8)):
        place.finish("early", count=1)
        until(lambda left=left: len(place.running("early")) == left)  # type: ignore[misc]
        site.cycles(1)
    place.runs("large", 1)
    place.runs("late", 4)


def _reason_now(place: Place, job: str) -> str:
    place.site.cycles(1)
    return place.reason(job)


RESERVE = """\
configurations:
- name: allocate
  arguments:
    reserveAfter: 1s
"""


def test_13_the_order_depends_on_the_plugin(place: Place) -> None:
    """volcano 4812, 3990: which job is first depends on the order of plugins."""
    site = place.site
    first, *rest = CONF.format(shares="proportion", more="").split("- plugins:\n")
    for number, tiers in enumerate((rest, rest[::-1])):
        site.configure("- plugins:\n".join([first, *tiers]))
        nodes = site.nodes(1, cpu=2)
        place.submit(job(f"holder-{number}", 1, "2", priorityClassName="high"))
        place.runs(f"holder-{number}", 1)
        for name, level in (("low", "low"), ("high", "high")):
            place.submit(job(f"{name}-{number}", 1, "2", priorityClassName=level))
            place.is_pending(f"{name}-{number}")
        place.finish(f"holder-{number}")
        place.runs(f"high-{number}", 1)
        assert not place.running(f"low-{number}")
        place.finish(f"high-{number}")
        place.runs(f"low-{number}", 1)
        place.finish(f"low-{number}")
        until(lambda number=number: place.phase(f"low-{number}") == "Completed")  # type: ignore[misc]
        place.client.delete(NODES, nodes[0])
        until(lambda: not list(site.scheduler.cluster.nodes))
