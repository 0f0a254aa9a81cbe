"""Preemption of pods that keep a task off a node by more than resources."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.testing import GroupBuilder, TestCluster, cluster, gang, node, queue

CONF = """\
actions: "enqueue, allocate, ACTION, backfill"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
"""
ANTI: dict[str, Any] = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"app": "web"}},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}
SPREAD: dict[str, Any] = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
}


def world(
    running: list[GroupBuilder], *, nodes: int = 1, action: str = "preempt", **high: Any
) -> TestCluster:
    """Nodes of 4 cpu with running jobs of low priority, and a pending pod of high priority."""
    made = [
        node(f"n{i}", cpu=4, labels={"kubernetes.io/hostname": f"n{i}"})
        for i in range(1, nodes + 1)
    ]
    return cluster(
        made,
        [*running, gang("high", cpu=1, priority_class="high", **high)],
        priorities={"high": 100, "low": 1},
        conf=CONF.replace("ACTION", action),
    )


def low(name: str, where: str, **more: Any) -> GroupBuilder:
    more = {"minimum": 0, "priority_class": "low", "phase": "Running", **more}
    return gang(name, cpu=1, running_on=[where], **more)


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_the_neighbour_that_anti_affinity_repels_is_evicted(action: str) -> None:
    """The node has room for the pod; `web` keeps it out, `bystander` does not."""
    jobs = [low("bystander", "n1"), low("web", "n1", labels={"app": "web"})]
    result = world(jobs, action=action, spec={"affinity": ANTI}).run()
    assert result.evictions == ["web-0"]
    assert result.pipelined == {"high-0": "n1"}


def test_the_neighbour_whose_own_anti_affinity_repels_is_evicted() -> None:
    jobs = [low("bystander", "n1"), low("loner", "n1", spec={"affinity": ANTI})]
    result = world(jobs, labels={"app": "web"}).run()
    assert result.evictions == ["loner-0"]


def test_two_repelled_neighbours_are_evicted_together() -> None:
    jobs = [low(name, "n1", labels={"app": "web"}) for name in ("web1", "web2")]
    jobs.append(low("bystander", "n1"))
    result = world(jobs, spec={"affinity": ANTI}).run()
    assert sorted(result.evictions) == ["web1-0", "web2-0"]


def test_a_neighbour_that_may_not_be_evicted_keeps_the_pod_out() -> None:
    """`web` has the priority of the preemptor: no pod is evicted in vain."""
    jobs = [low("bystander", "n1"), low("web", "n1", labels={"app": "web"}, priority_class="high")]
    assert world(jobs, spec={"affinity": ANTI}).run().evictions == []


def test_the_pod_keeps_its_node_while_the_neighbour_terminates() -> None:
    """One eviction, not one per cycle; then the pod is bound."""
    jobs = [low("web1", "n1", labels={"app": "web"}), low("web2", "n2", labels={"app": "web"})]
    test = world(jobs, nodes=2, spec={"affinity": ANTI})
    first = test.run()
    assert len(first.evictions) == 1
    test.live(first, are_terminated=False)
    again = test.run()
    assert again.evictions == []
    assert again.pipelined == first.pipelined
    test.terminate(remake=False)
    assert test.run().binds == first.pipelined


def test_the_pod_that_holds_the_host_port_is_evicted() -> None:
    jobs = [low("bystander", "n1"), low("server", "n1", ports=[8080])]
    result = world(jobs, ports=[8080]).run()
    assert result.evictions == ["server-0"]


def test_a_pod_is_evicted_where_the_node_takes_no_more_pods() -> None:
    machine = node("n1", cpu=4, pods=1)
    test = cluster(
        [machine],
        [low("small", "n1"), gang("high", cpu=1, priority_class="high")],
        priorities={"high": 100, "low": 1},
        conf=CONF.replace("ACTION", "preempt"),
    )
    result = test.run()
    assert result.evictions == ["small-0"]
    assert result.pipelined == {"high-0": "n1"}


def test_a_pod_is_evicted_to_level_the_spread() -> None:
    """n1 has one more than n2, and n2 is full of pods that may not be evicted."""
    jobs = [
        low("web", "n1", labels={"app": "web"}),
        gang(
            "full", members=4, cpu=1, running_on=["n2"] * 4, priority_class="high", phase="Running"
        ),
    ]
    result = world(jobs, nodes=2, spec=SPREAD, labels={"app": "web"}).run()
    assert result.evictions == ["web-0"]
    assert result.pipelined == {"high-0": "n1"}


@pytest.mark.parametrize("action", ["preempt", "reclaim"])
def test_a_gang_that_must_share_a_node_preempts_where_all_of_it_fits(action: str) -> None:
    """n1 and n2 cost the same for the first pod; only n2 has victims enough for both."""
    together = {"podAffinity": ANTI["podAntiAffinity"]}
    nodes = [node(name, cpu=4, labels={"kubernetes.io/hostname": name}) for name in ("n1", "n2")]
    victims = "default" if action == "preempt" else "other"
    jobs = [
        gang("fixed", cpu=2, running_on=["n1"], phase="Running", priority_class="high"),
        gang("v", members=6, minimum=0, cpu=1, phase="Running", queue=victims, priority_class="low",
             running_on=["n1", "n1", "n2", "n2", "n2", "n2"]),
        gang("p", members=2, cpu=2, priority_class="high", labels={"app": "web"},
             spec={"affinity": together}),
    ]  # fmt: skip
    world = cluster(
        nodes,
        jobs,
        queues=[queue("default", weight=3), queue("other")],
        priorities={"high": 100, "low": 1},
        conf=CONF.replace("ACTION", action),
    )
    result = world.run()
    assert sorted(result.evictions) == ["v-2", "v-3", "v-4", "v-5"]
    assert result.pipelined == {"p-0": "n2", "p-1": "n2"}
    world.live(result)
    assert world.run().binds == {"p-0": "n2", "p-1": "n2"}


def test_reclaim_leaves_the_pod_that_a_nominated_pod_must_be_beside() -> None:
    """`preempt` nominates `near` beside `web`; then queue `c` could reclaim only `web`."""
    together = {"podAffinity": ANTI["podAntiAffinity"]}
    world = cluster(
        [node("n1", cpu=4, labels={"kubernetes.io/hostname": "n1"})],
        [
            low("web", "n1", queue="b", labels={"app": "web"}),
            gang("v", members=3, minimum=0, cpu=1, phase="Running", priority_class="low",
                 running_on=["n1"] * 3),
            gang("near", cpu=1, priority_class="high", spec={"affinity": together}),
            gang("c", cpu=1, queue="c", phase="Inqueue"),
        ],
        queues=[queue("default", deserved={"cpu": 3}), queue("b"), queue("c", deserved={"cpu": 1})],
        priorities={"high": 100, "low": 1},
        conf=CONF.replace("ACTION", "preempt, reclaim").replace("proportion", "capacity"),
    )  # fmt: skip
    result = world.run()
    assert [name.split("-")[0] for name in result.evictions] == ["v"]
    assert result.pipelined == {"near-0": "n1"}
    world.live(result)
    assert world.run().binds == {"near-0": "n1"}
