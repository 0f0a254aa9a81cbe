"""proportion: weighted shares within request, capability and guarantee."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hekla.scheduler.plugins.proportion import QueueShare, water_fill
from hekla.scheduler.state.dimensions import EPSILON, Dimensions
from hekla.scheduler.state.model import Queue
from hekla.testing import TestCluster, cluster, gang, node, queue


def share(
    name: str,
    weight: int,
    request: float,
    *,
    capability: float = 0.0,
    guarantee: float = 0.0,
    free: float = 12.0,
) -> QueueShare:
    one = Queue(name, Dimensions())
    one.weight = weight
    one.capability_r[0], one.guarantee_r[0], one.pending_r[0] = capability, guarantee, request
    free_r = np.zeros_like(one.pending_r)
    free_r[0] = free
    return QueueShare(one, free_r)


def deserved(total: float, shares: list[QueueShare]) -> list[float]:
    total_r = np.zeros_like(shares[0].request_r)
    total_r[0] = total
    water_fill(total_r, shares)
    return [float(one.deserved_r[0]) for one in shares]


def test_weights_decide_when_all_queues_request_more() -> None:
    assert deserved(12.0, [share("a", 1, 99), share("b", 3, 99)]) == [3.0, 9.0]


def test_unused_shares_go_to_the_other_queues() -> None:
    """Round 1: 3 and 9, a takes 1; round 2: the 2 left go to b."""
    assert deserved(12.0, [share("a", 1, 1), share("b", 3, 99)]) == [1.0, 11.0]


def test_capability_stops_a_queue_and_guarantee_lifts_one() -> None:
    assert deserved(12.0, [share("a", 1, 99, capability=2), share("b", 1, 99)]) == [2.0, 10.0]
    lifted = deserved(12.0, [share("a", 1, 0, guarantee=5, free=7), share("b", 1, 99, free=7)])
    assert lifted == [5.0, 7.0]


def test_a_queue_of_weight_zero_gets_nothing_beside_others() -> None:
    assert deserved(12.0, [share("a", 0, 99), share("b", 1, 99)]) == [0.0, 12.0]


def test_shares_of_whole_amounts_are_whole() -> None:
    """10Gi for three queues, one of which requests 2Gi: Volcano's rounds give 4Gi less a bit."""
    gib = 2.0**30
    requests = {"a": 10, "b": 2, "c": 8}
    shares = [share(name, 1, asked * gib, free=10 * gib) for name, asked in requests.items()]
    assert deserved(10 * gib, shares) == [4 * gib, 2 * gib, 4 * gib]


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 1000),
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(0, 900), st.integers(0, 500)),
        min_size=1,
        max_size=6,
    ),
)
@example(69, [(3, 7, 0), (4, 7, 0), (6, 13, 0), (6, 13, 0), (7, 15, 0), (7, 15, 0)])
def test_shares_stay_within_capacity_request_and_capability(
    total: int, rows: list[tuple[int, int, int]]
) -> None:
    shares = [
        share(str(i), w, r, capability=c, free=float(total)) for i, (w, r, c) in enumerate(rows)
    ]
    got = deserved(float(total), shares)
    # A queue that misses its request by less than EPSILON gets it in full.
    assert sum(got) <= total + EPSILON * len(rows)
    for (_, request, capability), amount in zip(rows, got, strict=True):
        assert amount <= request + 1e-9
        assert capability == 0 or amount <= capability + 1e-9
    wanted = sum(min(r, c or r) for _, r, c in rows)
    assert sum(got) >= min(total, wanted) - 1.0, "room was left although somebody wanted it"


def test_two_saturating_queues_of_weight_1_and_3_get_a_quarter_and_three_quarters() -> None:
    jobs = [gang(f"{q}{i}", cpu=1, queue=q) for q in ("a", "b") for i in range(8)]
    queues = [queue("a", weight=1), queue("b", weight=3)]
    result = cluster([node("n1", cpu=8)], jobs, queues=queues).run()
    assert sum(name.startswith("a") for name in result.binds) == 2
    assert sum(name.startswith("b") for name in result.binds) == 6


def test_a_busy_queue_uses_the_share_of_an_idle_one() -> None:
    jobs = [gang(f"b{i}", cpu=1, queue="b") for i in range(8)]
    result = cluster([node("n1", cpu=8)], jobs, queues=[queue("a"), queue("b")]).run()
    assert len(result.binds) == 8


def test_the_guarantee_of_an_empty_queue_is_not_used_by_others() -> None:
    jobs = [gang(f"b{i}", cpu=1, queue="b") for i in range(8)]
    queues = [queue("a", guarantee={"cpu": 3}), queue("b")]
    result = cluster([node("n1", cpu=8)], jobs, queues=queues).run()
    assert len(result.binds) == 5
    assert "queue 'b' uses its share" in result.why("b7") or "no share left" in result.why("b7")


def test_a_closed_queue_places_no_more_tasks() -> None:
    result = cluster(
        [node("n1", cpu=8)], [gang("x", cpu=1, queue="a")], queues=[queue("a", state="Closed")]
    ).run()
    assert result.binds == {}
    assert result.why("x").startswith("queue 'a' is Closed")


def test_queues_of_higher_priority_come_first() -> None:
    conf = """\
actions: "allocate"
tiers:
- plugins: [{name: gang}, {name: predicates}]
- plugins: [{name: proportion, enabledOverused: false, enabledAllocatable: false}]
"""
    jobs = [gang("low", cpu=3, queue="a", age=99), gang("high", cpu=3, queue="b")]
    queues = [queue("a"), queue("b", priority=5)]
    result = cluster([node("n1", cpu=4)], jobs, queues=queues, conf=conf).run()
    assert result.binds == {"high-0": "n1"}


def test_a_job_that_is_not_enqueued_gets_the_change_that_helps() -> None:
    """A queue limit can be raised; if the nodes are the limit, only a smaller request helps."""

    def change(given: TestCluster) -> str:
        verdict = given.run().verdict("g")
        assert verdict is not None
        return verdict.change

    own = cluster(
        nodes=[node("n", cpu=8)],
        queues=[queue("q", capability={"cpu": 2})],
        jobs=[gang("g", members=3, cpu=1, queue="q", phase="Pending", min_resources={"cpu": 3})],
    )
    nodes = cluster(
        nodes=[node("n", cpu=8)],
        queues=[queue("q")],
        jobs=[gang("g", members=9, cpu=1, queue="q", phase="Pending", min_resources={"cpu": 9})],
    )
    assert change(own) == (
        "raise the capability of queue 'q', or request at most 2 cpu instead of 3"
    )
    assert change(nodes) == ("request at most 8 cpu, all there is, or add nodes")
