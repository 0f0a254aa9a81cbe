"""tdm: revocable nodes are used in their window by evictable pods only."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hekla.api.wellknown import (
    JDB_MAX_UNAVAILABLE,
    JDB_MIN_AVAILABLE,
    PREEMPTABLE,
    REVOCABLE_ZONE,
)
from hekla.scheduler.errors import ConfigError
from hekla.scheduler.framework.config import parse
from hekla.scheduler.plugins import builtin
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


def test_non_preemptable_pods_do_not_use_revocable_nodes() -> None:
    result = world(gang("web", members=2, cpu=3)).run(now=at(23))
    assert result.binds == {}
    assert "node(s) are lent, and the pod is not revocable" in result.why("web")


@pytest.mark.parametrize("annotations", [REVOCABLE, {PREEMPTABLE: "true"}])
def test_revocable_pods_prefer_revocable_nodes(annotations: dict[str, str]) -> None:
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
def test_pods_are_evicted_within_the_budget_when_the_window_closes(case: str) -> None:
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


def test_non_preemptable_pods_stay_when_the_window_closes() -> None:
    job = gang("db", members=1, cpu=1, running_on=["lent"], phase="Running",
               pod_annotations={PREEMPTABLE: "false"})  # fmt: skip
    assert world(job).run(now=at(6)).evictions == []


def test_revocable_pods_are_evicted_within_some_cycles_of_window_close() -> None:
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


def test_only_non_revocable_pods_preempt_and_only_on_non_revocable_nodes() -> None:
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
def test_an_invalid_window_is_refused_by_name(wrong: str) -> None:
    conf = CONF.replace("22:00-06:00", f'"{wrong}"')
    with pytest.raises(ConfigError, match=r"tdm\.revocable-zone\.night must be HH:MM-HH:MM"):
        world(conf=conf)


def test_an_unknown_time_zone_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tdm\.timezone 'Moon/Sea'"):
        world(conf=CONF.replace("UTC", "Moon/Sea"))


minutes = st.integers(0, 24 * 60 - 1)
ZONES = ["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu"]
DAYS = [  # among them days on which clocks are set, and those before
    datetime(2026, 3, 4, tzinfo=UTC),
    *(datetime(2026, 3, day, tzinfo=UTC) for day in (7, 8, 28, 29)),
    *(datetime(2026, 4, day, tzinfo=UTC) for day in (3, 4, 5)),
    *(datetime(2026, 10, day, tzinfo=UTC) for day in (2, 3, 24, 25)),
    *(datetime(2026, 11, day, tzinfo=UTC) for day in (1,)),
]


@given(minutes, minutes, minutes, st.sampled_from(DAYS), st.sampled_from(ZONES))
@example(120, 121, 0, datetime(2026, 3, 8, tzinfo=UTC), "America/St_Johns")
def test_a_window_changes_exactly_when_it_says(
    begins: int, ends: int, now: int, day: datetime, zone: str
) -> None:
    window, place = Window(begins, ends), ZoneInfo(zone)

    def is_open(at: float) -> bool:
        return window.is_open(datetime.fromtimestamp(at, place))

    start = day.timestamp() + now * 60
    change = window.next_change(start, place)
    # A window in the hour that clocks skip opens on the day after.
    assert start < change <= start + 50 * 3600
    step = 60
    until = [start + n * step for n in range(int((change - start) // step) + 1)]
    assert all(is_open(at) == is_open(start) for at in until if at < change)
    if begins != ends:
        assert is_open(change) != is_open(start)


SET_CLOCKS = {
    "in the hour that comes twice": (datetime(2026, 10, 25, 1, 15), datetime(2026, 10, 25, 1, 45)),
    "before it": (datetime(2026, 10, 24, 23), datetime(2026, 10, 25, 0, 45)),
}


@pytest.mark.parametrize("case", SET_CLOCKS)
def test_a_window_closes_on_days_on_which_clocks_are_set_back(case: str) -> None:
    now, want = (moment.replace(tzinfo=UTC).timestamp() for moment in SET_CLOCKS[case])
    conf = CONF.replace("22:00-06:00", "20:00-02:45").replace("UTC", "Europe/Berlin")
    assert world(conf=conf).run(now=now).plan.wake_at == want


def test_a_window_opens_when_clocks_leap_over_its_beginning() -> None:
    conf = CONF.replace("22:00-06:00", "02:30-05:00").replace("UTC", "Europe/Berlin")
    before = datetime(2026, 3, 29, 0, 30, tzinfo=UTC).timestamp()
    leap = datetime(2026, 3, 29, 1, 0, tzinfo=UTC).timestamp()
    assert world(conf=conf).run(now=before).plan.wake_at == leap


def test_pods_that_do_not_run_yet_are_evicted_beyond_the_budget() -> None:
    job = gang(
        "batch", members=3, minimum=1, cpu=1, running_on=["lent"] * 3, phase="Running",
        annotations={JDB_MAX_UNAVAILABLE: "1"}, pod_annotations=REVOCABLE,
    )  # fmt: skip
    state = world(job)
    for each in job.pods[:2]:
        status = msgspec.structs.replace(each.status, phase="Pending")
        state.state.set_pod(msgspec.structs.replace(each, status=status))
    assert state.run(now=at(5)).evictions == []
    assert state.run(now=at(6)).evictions == ["batch-0", "batch-1"]


def test_removing_a_window_evicts_no_pod() -> None:
    job = gang("batch", members=2, minimum=1, cpu=1, running_on=["lent"] * 2, phase="Running",
               pod_annotations=REVOCABLE)  # fmt: skip
    wants = gang("wants", members=1, cpu=5, pod_annotations=REVOCABLE)
    conf = CONF.replace("revocable-zone.night", "revocable-zone.dusk")
    result = cluster(
        [node("lent", cpu=8, labels=LENT)], [job, wants], conf=conf
    ).run(now=at(12))  # fmt: skip
    assert result.evictions == []
    assert "node(s) are lent, and not at this hour" in result.why("wants")


def test_tdm_without_shuffle_is_warned_about() -> None:
    assert parse(CONF, builtin()).warnings == ()
    (warning,) = parse(CONF.replace(", shuffle", ""), builtin()).warnings
    assert "plugin 'tdm' evicts no pods when a window closes; add the action shuffle" in warning


@pytest.mark.parametrize("text", ["9" * 400 + "%", "9" * 5000, "-" + "9" * 400, "1e5%", "%"])
def test_an_absurd_disruption_budget_is_ignored(text: str) -> None:
    job = gang("batch", members=2, minimum=1, cpu=1, running_on=["lent"] * 2, phase="Running",
               annotations={JDB_MAX_UNAVAILABLE: text},
               pod_annotations=REVOCABLE)  # fmt: skip
    assert world(job).run(now=at(6)).plan.failures == []
