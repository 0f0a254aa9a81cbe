"""tdm: lent nodes are used in their hours, by those who can be sent away, and given back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.api.wellknown import (
    JDB_MAX_UNAVAILABLE,
    JDB_MIN_AVAILABLE,
    PREEMPTABLE,
    REVOCABLE_ZONE,
)
from hekla.scheduler.errors import ConfigError
from hekla.scheduler.plugins.tdm import Window
from hekla.testing import GroupBuilder, TestCluster, cluster, gang, node

CONF = """\
actions: "allocate, preempt, shuffle"
tiers:
- plugins:
  - {name: gang}
  - {name: predicates}
  - name: tdm
    arguments:
      tdm.revocable-zone.night: 22:00-06:00
      tdm.timezone: UTC
      tdm.evict.period: 2m
"""
LENT = {REVOCABLE_ZONE: "night"}
REVOCABLE = {REVOCABLE_ZONE: "*"}


def at(hour: int, minute: int = 0) -> float:
    return datetime(2026, 3, 4, hour, minute, tzinfo=UTC).timestamp()


def world(*jobs: GroupBuilder, conf: str = CONF) -> TestCluster:
    nodes = [node("own", cpu=4), node("lent", cpu=4, labels=LENT)]
    return cluster(nodes, jobs, conf=conf)


@pytest.mark.parametrize(("hour", "minute", "is_open"), [
    (21, 59, False), (22, 0, True), (23, 59, True), (0, 0, True), (5, 59, True), (6, 0, False),
    (12, 0, False),
])  # fmt: skip
def test_a_window_over_midnight_is_open_on_both_sides_of_it(
    hour: int, minute: int, is_open: bool
) -> None:
    job = gang("batch", members=2, cpu=3, pod_annotations=REVOCABLE)
    result = world(job).run(now=at(hour, minute))
    assert set(result.binds.values()) == ({"own", "lent"} if is_open else set())
    if not is_open:
        assert "node(s) are lent, and not at this hour" in result.why("batch")


def test_work_that_cannot_be_sent_away_stays_off_lent_nodes() -> None:
    result = world(gang("web", members=2, cpu=3)).run(now=at(23))
    assert result.binds == {}
    assert "node(s) are lent, and the pod is not revocable" in result.why("web")


@pytest.mark.parametrize("annotations", [REVOCABLE, {PREEMPTABLE: "true"}])
def test_revocable_work_prefers_lent_nodes(annotations: dict[str, str]) -> None:
    result = world(gang("batch", members=1, cpu=1, pod_annotations=annotations)).run(now=at(23))
    assert result.binds == {"batch-0": "lent"}


def test_a_zone_of_one_name_is_not_any_zone() -> None:
    job = gang("batch", members=1, cpu=1, pod_annotations={REVOCABLE_ZONE: "night"})
    assert world(job).run(now=at(23)).binds == {"batch-0": "own"}


BUDGETS: dict[str, tuple[dict[str, str], int]] = {
    "one at a time without a budget": ({}, 1),
    "as many as the budget lets be away": ({JDB_MAX_UNAVAILABLE: "2"}, 2),
    "a percentage, rounded up": ({JDB_MAX_UNAVAILABLE: "60%"}, 3),
    "all but those that must stay": ({JDB_MIN_AVAILABLE: "1"}, 3),
    "the least that must stay counts before the most that may go": (
        {JDB_MIN_AVAILABLE: "3", JDB_MAX_UNAVAILABLE: "4"},
        1,
    ),
    "nonsense is no budget": ({JDB_MAX_UNAVAILABLE: "many"}, 1),
}


@pytest.mark.parametrize("case", BUDGETS)
def test_when_the_window_closes_work_leaves_within_its_budget(case: str) -> None:
    annotations, want = BUDGETS[case]
    job = gang(
        "batch", members=4, minimum=1, cpu=1, running_on=["lent"] * 4, phase="Running",
        annotations=annotations, pod_annotations=REVOCABLE,
    )  # fmt: skip
    state = world(job)
    assert state.run(now=at(5, 59)).evictions == []
    result = state.run(now=at(6))
    assert len(result.evictions) == want
    assert result.plan.wake_at == at(6) + 120, "there may be more to do, and nothing else calls"


def test_who_says_never_to_be_sent_away_stays_when_the_window_closes() -> None:
    job = gang("db", members=1, cpu=1, running_on=["lent"], phase="Running",
               pod_annotations={PREEMPTABLE: "false"})  # fmt: skip
    assert world(job).run(now=at(6)).evictions == []


def test_revocable_work_is_gone_some_cycles_after_its_window_closed() -> None:
    jobs = [
        gang(f"j{n}", members=2, minimum=1, cpu=1, running_on=["lent"] * 2, phase="Running",
             pod_annotations=REVOCABLE)
        for n in range(2)
    ]  # fmt: skip
    state = world(*jobs)
    for _ in range(3):
        state.live(state.run(now=at(6, 1)), remake=False)
    assert not [pod for pod in state.pods.values() if pod.spec.node_name == "lent"]


def test_the_cycle_is_due_again_when_a_window_opens_or_closes() -> None:
    assert world().run(now=at(12)).plan.wake_at == at(22)
    assert world().run(now=at(23)).plan.wake_at == at(23) + 7 * 3600
    assert cluster([node("own")], conf=CONF).run(now=at(12)).plan.wake_at is None, "nothing is lent"


def test_only_steadfast_work_preempts_and_only_on_nodes_of_our_own() -> None:
    victims = [
        gang("here", members=4, minimum=1, cpu=1, running_on=["own"] * 4, phase="Running",
             pod_annotations={PREEMPTABLE: "true"}),
        gang("there", members=4, minimum=1, cpu=1, running_on=["lent"] * 4, phase="Running",
             pod_annotations={PREEMPTABLE: "true"}),
    ]  # fmt: skip
    asks = gang("asks", members=1, cpu=1, pod_annotations={PREEMPTABLE: "false"})
    result = world(*victims, asks).run(now=at(23))
    assert [name.split("-")[0] for name in result.evictions] == ["here"]
    meek = gang("asks", members=1, cpu=1, pod_annotations={PREEMPTABLE: "true"})
    assert world(*victims, meek).run(now=at(23)).evictions == []


@pytest.mark.parametrize("wrong", ["22-06", "24:00-06:00", "22:00-06:60", "22:00", ""])
def test_a_window_that_is_none_is_refused_by_name(wrong: str) -> None:
    conf = CONF.replace("22:00-06:00", f'"{wrong}"')
    with pytest.raises(ConfigError, match=r"tdm\.revocable-zone\.night must be HH:MM-HH:MM"):
        world(conf=conf)


def test_a_time_zone_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tdm\.timezone 'Moon/Sea'"):
        world(conf=CONF.replace("UTC", "Moon/Sea"))


minutes = st.integers(0, 24 * 60 - 1)


@given(minutes, minutes, minutes)
def test_a_window_changes_exactly_when_it_says(begins: int, ends: int, now: int) -> None:
    window = Window(begins, ends)
    moment = datetime(2026, 3, 4, now // 60, now % 60, tzinfo=UTC)
    change = window.next_change(moment)
    assert change > moment
    before = change.timestamp() - 1
    assert window.is_open(datetime.fromtimestamp(before, UTC)) == window.is_open(moment)
    if begins != ends:
        assert window.is_open(change) != window.is_open(moment)
