"""usage: overloaded nodes are infeasible, and the least loaded comes first. Numbers by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.scheduler.errors import ConfigError
from hekla.scheduler.plugins.usage import CPU_EXCEEDED, MEMORY_EXCEEDED, Usage
from hekla.scheduler.session.session import Session
from hekla.scheduler.state import changes
from hekla.scheduler.state.changes import Measured
from hekla.scheduler.state.load import Reading
from hekla.testing import TestCluster, cluster, gang, node, pod
from hekla.testing.objects import START, GroupBuilder
from hekla.units.timestamps import format_time

CONF = """\
actions: "allocate"
tiers:
- plugins:
  - {name: gang}
  - {name: predicates}
  - name: usage
    arguments: {%s}
metrics: {address: "http://prometheus", interval: 30s}
"""
Load = tuple[float, float]


def world(
    loads: Mapping[str, Load],
    *jobs: GroupBuilder,
    arguments: str = "",
    age: float = 0.0,
    **more: Any,
) -> TestCluster:
    """Nodes of 4 CPUs and 16 GiB, each with its percent of CPU and memory, measured `age` ago."""
    made = cluster([node(name) for name in loads], jobs, conf=CONF % arguments, **more)
    return measured(made, loads, START - age)


def measured(made: TestCluster, loads: Mapping[str, Load], at: float) -> TestCluster:
    readings = {name: Reading(cpu, memory, at) for name, (cpu, memory) in loads.items()}
    changes.apply(made.state, Measured({600: readings}))
    return made


@contextmanager
def opened(made: TestCluster) -> Iterator[Usage]:
    with Session(made.state, made.config, START) as session:
        found = session.plugin("usage")
        assert isinstance(found, Usage)
        yield found


def scores(made: TestCluster) -> dict[str, float]:
    """Return the scores of the nodes for a pod."""
    with opened(made) as plugin:
        session = plugin._session
        probe = next(iter(made.state.tasks.values()))
        found = plugin.node_order(probe, session.nodes)
        return {n.name: round(float(s), 6) for n, s in zip(session.nodes.all, found, strict=True)}


def placed(name: str, on: str, **more: Any) -> Any:
    return pod(name, node=on, group="placed", **more)


# --- the filter -------------------------------------------------------------------------------


def test_a_node_above_its_threshold_is_infeasible_and_one_at_it_is_feasible() -> None:
    job = gang("job", members=3, cpu=1)
    result = world({"n1": (80.01, 10), "n2": (10, 80.5), "n3": (80, 80)}, job).run()
    assert set(result.binds.values()) == {"n3"}


def test_a_job_without_unloaded_nodes_has_volcanos_reason() -> None:
    result = world({"n1": (81, 90), "n2": (10, 81)}, gang("job", cpu=1)).run()
    assert result.binds == {}
    assert CPU_EXCEEDED in result.why("job")
    assert MEMORY_EXCEEDED.rstrip(".") in result.why("job")
    assert result.plan.wake_at == START + 301.0, "if nobody measures again, time lets pass"


def test_thresholds_can_be_set_and_the_filter_switched_off() -> None:
    job = gang("job", cpu=1)
    low = "thresholds: {cpu: 30, mem: 30.5}"
    assert world({"n1": (31, 10)}, job, arguments=low).run().binds == {}
    made = measured(
        cluster(
            [node("n1")],
            [job],
            conf=(CONF % "").replace("usage\n", "usage\n    enablePredicate: false\n"),
        ),
        {"n1": (99, 99)},
        START,
    )
    assert made.run().binds == {"job-0": "n1"}


@pytest.mark.parametrize(("age", "want"), [(300.0, {}), (300.5, {"job-0": "n1"})])
def test_a_stale_reading_is_ignored(age: float, want: dict[str, str]) -> None:
    made = world({"n1": (99, 99)}, gang("job", cpu=1), age=age)
    assert made.run().binds == want
    assert scores(made)["n1"] == (0.0 if want else 5.0)


def test_a_node_without_readings_is_feasible_and_scores_zero() -> None:
    made = world({"n1": (79, 79)}, gang("job", members=2, cpu=3))
    made.state.set_node(node("unknown"))
    assert set(made.run().binds.values()) == {"n1", "unknown"}
    assert scores(made) == {"n1": 105.0, "unknown": 0.0}


def test_readings_of_deleted_nodes_are_dropped() -> None:
    made = world({"n1": (10, 10), "n2": (10, 10)}, gang("job", cpu=1))
    made.state.delete_node("n2")
    measured(made, {"n1": (20, 20), "stranger": (1, 1)}, START)
    assert set(made.state.node_table.readings[600]) == {"n1"}


def test_a_load_source_with_a_fixed_period_serves_all_periods() -> None:
    made = world({}, gang("job", cpu=1))
    made.state.set_node(node("n1"))
    changes.apply(made.state, Measured({0: {"n1": Reading(99, 99, START)}}))
    assert made.run().binds == {}
    changes.apply(made.state, Measured({600: {"n1": Reading(1, 1, START)}}))
    assert made.run().binds == {"job-0": "n1"}


# --- the score --------------------------------------------------------------------------------


def test_the_score_is_the_weighted_free_fraction() -> None:
    loads = {"n1": (20.0, 40.0), "n2": (50.0, 50.0)}
    job = gang("job", cpu=1)
    # n1: (0.8 + 0.6) / 2 * 100 * 5; n2: 0.5 * 500.
    assert scores(world(loads, job)) == {"n1": 350.0, "n2": 250.0}
    # n1: (3 * 0.8 + 0.6) / 4 * 100 * 2; n2: 0.5 * 200.
    heavy = "usage.weight: 2, cpu.weight: 3, memory.weight: 1"
    assert scores(world(loads, job, arguments=heavy)) == {"n1": 150.0, "n2": 100.0}
    none = "cpu.weight: 0, memory.weight: 0"
    assert scores(world(loads, job, arguments=none)) == {"n1": 0.0, "n2": 0.0}


def test_pods_placed_in_one_cycle_add_load_estimates() -> None:
    """Each is estimated at 0.7 of 2 of 4 CPUs, 35 %, and of 4 of 16 GiB, 17.5 %."""
    loads = {"n1": (20.0, 40.0), "n2": (50.0, 50.0)}
    job = gang("job", members=3, cpu=2, memory="4Gi")
    # 350 : 250; then n1 has 1 - (0.55 + 0.575) / 2, that is 218.75 : 250; then 218.75 : 118.75.
    want = {"job-0": "n1", "job-1": "n2", "job-2": "n1"}
    assert world(loads, job).run().binds == want
    singles = [gang(f"single-{i}", cpu=2, memory="4Gi", age=3 - i) for i in range(3)]
    assert list(world(loads, *singles).run().binds.values()) == ["n1", "n2", "n1"]


def test_pods_not_in_readings_yet_add_load_estimates() -> None:
    """1 CPU, at most 2: (0.7 * 1000 + 0.5 * 1000) of 4000, 30 %; no memory request."""
    spec = {
        "containers": [
            {"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}
        ]
    }
    nodes = ("bound", "new", "old", "leaving")
    made = world(
        dict.fromkeys(nodes, (20.0, 20.0)),
        pods=[
            placed("bound", "bound", spec={**spec, "nodeName": "bound"}, phase="Pending"),
            placed("new", "new", spec={**spec, "nodeName": "new"}, status=started(29)),
            placed("old", "old", spec={**spec, "nodeName": "old"}, status=started(31)),
            placed("leaving", "leaving", spec={**spec, "nodeName": "leaving"}, deleting=True),
        ],
        arguments="estimator: {burst_ratio: 0.5}",
    )
    # (1 - 0.5 + 1 - 0.2) / 2 * 500 against 0.8 * 500.
    assert scores(made) == {"bound": 325.0, "new": 325.0, "old": 400.0, "leaving": 400.0}


def started(seconds_ago: float) -> dict[str, str]:
    return {"startTime": format_time(START - seconds_ago)}


def test_an_estimate_is_raised_on_a_node_near_its_limits_but_never_above_the_pods_own() -> None:
    """At 60 % a pod of 1 CPU counts 0.7 * 1.2 of it: 21 % of the node."""
    calm, near = {"n1": (59.0, 59.0)}, {"n1": (60.0, 60.0)}
    one = placed("one", "n1", cpu=1, status=started(1))
    # 59 + 17.5 and 59: with the shadow it is 67.75 %, so it is raised: 500 * (0.2 + 0.41) / 2.
    assert scores(world(calm, pods=[one])) == {"n1": 152.5}
    assert scores(world(near, pods=[one])) == {"n1": 147.5}
    high = "estimator: {risk_factor: 50}"  # 0.7 * 50 of a CPU, but it may use one: 25 %
    assert scores(world(near, pods=[one], arguments=high)) == {"n1": 137.5}


def test_a_pod_without_requests_has_a_fixed_load_estimate() -> None:
    one = placed("one", "n1", status=started(1))
    # 250 of 4000 and 200 of 16384 MiB.
    want = 500 * (2 - 0.0625 - 200 / 16384) / 2
    assert scores(world({"n1": (0.0, 0.0)}, pods=[one])) == {"n1": round(want, 6)}
    more = "estimator: {be_cpu: 1, be_mem: 8Gi}"
    plain = "estimator: {be_cpu: 2000, be_mem: 4096}"
    assert scores(world({"n1": (0.0, 0.0)}, pods=[one], arguments=plain)) == {"n1": 312.5}
    # A number is in thousandths: one of them is next to nothing.
    want = 500 * (2 - 0.00025 - 0.5) / 2
    assert scores(world({"n1": (0.0, 0.0)}, pods=[one], arguments=more)) == {"n1": round(want, 6)}


def test_a_rolled_back_placement_restores_the_estimates() -> None:
    loads = {"n1": (33.3, 12.7), "n2": (33.3, 12.7)}
    doomed = gang("doomed", members=9, cpu="1300m", memory="1234567890", age=60)
    made = world(loads, doomed, gang("small", cpu="100m"))
    assert made.run().binds == {"small-0": "n1"}, "equal nodes stay equal, bit for bit"


@given(
    loads=st.lists(
        st.tuples(st.integers(0, 79), st.integers(0, 79)), min_size=1, max_size=5
    ),
    count=st.integers(1, 12),
    milli=st.sampled_from([100, 333, 700]),
    mib=st.sampled_from([0, 100, 1500]),
)  # fmt: skip
def test_placing_many_tasks_equals_placing_them_one_by_one(
    loads: list[Load], count: int, milli: int, mib: int
) -> None:
    named = {f"n{i}": load for i, load in enumerate(loads)}
    requests: dict[str, Any] = {"cpu": f"{milli}m", "memory": f"{mib}Mi"}
    together = world(named, gang("j", members=count, minimum=1, **requests)).run()
    singles = [gang(f"j{i:02}", age=99 - i, **requests) for i in range(count)]
    alone = world(named, *singles).run()
    assert list(together.binds.values()) == list(alone.binds.values())


REFUSED = {
    "thresholds: {cpu: 101}": "thresholds has cpu: 101; it must be from 0 to 100",
    "thresholds: {memory: 80}": "thresholds has 'memory'; it may have: cpu, mem",
    "thresholds: 80": "thresholds must be a map",
    "estimator: {request_ratio: 2}": "estimator has request_ratio: 2; it must be from 0 to 1",
    "estimator: {risk_factor: 0.9}": "estimator has risk_factor: 0.9; it must be from 1",
    "estimator: {be_cpu: lots}": "estimator has be_cpu:",
    "estimator: {be_mem: -1}": "estimator has be_mem: -1; it must not be negative",
    "estimator: {be_cpu: true}": "estimator has be_cpu:",
    "cpu.weight: -1": "must not be negative",
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_invalid_arguments_are_refused(arguments: str) -> None:
    with pytest.raises(ConfigError) as caught:
        cluster(conf=CONF % arguments)
    assert REFUSED[arguments] in str(caught.value)
