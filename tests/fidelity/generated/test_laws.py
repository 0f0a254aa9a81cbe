"""The laws hold on generated clusters, and each law reports a life that breaks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from hekla.scheduler.framework.plan import Bind, Evict, Plan
from hekla.testing import Result, TestCluster
from hekla.testing.objects import START
from tests.fidelity import ours
from tests.fidelity.catalogue import NAMESPACE, Case, Json
from tests.fidelity.generated import laws, worlds
from tests.fidelity.generated.room import Room, facts_of

SEEDS = range(1, 601)
PARTS = 12
CONF = """\
actions: "allocate, preempt, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: capacity}]
"""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_the_laws_hold_on_generated_clusters(part: int) -> None:
    broken = {seed: found for seed in SEEDS[part::PARTS] if (found := laws.broken(seed))}
    assert broken == {}, "python -m tests.fidelity.generated --laws --seed SEED --worlds 1"


def test_the_clusters_give_the_laws_something_to_hold() -> None:
    """A law about evictions says nothing of clusters without any."""
    evicting = waiting = 0
    for seed in SEEDS[:60]:
        case = worlds.contended(seed)
        world = ours.world(case)
        for number in range(4):
            result = world.run(now=START + number)
            evicting += bool(result.evictions)
            world.live(result)
        room = Room(facts_of(case), world)
        waiting += any(room.wanted(job) and room.is_simple(job) for job in room.facts.jobs)
    assert evicting >= 5
    assert waiting >= 20


# --- lives made by hand, each of which breaks one law ---------------------------------------------


@dataclass(frozen=True)
class Turn:
    """What one cycle decides, by names of pods."""

    binds: Mapping[str, str] = field(default_factory=dict)
    evicts: Iterable[str] = ()
    pipelined: Mapping[str, str] = field(default_factory=dict)


class Scripted(TestCluster):
    """A cluster whose cycles are given; after the last one nothing is decided."""

    def __init__(self, case: Case, turns: Iterable[Turn], *, again: bool = False) -> None:
        made = ours.world(case)
        super().__init__(made.state, made.config, made.pods.values())
        self.turns = list(turns)
        self.again = again
        """Whether the turns are repeated for ever."""

    def run(self, *, now: float = START) -> Result:
        super().run(now=now)  # a real cycle brings the state up to date, which laws of a plan read
        number = int(now - START)
        if self.again:
            number %= len(self.turns)
        turn = self.turns[number] if number < len(self.turns) else Turn()
        uids = {pod.metadata.name: uid for uid, pod in self.pods.items()}
        plan = Plan(pipelined={uids[name]: node for name, node in turn.pipelined.items()})
        for name in turn.evicts:
            node, job = self.pods[uids[name]].spec.node_name, _key(name)
            plan.effects.append(Evict(NAMESPACE, name, uids[name], node, "preempt", job))
        for name, node in turn.binds.items():
            plan.effects.append(Bind(NAMESPACE, name, uids[name], node, _key(name)))
        return Result(plan, self.state)


def _key(pod: str) -> str:
    return f"{NAMESPACE}/{pod.partition('-')[0]}"


def _case(body: Json, conf: str = CONF) -> Case:
    return Case("made", "by hand", conf, body)


ONE_FOR_ONE = _case(
    {
        "nodes": {"n1": {"cpu": 1}, "n2": {"cpu": 1}},
        "priorities": {"low": 1, "high": 9},
        "groups": {
            "j0": {"pods": 1, "min": 1, "cpu": 1, "priority": "low", "running": {"n1": 1}},
            "j1": {"pods": 1, "min": 1, "cpu": 1, "priority": "high"},
            "j2": {"pods": 1, "min": 1, "cpu": 1, "running": {"n2": 1}},
        },
    }
)
TAKEN = Turn(evicts=["j0-0"], pipelined={"j1-0": "n1"})
GIVEN = Turn(binds={"j1-0": "n1"})


def _names(found: Iterable[laws.Violation]) -> list[str]:
    return sorted({one.law for one in found})


def _laws(case: Case, *turns: Turn, again: bool = False) -> list[str]:
    return _names(laws.violations(case, Scripted(case, turns, again=again)))


def test_a_good_life_breaks_nothing() -> None:
    assert _laws(ONE_FOR_ONE, TAKEN, GIVEN) == []


def test_work_a_job_waits_beside_idle_nodes() -> None:
    case = _case({"nodes": {"n1": {"cpu": 2}}, "groups": {"j0": {"pods": 2, "min": 2, "cpu": 1}}})
    assert _laws(case) == ["work"]
    assert _laws(case, Turn(binds={"j0-0": "n1", "j0-1": "n1"})) == []


def test_work_surplus_waits_beside_an_idle_slot() -> None:
    case = _case({"nodes": {"n1": {"cpu": 2}}, "groups": {"j0": {"pods": 2, "min": 1, "cpu": 1}}})
    assert _laws(case, Turn(binds={"j0-0": "n1"})) == ["work"]


def test_work_a_job_is_kept_out_of_an_idle_cluster() -> None:
    conf = CONF.replace("allocate,", "enqueue, allocate,")
    body = {"nodes": {"n1": {"cpu": 2}}, "groups": {"j0": {"pods": 1, "min": 1, "cpu": 1}}}
    assert _laws(_case(body, conf)) == ["work"]


@pytest.mark.parametrize(
    ("group", "node", "queue"),
    [
        ({"cpu": 3}, {}, {}),
        ({"memory": "4Gi"}, {"memory": "2Gi"}, {}),
        ({"requests": {worlds.GPU: 1}}, {}, {}),
        ({"spec": {"nodeSelector": {"zone": "a"}}}, {"labels": {"zone": "b"}}, {}),
        ({}, {"taints": ["spot=true:NoSchedule"]}, {}),
        ({"pods": 3, "min": 3}, {"pods": 2}, {}),
        ({"pods": 2, "min": 2}, {}, {"capability": {"cpu": 1}}),
    ],
)
def test_work_is_not_owed_where_there_is_no_place(group: Json, node: Json, queue: Json) -> None:
    body = {
        "nodes": {"n1": {"cpu": 2, **node}},
        "queues": {"q1": queue},
        "groups": {"j0": {"pods": 1, "min": 1, "cpu": 1, "queue": "q1", **group}},
    }
    assert _laws(_case(body)) == []


def test_work_anti_affinity_ports_and_affinity_close_nodes() -> None:
    term = {
        "labelSelector": {"matchLabels": {"app": "j0"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    port = {"container": {"ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]}}
    for spec, other, places in (
        ({"affinity": {"podAntiAffinity": _required(term)}}, {}, 4),
        ({"affinity": {"podAffinity": _required(term)}}, {}, 3),
        (port, port, 1),
        (port, {}, 2),
        ({}, {}, 7),
    ):
        body = {
            "nodes": {"n1": {"cpu": 4}, "n2": {"cpu": 4}},
            "groups": {
                "j0": {"pods": 1, "min": 1, "cpu": 1, "labels": {"app": "j0"}, "spec": other,
                       "running": {"n1": 1}},
                "j1": {"pods": 8, "min": 8, "cpu": 1, "labels": {"app": "j1"}, "spec": spec},
            },
        }  # fmt: skip
        case = _case(body)
        assert Room(facts_of(case), ours.world(case)).places("j1") == places, spec


def _required(term: Json) -> Json:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def test_rest_a_life_that_always_changes() -> None:
    body = {
        "nodes": {f"n{number}": {"cpu": 1} for number in range(1, 31)},
        "groups": {"j0": {"pods": 30, "min": 1, "cpu": 1}},
    }
    turns = [Turn(binds={f"j0-{number}": f"n{number + 1}"}) for number in range(30)]
    assert _laws(_case(body), *turns) == ["rest"]


def test_ping_pong_a_state_returns_after_an_eviction() -> None:
    back = Turn(evicts=["j1-0"], pipelined={"j0-0": "n1"})
    given_back = Turn(binds={"j0-0": "n1"})
    assert _laws(ONE_FOR_ONE, TAKEN, GIVEN, back, given_back, again=True) == ["ping-pong"]


def test_promise_what_was_freed_is_not_given() -> None:
    assert "promise" in _laws(ONE_FOR_ONE, TAKEN)
    assert "promise" in _laws(ONE_FOR_ONE, TAKEN, Turn(binds={"j0-0": "n1"}))


def test_promise_only_a_part_is_given() -> None:
    body = {
        "nodes": {"n1": {"cpu": 2}},
        "groups": {
            "j0": {"pods": 2, "min": 1, "cpu": 1, "running": {"n1": 2}},
            "j1": {"pods": 2, "min": 1, "cpu": 1},
        },
    }
    taken = Turn(evicts=["j0-0", "j0-1"], pipelined={"j1-0": "n1", "j1-1": "n1"})
    given = Turn(binds={"j1-0": "n1", "j0-0": "n1"})
    assert _laws(_case(body), taken, given) == ["promise"]


def test_bystander_a_victim_on_a_node_where_nothing_is_placed() -> None:
    both = Turn(evicts=["j0-0", "j2-0"], pipelined={"j1-0": "n1"})
    again = Turn(binds={"j1-0": "n1", "j2-0": "n2"})
    assert _laws(ONE_FOR_ONE, both, again) == ["bystander"]


def test_eviction_nothing_is_placed_at_all() -> None:
    found = _laws(ONE_FOR_ONE, Turn(evicts=["j0-0"]), GIVEN)
    assert found == ["bystander", "eviction"]


def test_guarantee_an_eviction_takes_a_guaranteed_pod() -> None:
    body = {
        "nodes": {"n1": {"cpu": 1}},
        "queues": {"q1": {"guarantee": {"resource": {"cpu": 1}}}, "q2": {}},
        "groups": {
            "j0": {"pods": 1, "min": 1, "cpu": 1, "queue": "q1", "running": {"n1": 1}},
            "j1": {"pods": 1, "min": 1, "cpu": 1, "queue": "q2"},
        },
    }
    assert _laws(_case(body), TAKEN, GIVEN) == ["guarantee"]


def test_guarantee_a_pod_of_the_same_queue_may_take_its_place() -> None:
    body = {
        "nodes": {"n1": {"cpu": 1}},
        "queues": {"q1": {"guarantee": {"resource": {"cpu": 1}}}},
        "groups": {
            "j0": {"pods": 1, "min": 1, "cpu": 1, "queue": "q1", "running": {"n1": 1}},
            "j1": {"pods": 1, "min": 1, "cpu": 1, "queue": "q1"},
        },
    }
    assert _laws(_case(body), TAKEN, GIVEN) == []


def test_gang_half_of_it_is_placed() -> None:
    body = {
        "nodes": {"n1": {"cpu": 1}, "n2": {"cpu": 1}},
        "groups": {
            "j0": {"pods": 2, "min": 2, "cpu": 1},
            "j1": {"pods": 1, "min": 1, "cpu": 1, "running": {"n2": 1}},
        },
    }
    assert _laws(_case(body), Turn(binds={"j0-0": "n1"})) == ["gang"]


def test_gang_a_member_is_evicted_from_its_minimum() -> None:
    body = {
        "nodes": {"n1": {"cpu": 2}},
        "groups": {
            "j0": {"pods": 2, "min": 2, "cpu": 1, "running": {"n1": 2}},
            "j1": {"pods": 1, "min": 1, "cpu": 1},
        },
    }
    assert _laws(_case(body), TAKEN, GIVEN) == ["gang"]
    unprotected = CONF.replace("{name: gang}", "{name: gang, enablePreemptable: false,"
                               " enableReclaimable: false}")  # fmt: skip
    assert _laws(_case(body, unprotected), TAKEN, GIVEN) == []


def test_a_law_of_one_plan_is_reported_too() -> None:
    found = _laws(ONE_FOR_ONE, Turn(binds={"j1-0": "n1"}))
    assert "overcommit" in found


def test_each_law_has_a_test_of_its_own() -> None:
    tested = {name.removeprefix("test_").replace("ping_pong", "ping-pong") for name in globals()}
    assert all(any(name.startswith(law) for name in tested) for law in laws.LAWS)
