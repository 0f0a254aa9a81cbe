"""The usage history: the closed form, its laws, and restarts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.api import wellknown
from hekla.scheduler.state import changes
from hekla.scheduler.state import usage_history as history
from hekla.scheduler.state.changes import Elapsed, Recalled
from hekla.scheduler.state.cluster import Cluster
from hekla.scheduler.state.dimensions import CPU
from hekla.scheduler.state.usage_history import NAMESPACE, QUEUE, USER, History
from hekla.testing import cluster, gang, node, queue
from hekla.testing.objects import START

HOUR = 3600.0
DAY = 24 * HOUR


def a_cluster(**options: Any) -> Cluster:
    return cluster([node("n1", cpu=10)], queues=[queue("a"), queue("b")], **options).state


def later(state: Cluster, at: float, half_life_s: float = DAY) -> History:
    changes.apply(state, Elapsed(START + at, half_life_s))
    assert state.job_table.history is not None
    return state.job_table.history


def cores(past: History, level: str, name: str, at: float) -> float:
    return float(past.mean_r((level, name), START + at)[CPU]) / 1000


def put(state: Cluster, name: str, cpu: int, *, queue: str = "a", user: str = "") -> None:
    notes = {wellknown.SUBMITTED_BY: user} if user else {}
    job = gang(name, queue=queue, cpu=cpu, running_on=["n1"], annotations=notes)
    state.job_table.set_group(job.group)
    for pod in job.pods:
        state.set_pod(pod)


def end(state: Cluster, name: str) -> None:
    state.delete_pod(f"default-{name}-0")
    state.job_table.delete_group("default", name)


def test_a_half_life_after_it_ended_a_job_counts_half() -> None:
    state = a_cluster()
    later(state, 0)
    put(state, "j", 8)
    later(state, DAY)
    end(state, "j")
    past = later(state, 2 * DAY)
    # One day of 8 cores, the day being the half-life: 8 * (1 - 1/2), and half of that a day later.
    assert cores(past, QUEUE, "a", DAY) == 4.0
    assert cores(past, QUEUE, "a", 2 * DAY) == 2.0
    assert dict(past.shares(state.node_table.total_r, START + 2 * DAY))[QUEUE, "a"] == 0.2


def test_a_mean_is_the_decayed_resource_seconds_by_their_weight() -> None:
    state = a_cluster()
    later(state, 0)
    put(state, "j", 3)
    past = later(state, 5 * HOUR)
    # The integral of 3 * 2 ** -(age / half-life) over five hours, in core-seconds.
    seconds = 3 * DAY / math.log(2) * (1 - 2 ** (-5 / 24))
    assert cores(past, QUEUE, "a", 5 * HOUR) * DAY / math.log(2) == pytest.approx(seconds)


def test_the_user_of_a_job_is_its_submitter_or_its_namespace() -> None:
    state = a_cluster()
    later(state, 0)
    put(state, "j", 2, user="alice")
    put(state, "k", 4)
    past = later(state, DAY)
    assert cores(past, USER, "alice", DAY) == 1.0
    assert cores(past, USER, "default", DAY) == 2.0
    assert cores(past, NAMESPACE, "default", DAY) == 3.0


def test_usage_of_existing_jobs_counts_from_the_start_of_the_history() -> None:
    state = a_cluster(jobs=[gang("j", queue="a", cpu=4, running_on=["n1"])])
    later(state, 0)
    assert cores(later(state, DAY), QUEUE, "a", DAY) == 2.0


def test_a_job_that_changes_queue_keeps_past_usage_in_the_old_queue() -> None:
    state = a_cluster()
    later(state, 0)
    put(state, "j", 4, queue="a")
    later(state, DAY)
    put(state, "j", 4, queue="b")
    past = later(state, 2 * DAY)
    assert cores(past, QUEUE, "a", 2 * DAY) == 1.0
    assert cores(past, QUEUE, "b", 2 * DAY) == 2.0


def test_a_changed_half_life_applies_from_then_on() -> None:
    state = a_cluster()
    later(state, 0)
    put(state, "j", 8)
    later(state, DAY)
    end(state, "j")
    later(state, DAY, half_life_s=HOUR)
    assert cores(later(state, DAY + HOUR, HOUR), QUEUE, "a", DAY + HOUR) == 2.0


Steps = list[tuple[int, int, int]]
steps = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 2), st.integers(0, 4)), min_size=1, max_size=12
)
"""Minutes since the step before, which of three jobs, and its new size (0: it ends)."""


def play(state: Cluster, script: Steps, half_life_s: float) -> int:
    """Play a script; return its minutes."""
    at = 0
    later(state, 0, half_life_s)
    for minutes, job, size in script:
        at += minutes
        later(state, at * 60.0, half_life_s)
        end(state, f"j{job}")
        if size:
            put(state, f"j{job}", size)
    return at


@given(steps, st.integers(1, 50))
def test_law_the_closed_form_is_what_adding_up_minute_by_minute_gives(
    script: Steps, half_life_h: int
) -> None:
    half_life_s = half_life_h * HOUR
    state = a_cluster()
    end_at = play(state, script, half_life_s) + 7
    past = later(state, end_at * 60.0, half_life_s)
    held: dict[int, int] = {}
    due = [(0, 0, 0), *script]
    mean, at, kept = 0.0, 0, 2.0 ** (-60.0 / half_life_s)
    for minutes, job, size in [*due[1:], (end_at - sum(s[0] for s in script), 0, -1)]:
        for _ in range(minutes):
            mean = mean * kept + sum(held.values()) * (1 - kept)
            at += 1
        if size >= 0:
            held[job] = size
    assert at == end_at
    assert cores(past, QUEUE, "a", end_at * 60.0) == pytest.approx(mean, rel=1e-9, abs=1e-12)


@given(
    st.permutations([(0, 1), (1, 2), (2, 3), (3, 4)]),
    st.permutations([0, 1, 2, 3]),
    st.integers(1, 10_000),
)
def test_law_the_order_of_events_at_one_time_does_not_matter(
    comes: list[tuple[int, int]], goes: list[int], seconds: int
) -> None:
    def run(comes: list[tuple[int, int]], goes: list[int]) -> list[history.Past]:
        state = a_cluster()
        later(state, 0)
        for job, size in comes:
            put(state, f"j{job}", size, user=f"u{job % 2}")
        later(state, seconds)
        state.refresh()
        for job in goes[:2]:
            end(state, f"j{job}")
        state.refresh()
        for job in goes[2:]:
            end(state, f"j{job}")
        return list(later(state, 2.0 * seconds).seen_at(START + 3.0 * seconds))

    assert run(comes, goes) == run(sorted(comes), sorted(goes))


@given(steps)
def test_law_a_restored_history_is_equal_bit_for_bit(script: Steps) -> None:
    state = a_cluster()
    at = play(state, script, DAY) * 60.0
    past = later(state, at + 5)
    written = past.exact(state.jobs)
    twin = a_cluster()
    for job, task in ((j, t) for j in state.jobs.values() for t in j.tasks.values()):
        put(twin, job.name, int(task.klass.request_r[CPU]) // 1000)
    changes.apply(twin, Elapsed(past.at, DAY))
    changes.apply(twin, Recalled(past.at, written))
    for each in (state, twin):
        end(each, "j1")
        put(each, "j2", 1)
    one, other = later(state, at + 99.5), later(twin, at + 99.5)
    assert list(one.seen_at(START + at + 100)) == list(other.seen_at(START + at + 100))


def test_history_loaded_late_is_decayed_and_added() -> None:
    state = a_cluster()
    later(state, 0)
    put(state, "j", 4)
    past = later(state, DAY)
    told = history.Past(QUEUE, "a", {"cpu": 8000.0, "nonsense": 5.0, "memory": math.inf})
    changes.apply(state, Recalled(START, (told, history.Past("planet", "x", {"cpu": 1.0}))))
    assert cores(past, QUEUE, "a", DAY) == 2.0 + 4.0
    assert {level for level, _ in past.accounts} <= {QUEUE, NAMESPACE, USER}


def test_usage_accounts_are_bounded_and_the_smallest_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "MAX_ACCOUNTS", 2)
    state = a_cluster()
    later(state, 0)
    for number, cpu in enumerate((1, 3, 2)):
        put(state, f"j{number}", cpu, user=f"u{number}")
    later(state, HOUR)
    for number in range(3):
        end(state, f"j{number}")
    put(state, "now", 1, user="new")
    later(state, HOUR)
    changes.apply(state, Elapsed(START + HOUR, DAY, True))
    assert state.job_table.history is not None
    users = {name for level, name in state.job_table.history.accounts if level == USER}
    assert users == {"u1", "new"}, "who holds something is never forgotten"


def test_negligible_usage_accounts_are_dropped() -> None:
    state = a_cluster()
    later(state, 0)
    put(state, "j", 1, user="u")
    later(state, HOUR)
    end(state, "j")
    past = later(state, 30 * DAY)
    changes.apply(state, Elapsed(START + 30 * DAY, DAY, True))
    assert not past.accounts


def test_a_resource_added_later_is_counted() -> None:
    state = a_cluster()
    later(state, 0)
    put(state, "j", 1)
    later(state, HOUR)
    for number in range(40):
        state.dimensions.intern(f"example.com/card-{number}")
    state._fit_rows()
    job = gang("k", queue="a", running_on=["n1"], requests={"example.com/card-39": 2})
    state.job_table.set_group(job.group)
    state.set_pod(job.pods[0])
    past = later(state, HOUR + DAY)
    row = state.dimensions.row("example.com/card-39")
    assert past.mean_r((QUEUE, "a"), START + HOUR + DAY)[row] == 1000.0
    assert np.isfinite(past.mean_r((QUEUE, "a"), START)).all()


def test_a_very_long_name_does_not_fill_the_history() -> None:
    state = a_cluster()
    later(state, 0)
    put(state, "j", 2, user="u" * 200_000)
    past = later(state, DAY)
    assert cores(past, USER, "u" * 253, DAY) == 1.0
    changes.apply(state, Recalled(START, (history.Past(USER, "v" * 200_000, {"cpu": 1.0}),)))
    assert max(len(name) for _, name in past.accounts) == 253
