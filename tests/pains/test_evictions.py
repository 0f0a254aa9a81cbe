"""Pains of preemption and reclaim (4 to 8): loops, wasted victims, broken guarantees."""

from __future__ import annotations

from tools.waiting import until

from tests.pains.site import CONF, Place, job


def test_04_mutual_reclaim_for_ever(place: Place) -> None:
    """volcano 3729, 4949, 561, 3869, 377: two queues evict each other's pods without end.

    Six CPUs, three for each queue, and pods of two: neither queue can have exactly its share.
    """
    site = place.site
    site.nodes(3, cpu=2)
    one, other = (site.queue(f"{name}-{place.namespace}") for name in ("a", "b"))
    place.submit(job("first", 3, "2", minAvailable=1, queue=one))
    place.runs("first", 3)
    place.submit(job("second", 3, "2", minAvailable=1, queue=other))
    place.runs("second", 1)
    place.runs("first", 2)
    before = place.running()
    site.cycles()
    assert place.running() == before


def test_05_fair_share_preemption_loops(place: Place) -> None:
    """kueue 3779, 7101, 6774, 14543, 12541: jobs of unequal queues preempt in a circle.

    The core is checked on every small world in tests/scheduler/test_every_small_world.py.
    """
    site = place.site
    site.nodes(2, cpu=4)
    for name, weight, size in (("a", 1, "1"), ("b", 3, "2"), ("c", 4, "3")):
        queue = site.queue(f"{name}-{place.namespace}", weight=weight)
        place.submit(job(name, 4, size, minAvailable=1, queue=queue))
    for name in "abc":
        until(lambda name=name: place.running(name), f"{name} does not run")  # type: ignore[misc]
    site.cycles()
    until(lambda: not any("deletionTimestamp" in p["metadata"] for p in place.pods()))
    site.cycles()
    before = place.running()
    site.cycles(10)
    assert place.running() == before
    assert {pod.split("-")[0] for pod in _names(place)} == set("abc"), "each queue has a share"


def _names(place: Place) -> list[str]:
    running = place.running()
    return [p["metadata"]["name"] for p in place.pods() if p["metadata"]["uid"] in running]


def test_06_victims_are_killed_and_the_preemptor_does_not_run(place: Place) -> None:
    """volcano 5022, 5011, 4925, 394; kueue 5243: evictions for a job that fits nowhere."""
    site = place.site
    site.nodes(2, cpu=4)
    place.submit(job("low", 8, minAvailable=1, priorityClassName="low"))
    before = place.runs("low", 8)
    nowhere = {"nodeSelector": {"disk": "none"}}
    place.submit(job("lost", 1, "2", priorityClassName="high", pod=nowhere))
    place.is_pending("lost")
    site.cycles()
    assert place.running("low") == before, "no victim for a job that no node can hold"
    # The whole of one node: four pods there are enough, four pods here and there are not.
    place.submit(job("whole", 1, "4", priorityClassName="high"))
    (node,) = place.runs("whole", 1).values()
    left = place.runs("low", 4)
    assert left.items() <= before.items()
    assert node not in left.values()


def test_07_a_queue_falls_below_its_guarantee(place: Place) -> None:
    """yunikorn 660, 636, 639, 658; volcano 3003, 3989: reclaim takes guaranteed resources."""
    site = place.site
    site.configure(CONF.format(shares="capacity", more=""))
    site.nodes(2, cpu=3)
    safe = site.queue(
        f"safe-{place.namespace}",
        guarantee={"resource": {"cpu": "2"}},
        deserved={"cpu": "2"},
    )
    greedy = site.queue(f"greedy-{place.namespace}", deserved={"cpu": "4"})
    place.submit(job("mine", 6, minAvailable=1, queue=safe))
    place.runs("mine", 6)
    place.submit(job("theirs", 4, queue=greedy))
    place.runs("theirs", 4)
    place.runs("mine", 2)
    before = place.running()
    place.submit(job("more", 1, queue=greedy, priorityClassName="high"))
    place.is_pending("more")
    site.cycles()
    assert place.running("mine").items() <= before.items()
    assert len(place.running("mine")) == 2, "the guarantee is kept"


def test_08_recreated_victims_preempt_again(place: Place) -> None:
    """yunikorn 937, 944 (YUNIKORN-2795): replicas that replace victims start a storm."""
    site = place.site
    site.nodes(2, cpu=3)
    restart = [{"event": "PodEvicted", "action": "RestartPod"}]
    place.submit(job("low", 6, minAvailable=1, priorityClassName="low", policies=restart))
    before = place.runs("low", 6)
    place.submit(job("high", 3, priorityClassName="high"))
    place.runs("high", 3)
    after = place.runs("low", 3)
    assert after.items() <= before.items(), "three victims for three pods, and no more"
    everything = place.running()
    site.cycles()
    assert place.running() == everything
