"""rescheduling: victims on overloaded nodes, computed by hand, each with a target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.api import core
from hekla.api.meta import convert
from hekla.api.wellknown import COOLDOWN_TIME, PREEMPTABLE
from hekla.scheduler.errors import ConfigError
from hekla.scheduler.plugins.rescheduling import plugin as rescheduling
from hekla.scheduler.plugins.rescheduling.balance import weight_of
from hekla.scheduler.session.reservations import Reservation, Reservations
from hekla.scheduler.state import changes
from hekla.scheduler.state.changes import Measured, Rescheduled
from hekla.scheduler.state.load import Reading
from hekla.testing import TestCluster, cluster, gang, node, pod
from hekla.testing.objects import START, GroupBuilder
from hekla.units.timestamps import format_time

CONF = """\
actions: "allocate, shuffle"
tiers:
- plugins:
  - {name: gang}
  - {name: conformance}
  - {name: pdb}
  - {name: cdp}
- plugins:
  - {name: predicates}
  - name: rescheduling
    arguments:
      interval: 5m
      metricsPeriod: 10m
      strategies:
      - name: lowNodeUtilization
        params: {thresholds: {cpu: %s}, targetThresholds: {cpu: %s}%s}
metrics: {address: "http://prometheus"}
"""
Loads = Mapping[str, float]


def world(
    loads: Loads,
    *jobs: GroupBuilder,
    low: float = 30,
    target: float = 60,
    params: str = "",
    age: float = 0.0,
    nodes: Mapping[str, Any] | None = None,
    **more: Any,
) -> TestCluster:
    """Nodes of 4 CPUs and 16 GiB, each with a percent of CPU in use and 5 % of memory."""
    made = cluster(
        [node(name, **(nodes or {}).get(name, {})) for name in loads],
        jobs,
        conf=CONF % (low, target, params),
        **more,
    )
    readings = {name: Reading(cpu, 5.0, START - age) for name, cpu in loads.items()}
    changes.apply(made.state, Measured({600: readings}))
    return made


def spread(name: str, *on: str, minimum: int = 1, cpu: Any = 1, **more: Any) -> GroupBuilder:
    """A job with a running pod on each of the nodes."""
    return gang(
        name, members=len(on), minimum=minimum, running_on=on, phase="Running", cpu=cpu, **more
    )


# --- the numbers ------------------------------------------------------------------------------


def test_pods_are_evicted_until_the_node_is_at_its_target() -> None:
    """n1 has 90 %; each pod is 25 %: 90, 65, 40. n2 takes them: 10, 35, 60."""
    result = world({"n1": 90, "n2": 10}, spread("a", *["n1"] * 4)).run()
    assert result.evictions == ["a-0", "a-1"]
    assert {each.reason for each in result.plan.evictions} == {"shuffle"}


def test_rescheduling_evicts_no_pod_that_would_overload_its_target() -> None:
    """n2 takes one: 10, 35, and 60 is above 59. n3 is not low."""
    result = world({"n1": 90, "n2": 10, "n3": 30}, spread("a", *["n1"] * 4), target=59).run()
    assert result.evictions == ["a-0"]


def test_each_rescheduled_pod_reserves_its_target() -> None:
    """n2 would stay low with both, but has one idle CPU."""
    jobs = [spread("a", *["n1"] * 4), spread("b", "n2", cpu=3)]
    assert world({"n1": 90, "n2": 10}, *jobs).run().evictions == ["a-0"]


def test_the_busiest_node_is_relieved_first() -> None:
    jobs = [spread("a", "n1", "n1"), spread("b", "n2", "n2")]
    result = world({"n1": 70, "n2": 80, "n3": 29}, *jobs).run()
    assert result.evictions == ["b-0"], "n3 has 54 % then, and takes no more"


@pytest.mark.parametrize(
    ("loads", "why"),
    [
        ({"n1": 60, "n2": 10}, "at the target is not above it"),
        ({"n1": 90, "n2": 30}, "at the threshold is not below it"),
        ({"n1": 20, "n2": 10}, "nobody is busy"),
    ],
)
def test_rescheduling_evicts_no_pod_without_overload_or_target(loads: Loads, why: str) -> None:
    result = world(loads, spread("a", *["n1"] * 4)).run()
    assert result.evictions == [], why
    assert result.plan.rescheduled_at == START
    assert result.plan.wake_at == START + 300


@pytest.mark.parametrize(
    ("target", "want"),
    [(80, {"none-0"}), (70, {"none-0", "sure-0"}), (60, {"none-0", "sure-0", "low-0"})],
)
def test_the_least_important_pods_are_evicted_first(target: float, want: set[str]) -> None:
    """Pods without a priority first; of these, those of the lower QoS class.

    Each is 12.5 % of the node: 90, 77.5, 65, 52.5.
    """
    half = {"cpu": "500m", "memory": "1Gi"}
    sure = {"containers": [{"name": "c", "resources": {"requests": half, "limits": half}}]}
    jobs = [
        spread("low", "n1", "n1", cpu="500m", spec={"priority": 1}),
        spread("none", "n1", "n1", cpu="500m"),
        spread("sure", "n1", "n1", spec=sure),
    ]
    assert set(world({"n1": 90, "n2": 0}, *jobs, target=target).run().evictions) == want


def test_a_node_can_be_overloaded_by_its_number_of_pods() -> None:
    few: dict[str, dict[str, Any]] = {"n1": {"pods": 4}, "n2": {"pods": 100}}
    made = world({"n1": 10, "n2": 10}, spread("a", *["n1"] * 4, cpu="10m"), nodes=few)
    assert made.run().evictions == []
    text = CONF % (30, 60, "")
    text = text.replace("{cpu: 30}", "{pods: 50}").replace("{cpu: 60}", "{pod: 75}")
    again = cluster(
        [node(name, **few[name]) for name in few],
        [spread("a", *["n1"] * 4, cpu="10m")],
        conf=text,
    )
    readings = {name: Reading(10.0, 5.0, START) for name in few}
    changes.apply(again.state, Measured({600: readings}))
    assert again.run().evictions == ["a-0"], "100 % of 4, then 75 %"


def test_a_pod_without_requests_has_a_default_weight() -> None:
    """100 thousandths, 2.5 % each: 64, 61.5, 59."""
    result = world({"n1": 64, "n2": 10}, spread("a", *["n1"] * 9, cpu=None)).run()
    assert len(result.evictions) == 2


def test_rescheduling_evicts_at_most_max_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescheduling, "MAX_MOVES", 3)
    made = world({"n1": 90, "n2": 0}, spread("a", *["n1"] * 9, cpu="100m"))
    assert len(made.run().evictions) == 3
    monkeypatch.setattr(rescheduling, "MAX_MOVES", 100)
    monkeypatch.setattr(rescheduling, "MAX_LOOKED_AT", 4)
    assert len(made.run().evictions) == 4


# --- protected pods ---------------------------------------------------------------------------


def test_a_gang_keeps_its_minimum() -> None:
    loads = {"n1": 90, "n2": 10}
    assert world(loads, spread("a", *["n1"] * 4, minimum=4)).run().evictions == []
    assert world(loads, spread("a", *["n1"] * 4, minimum=3)).run().evictions == ["a-0"]


def test_a_role_keeps_its_minimum() -> None:
    job = spread("a", *["n1"] * 4, minimum=2, role="worker", roles={"worker": 2, "ps": 0})
    assert len(world({"n1": 90, "n2": 10}, job).run().evictions) == 2
    job = spread("a", *["n1"] * 4, minimum=4, role="worker", roles={"worker": 4})
    assert world({"n1": 90, "n2": 10}, job).run().evictions == []


def test_protected_pods_are_not_rescheduled() -> None:
    loads = {"n1": 90, "n2": 10}
    cases: dict[str, dict[str, Any]] = {
        "system pods": {"namespace": "kube-system"},
        "critical pods": {"spec": {"priorityClassName": "system-node-critical"}},
        "important pods": {"spec": {"priority": 2_000_000_000}},
        "pods that said no": {"pod_annotations": {PREEMPTABLE: "false"}},
        "pods just scheduled": {
            "pod_annotations": {COOLDOWN_TIME: "10m"},
            "status": {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "True",
                        "lastTransitionTime": format_time(START - 60),
                    }
                ]
            },
        },
        "pods that fit nowhere else": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "n1"}}},
    }
    for case, more in cases.items():
        job = spread("a", *["n1"] * 4, **more)
        assert world(loads, job).run().evictions == [], case


def test_a_disruption_budget_counts_victims_chosen_before() -> None:
    made = world({"n1": 90, "n2": 10}, spread("a", *["n1"] * 4, labels={"app": "a"}))
    budget = {
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}},
        "status": {"disruptionsAllowed": 1},
    }
    made.state.budgets["default", "keep"] = convert(budget, core.PodDisruptionBudget)
    assert made.run().evictions == ["a-0"]


def test_pods_of_equal_name_in_two_namespaces_are_distinct() -> None:
    jobs = [
        spread("a", "n1", "n1", namespace="one"),
        spread("a", "n2", "n2", namespace="two"),
    ]
    result = world({"n1": 90, "n2": 10, "n3": 10}, *jobs).run()
    assert [each.namespace for each in result.plan.evictions] == ["one"]


def test_a_priority_class_can_limit_rescheduling() -> None:
    params = ", thresholdPriorityClassName: batch"
    jobs = [spread("a", "n1", "n1", spec={"priority": 9}), spread("b", "n1", "n1")]
    loads = {"n1": 90, "n2": 10}
    made = world(loads, *jobs, params=params, priorities={"batch": 9})
    assert made.run().evictions == ["b-0"]
    missing = world(loads, *jobs, params=params).run()
    assert missing.evictions == []
    (failure,) = missing.plan.failures
    assert "PriorityClass 'batch' does not exist; create it, or change" in failure.error


def test_unschedulable_nodes_are_no_rescheduling_target() -> None:
    job = spread("a", *["n1"] * 4)
    loads = {"n1": 90, "n2": 10}
    for flaw in ({"unschedulable": True}, {"ready": False}, {"taints": ["a=b:NoSchedule"]}):
        assert world(loads, job, nodes={"n2": flaw}).run().evictions == []
    tainted = {"n2": {"taints": ["a=b:NoSchedule"]}}
    unfit = world(loads, job, nodes=tainted, params=", nodeFit: false")
    assert unfit.run().evictions == ["a-0", "a-1"], "filters are not asked"
    full = spread("b", "n2", cpu=4)
    assert world(loads, job, full, params=", nodeFit: false").run().evictions == []


# --- when -------------------------------------------------------------------------------------


def test_rescheduling_runs_once_per_interval() -> None:
    made = world({"n1": 90, "n2": 10}, spread("a", *["n1"] * 4))
    changes.apply(made.state, Rescheduled(START - 100))
    early = made.run()
    assert (early.evictions, early.plan.rescheduled_at) == ([], None)
    assert early.plan.wake_at == START + 200
    changes.apply(made.state, Rescheduled(START - 300))
    assert made.run().evictions == ["a-0", "a-1"]
    changes.apply(made.state, Rescheduled(START + 9999))
    assert made.run().evictions == ["a-0", "a-1"], "the clock was set back"


def test_stale_readings_evict_no_pod_and_do_not_count_as_rescheduling() -> None:
    result = world({"n1": 90, "n2": 10}, spread("a", *["n1"] * 4), age=301).run()
    assert (result.evictions, result.plan.rescheduled_at) == ([], None)


def test_readings_of_another_period_are_ignored() -> None:
    made = world({"n1": 90, "n2": 10}, spread("a", *["n1"] * 4))
    changes.apply(made.state, Measured({300: dict(made.state.node_table.readings[600])}))
    assert made.run().evictions == []


def test_a_rolled_back_attempt_restores_the_cluster() -> None:
    made = world({"n1": 90, "n2": 10}, spread("a", *["n1"] * 4))
    assert made.run().plan.effects == made.run().plan.effects


# --- laws -------------------------------------------------------------------------------------


@contextmanager
def reservations() -> Iterator[list[Reservation]]:
    """Return the used amounts, including pipelined tasks."""
    found: list[Reservation] = []
    add = Reservations.add

    def noted(self: Reservations, more: list[Reservation]) -> None:
        found.extend(more)
        add(self, more)

    with mock.patch.object(Reservations, "add", noted):
        yield found


@st.composite
def worlds(draw: st.DrawFn) -> TestCluster:
    count = draw(st.integers(2, 5))
    names = [f"n{i}" for i in range(count)]
    percents = st.integers(0, 100)
    loads = {name: float(draw(percents)) for name in names}
    flaws = {name: draw(st.sampled_from([{}, {}, {"unschedulable": True}])) for name in names}
    jobs = []
    for number in range(draw(st.integers(1, 4))):
        on = draw(st.lists(st.sampled_from(names), min_size=1, max_size=5))
        jobs.append(
            spread(
                f"j{number}",
                *on,
                minimum=draw(st.integers(0, len(on))),
                cpu=draw(st.sampled_from([None, "100m", "500m", 1])),
                memory=draw(st.sampled_from([None, "1Gi"])),
                spec={"priority": draw(st.sampled_from([0, 5, 2_000_000_000]))},
            )
        )
    low = draw(st.integers(0, 60))
    target = draw(st.integers(low, 100))
    params = draw(st.sampled_from(["", ", nodeFit: false"]))
    return world(loads, *jobs, low=low, target=target, params=params, nodes=flaws)


@given(worlds())
def test_rescheduled_pods_have_a_target_and_gangs_keep_their_minimum(made: TestCluster) -> None:
    state = made.state
    with reservations() as found:
        result = made.run()
    assert not result.plan.failures
    gone = [state.tasks[each.uid] for each in result.plan.evictions]
    assert Counter(t.klass for t in gone) == Counter(hold.klass for hold in found)
    for job in state.jobs.values():
        left = job.ready_count - sum(task.job is job for task in gone)
        assert left == job.ready_count or left >= job.min_member
    thresholds = made.config.tiers[1][1].make()._thresholds  # type: ignore[attr-defined]
    columns, loads = state.matrix, state.node_table.loads(600)
    more_rn = np.zeros_like(columns.idle_rn)
    more_cpu = Counter[int]()
    for hold in found:
        more_rn[: len(hold.klass.request_r), hold.column] += hold.klass.request_r
        more_cpu[hold.column] += weight_of(hold.klass)[0]
        machine = state.node_table.node_list[hold.column]
        assert not machine.is_unschedulable
        assert loads.cpu_n[hold.column] < thresholds.low[0]
        assert not any(task.node_name == machine.name for task in gone)
    assert ((more_rn <= columns.idle_rn + 1e-6) | (more_rn == 0)).all()
    for column, more in more_cpu.items():
        after = loads.cpu_n[column] + 100 * more / columns.allocatable_rn[0, column]
        assert after <= thresholds.target[0] + 1e-6
    for task in gone:
        assert loads.cpu_n[state.nodes[task.node_name].index] > thresholds.target[0]


REFUSED = {
    "unknown strategy": (
        "strategies: [{name: highNodeUtilization}]",
        "strategies has 'highNodeUtilization'; there is only lowNodeUtilization",
    ),
    "a strategy without a name": ("strategies: [{}]", "strategies must be a list of maps with a"),
    "strategies that are no list": ("strategies: lowNodeUtilization", "strategies must be a list"),
    "a strategy twice": (
        "strategies: [{name: lowNodeUtilization}, {name: lowNodeUtilization}]",
        "lowNodeUtilization twice",
    ),
    "parameters under another name": (
        "strategies: [{name: lowNodeUtilization, parameters: {}}]",
        "has 'parameters'; write params",
    ),
    "an unknown parameter": (
        "strategies: [{name: lowNodeUtilization, params: {numberOfNodes: 3}}]",
        "no parameter 'numberOfNodes'",
    ),
    "an unknown resource": (
        "strategies: [{name: lowNodeUtilization, params: {thresholds: {gpu: 3}}}]",
        "thresholds has 'gpu'; it may have: cpu, memory, pods",
    ),
    "more than everything": (
        "strategies: [{name: lowNodeUtilization, params: {targetThresholds: {cpu: 101}}}]",
        "targetThresholds has cpu: 101; it must be from 0 to 100",
    ),
    "free and busy at once": (
        "strategies: [{name: lowNodeUtilization, params: {thresholds: {cpu: 80}, "
        "targetThresholds: {cpu: 70}}}]",
        "thresholds has cpu 80, above 70 of targetThresholds",
    ),
    "no truth": (
        "strategies: [{name: lowNodeUtilization, params: {nodeFit: perhaps}}]",
        "nodeFit must be true or false",
    ),
    "an interval that is none": ("interval: often", "interval is refused"),
    "an interval that is too short": ("interval: 1s", "interval must be from 10s"),
    "a period that is too long": ("metricsPeriod: 2h", "metricsPeriod must be from 60s to 3600s"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_arguments_are_refused(case: str) -> None:
    arguments, want = REFUSED[case]
    text = f"""\
actions: "shuffle"
tiers:
- plugins: [{{name: rescheduling, arguments: {{{arguments}}}}}]
"""
    with pytest.raises(ConfigError) as caught:
        cluster(conf=text)
    assert want in str(caught.value)


def test_thresholds_need_not_be_whole_numbers() -> None:
    made = world({"n1": 60.2, "n2": 10}, spread("a", "n1", "n1"), target=60.1)
    assert made.run().evictions == ["a-0"]


def test_a_pod_without_load_is_not_moved_off_an_overloaded_node() -> None:
    """Pods without a job are not evicted."""
    foreign = [pod(f"foreign-{i}", node="n1", cpu=1, scheduler="other") for i in range(4)]
    assert world({"n1": 90, "n2": 10}, pods=foreign).run().evictions == []
