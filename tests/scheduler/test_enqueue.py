"""enqueue: PodGroups from Pending to Inqueue."""

import pytest

from hekla.api import core
from hekla.api.meta import convert
from hekla.scheduler.framework.plan import Event
from hekla.scheduler.framework.verdict import Gate
from hekla.testing import cluster, gang, node, queue
from hekla.testing.objects import START

SLA = """\
actions: "enqueue"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
  - name: sla
    arguments: {sla-waiting-time: 1h}
- plugins: [{name: overcommit}, {name: proportion}]
"""


def test_overcommit_enqueues_120_percent_of_the_cluster() -> None:
    """10 cpu × 1.2 = 12: groups of 6 and 6 are enqueued, the third is rejected."""
    groups = [
        gang(f"g{i}", members=0, minimum=6, phase="Pending", min_resources={"cpu": 6}, age=9 - i)
        for i in range(3)
    ]
    conf = 'actions: "enqueue"\ntiers:\n- plugins: [{name: gang}, {name: overcommit}]\n'
    result = cluster([node("n1", cpu=10)], groups, conf=conf).run()
    assert result.phases == {"g0": "Inqueue", "g1": "Inqueue", "g2": "Pending"}
    verdict = result.verdict("g2")
    assert verdict is not None
    assert verdict.gate == Gate.NOT_ENQUEUED
    assert verdict.message == "resource in cluster is overused: overused cpu"
    (blocked,) = verdict.blocked
    assert (blocked.asked, blocked.allowed, blocked.used) == (6000.0, 12000.0, 12000.0)


def test_a_refused_podgroup_does_not_block_a_smaller_one() -> None:
    groups = [
        gang("huge", members=0, phase="Pending", min_resources={"cpu": 99}, age=9),
        gang("small", members=0, phase="Pending", min_resources={"cpu": 1}),
    ]
    result = cluster([node("n1", cpu=4)], groups).run()
    assert result.phases["small"] == "Inqueue"
    assert result.phases["huge"] == "Pending"


def test_a_refusal_is_one_event_and_stays_in_the_condition() -> None:
    group = gang("huge", members=0, phase="Pending", min_resources={"cpu": 99})
    result = cluster([node("n1", cpu=4)], [group]).run()
    events = [e for e in result.plan.effects if isinstance(e, Event) and e.type == "Normal"]
    assert [e.message for e in events] == ["resource in cluster is overused: overused cpu"]


def test_a_podgroup_without_min_resources_is_always_enqueued() -> None:
    result = cluster([], [gang("any", members=0, phase="Pending")]).run()
    assert result.phases == {"any": "Inqueue"}


def test_a_closed_queue_enqueues_no_job() -> None:
    group = gang("late", members=0, phase="Pending", min_resources={"cpu": 1}, queue="shut")
    result = cluster([node("n1")], [group], queues=[queue("shut", state="Closed")]).run()
    verdict = result.verdict("late")
    assert verdict is not None
    assert verdict.gate == Gate.QUEUE_CLOSED
    assert verdict.change == "open queue 'shut'"


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
def test_a_closing_queue_places_a_restarted_job_again(plugin: str) -> None:
    conf = f"""\
actions: "enqueue, allocate"
tiers:
- plugins: [{{name: gang}}, {{name: predicates}}, {{name: {plugin}}}]
"""
    group = gang("again", cpu=1, phase="Pending", min_resources={"cpu": 1}, queue="closing")
    queues = [queue("closing", state="Closing")]
    result = cluster([node("n1", cpu=4)], [group], queues=queues, conf=conf).run()
    assert len(result.binds) == 1


def test_a_queue_enqueues_up_to_its_capability() -> None:
    """capability 4: a group of 3 is enqueued, then 3 + 2 > 4."""
    groups = [
        gang("a", members=0, phase="Pending", min_resources={"cpu": 3}, queue="q", age=9),
        gang("b", members=0, phase="Pending", min_resources={"cpu": 2}, queue="q"),
    ]
    queues = [queue("q", capability={"cpu": 4})]
    result = cluster([node("n1", cpu=32)], groups, queues=queues).run()
    assert result.phases == {"a": "Inqueue", "b": "Pending"}
    assert "queue resource quota insufficient: insufficient cpu" in result.why("b")


def test_the_surplus_of_an_elastic_job_does_not_count_against_enqueueing() -> None:
    """allocated 4, of which 3 elastic: min 3 + 4 + 0 - 3 = 4 ≤ 4."""
    elastic = gang(
        "elastic",
        members=4,
        minimum=1,
        cpu=1,
        queue="q",
        phase="Running",
        min_resources={"cpu": 1},
        running_on=["n1"] * 4,
    )
    new = gang("new", members=0, phase="Pending", min_resources={"cpu": 3}, queue="q")
    queues = [queue("q", capability={"cpu": 4})]
    result = cluster([node("n1", cpu=32)], [elastic, new], queues=queues).run()
    assert result.phases["new"] == "Inqueue"


def test_an_unknown_queue_is_named() -> None:
    group = gang("lost", members=1, cpu=1, phase="Pending", queue="nowhere")
    result = cluster([node("n1")], [group]).run()
    assert result.binds == {}
    verdict = result.verdict("lost")
    assert verdict is not None
    assert verdict.gate == Gate.QUEUE_MISSING
    assert "'nowhere' does not exist" in verdict.message


def test_sla_enqueues_a_job_after_its_waiting_time() -> None:
    """A permit of an earlier tier decides: overcommit is not called."""
    pending = gang("w", members=0, phase="Pending", min_resources={"cpu": 99})
    world = cluster([node("n1", cpu=1)], [pending], conf=SLA)
    assert world.run(now=START + 3599).phases == {"w": "Pending"}
    assert world.run(now=START + 3600).phases == {"w": "Inqueue"}


def test_resource_quota_counts_jobs_enqueued_before() -> None:
    conf = 'actions: "enqueue"\ntiers:\n- plugins: [{name: resourcequota}]\n'
    quota = convert(
        {
            "metadata": {"name": "team", "namespace": "default"},
            "status": {"hard": {"requests.cpu": "5"}, "used": {"requests.cpu": "1"}},
        },
        core.ResourceQuota,
    )
    groups = [
        gang("a", members=0, phase="Pending", min_resources={"cpu": 3}, age=9),
        gang("b", members=0, phase="Pending", min_resources={"cpu": 2}),
        gang("c", members=0, phase="Pending", min_resources={"cpu": 1}),
    ]
    result = cluster([node("n1")], groups, quotas=[quota], conf=conf).run()
    assert result.phases == {"a": "Inqueue", "b": "Pending", "c": "Inqueue"}
    assert "1 more cpu in quota 'team'" in result.why("b")
