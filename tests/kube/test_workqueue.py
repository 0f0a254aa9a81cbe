"""The work queue: unique keys, no concurrent processing of a key, no lost add."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.kube import workqueue
from hekla.kube.workqueue import QueueClosed, WorkQueue, run_workers
from hekla.units.clock import ManualClock


@pytest.fixture
def queue(clock: ManualClock) -> WorkQueue[str]:
    return WorkQueue(clock=clock, random=Random(1), base_delay_s=1.0, max_delay_s=8.0)


async def take_all(queue: WorkQueue[str]) -> list[str]:
    taken = []
    while len(queue):
        taken.append(await queue.get())
        queue.done(taken[-1])
    return taken


async def test_keys_come_out_in_order_of_arrival_once_each(queue: WorkQueue[str]) -> None:
    for key in ("a", "b", "a", "c", "b"):
        queue.add(key)
    assert await take_all(queue) == ["a", "b", "c"]
    assert queue.stats.merged == 2


async def test_key_added_during_processing_is_processed_once_more(
    queue: WorkQueue[str],
) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await take_all(queue) == ["a"]


async def test_get_waits_for_an_add(queue: WorkQueue[str], clock: ManualClock) -> None:
    waiter = asyncio.create_task(queue.get())
    await clock.settle()
    assert not waiter.done()
    queue.add("a")
    assert await waiter == "a"


async def test_key_of_a_cancelled_getter_goes_to_the_next(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await clock.settle()
    queue.add("a")  # wakes the first getter, which is cancelled before it runs
    first.cancel()
    assert await asyncio.wait_for(second, 60) == "a"


async def test_delayed_key_is_ready_after_its_delay(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    queue.add_after("a", 10)
    await clock.advance(9.9)
    assert len(queue) == 0
    await clock.advance(0.2)
    assert await take_all(queue) == ["a"]


async def test_of_several_delays_the_earliest_counts(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    queue.add_after("a", 10)
    queue.add_after("a", 2)
    queue.add_after("a", 5)
    await clock.advance(2)
    assert await take_all(queue) == ["a"]
    await clock.advance(20)
    assert len(queue) == 0


async def test_earlier_key_does_not_wait_for_a_later_timer(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    queue.add_after("late", 100)
    await clock.settle()
    queue.add_after("soon", 1)
    await clock.advance(1)
    assert await take_all(queue) == ["soon"]
    await clock.advance(99)
    assert await take_all(queue) == ["late"]


async def test_processing_now_does_not_cancel_a_delay(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    queue.add_after("a", 10)
    queue.add("a")
    queue.add_after("a", 15)
    assert await take_all(queue) == ["a"]
    await clock.advance(10)
    assert await take_all(queue) == ["a"]


async def test_back_off_doubles_up_to_a_limit_and_resets(
    queue: WorkQueue[str],
) -> None:
    waits = []
    for _ in range(8):
        waits.append(queue.retry("a"))
        queue.add("a")
        await take_all(queue)
    for step, wait in enumerate(waits):
        assert min(8.0, 2.0**step) / 2 <= wait <= min(8.0, 2.0**step)
    assert queue.failures("a") == 8
    queue.forget("a")
    assert queue.retry("a") <= 1.0
    queue.shutdown()


async def test_failures_are_remembered_for_a_bounded_number_of_keys(
    queue: WorkQueue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workqueue, "MAX_FAILING_KEYS", 2)
    for key in ("a", "b", "c"):
        queue.retry(key)
    assert [queue.failures(key) for key in ("a", "b", "c")] == [0, 1, 1]
    queue.shutdown()


async def test_repeated_delays_do_not_accumulate(queue: WorkQueue[str]) -> None:
    for number in range(10_000):
        queue.add_after("a", 20_000 - number)
    assert len(queue._heap) < 100
    queue.shutdown()


async def test_done_without_get_raises(queue: WorkQueue[str]) -> None:
    with pytest.raises(ValueError, match="'a'"):
        queue.done("a")


async def test_shutdown_returns_ready_keys_and_drops_delayed_ones(
    queue: WorkQueue[str],
) -> None:
    queue.add("a")
    queue.add_after("later", 5)
    queue.shutdown()
    queue.add("too late")
    assert await queue.get() == "a"
    queue.done("a")
    with pytest.raises(QueueClosed):
        await queue.get()


async def test_a_key_added_during_its_processing_before_shutdown_is_still_processed(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    seen: list[str] = []

    async def handler(key: str) -> None:
        seen.append(key)
        if len(seen) == 1:
            queue.add("a")
            queue.shutdown()
            await clock.sleep(1)

    queue.add("a")
    workers = asyncio.create_task(run_workers(queue, handler, 2))
    await clock.advance(1)
    await asyncio.wait_for(workers, 60)
    assert seen == ["a", "a"]


async def test_failing_handler_is_retried_and_its_error_logged(
    queue: WorkQueue[str], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    async def handler(key: str) -> None:
        calls.append(key)
        if len(calls) < 3:
            raise RuntimeError("not yet")

    queue.add("a")
    workers = asyncio.create_task(run_workers(queue, handler, 1))
    await clock.settle()
    assert calls == ["a"]
    await clock.advance(10)
    assert calls == ["a", "a", "a"]
    assert queue.failures("a") == 0
    assert "a failed 2 times in a row" in caplog.text
    queue.shutdown()
    await workers


async def test_handler_that_returns_seconds_is_called_again_after_them(
    queue: WorkQueue[str], clock: ManualClock
) -> None:
    times: list[float] = []

    async def handler(key: str) -> float | None:
        times.append(clock.monotonic())
        return 30.0 if len(times) < 3 else None

    queue.add("a")
    workers = asyncio.create_task(run_workers(queue, handler, 1))
    await clock.advance(1000)
    assert times == [0.0, 30.0, 60.0]
    queue.shutdown()
    await workers


async def test_drained_waits_for_keys_in_process(queue: WorkQueue[str], clock: ManualClock) -> None:
    queue.add("a")
    key = await queue.get()
    waiter = asyncio.create_task(queue.drained())
    await clock.settle()
    assert not waiter.done()
    queue.done(key)
    await asyncio.wait_for(waiter, 60)


KEYS = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), KEYS, st.just(0.0)),
        st.tuples(st.just("add_after"), KEYS, st.floats(0.1, 5.0)),
        st.tuples(st.just("wait"), KEYS, st.floats(0.0, 4.0)),
    ),
    max_size=40,
)


async def law(steps: list[tuple[str, str, float]], workers: int, work: list[float]) -> None:
    clock = ManualClock()
    queue: WorkQueue[str] = WorkQueue(clock=clock, random=Random(1))
    in_hand: set[str] = set()
    owed: dict[str, float] = {}  # key -> it must be started at or after this time
    due: dict[str, float] = {}
    fails = any(duration > 2 for duration in work)
    durations = iter(work * 1000)
    started: dict[str, float] = {}

    async def handler(key: str) -> float | None:
        assert key not in in_hand, "one key with two workers"
        in_hand.add(key)
        started[key] = clock.monotonic()
        duration = next(durations)
        await clock.sleep(duration)
        in_hand.discard(key)
        if duration > 2:
            raise RuntimeError("this one fails and is retried")
        return None

    def settle_debts() -> None:
        for each, at in due.items():
            # The retry of a failure may replace this delay, so none is owed.
            if at <= clock.monotonic() and not fails:
                owed[each] = max(owed.get(each, 0.0), at)

    running = asyncio.create_task(run_workers(queue, handler, workers))
    for action, key, number in steps:
        if action == "add":
            queue.add(key)
            owed[key] = max(owed.get(key, 0.0), clock.monotonic())
        elif action == "add_after":
            queue.add_after(key, number)
            wanted = clock.monotonic() + number
            if key not in due or due[key] <= clock.monotonic() or wanted < due[key]:
                due[key] = wanted
        else:
            await clock.advance(number)
        settle_debts()
    await clock.advance(10_000)
    settle_debts()
    for key, since in owed.items():
        assert started.get(key, -1.0) >= since, f"an add of {key} was lost"
    assert len(queue) == queue.processing == queue.delayed == 0
    queue.shutdown()
    await running


@settings(max_examples=200, deadline=None)
@given(STEPS, st.integers(1, 3), st.lists(st.floats(0.0, 3.0), min_size=1, max_size=5))
def test_no_key_is_processed_concurrently_and_no_add_is_lost(
    steps: list[tuple[str, str, float]], workers: int, work: list[float]
) -> None:
    if all(duration > 2 for duration in work):
        work = [*work, 0.5]
    asyncio.run(law(steps, workers, work))


def test_law_detects_a_queue_that_loses_adds(monkeypatch: Any) -> None:
    monkeypatch.setattr(WorkQueue, "done", lambda self, key: self._processing.discard(key))
    steps = [("add", "a", 0.0), ("wait", "a", 1.0), ("add", "a", 0.0)]
    with pytest.raises(AssertionError, match="lost"):
        asyncio.run(law(steps, 1, [2.0]))
