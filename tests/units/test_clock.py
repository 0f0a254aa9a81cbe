"""A manual clock wakes sleepers in order, each at its deadline."""

import asyncio
import time

import pytest

from hekla.units.clock import Clock, ManualClock, SystemClock


async def sleeper(clock: Clock, name: str, seconds: float, story: list[tuple[str, float]]) -> None:
    await clock.sleep(seconds)
    story.append((name, clock.monotonic()))


async def test_sleepers_wake_in_order_and_see_their_own_deadline() -> None:
    clock = ManualClock(start=1000.0)
    story: list[tuple[str, float]] = []
    tasks = [
        asyncio.create_task(sleeper(clock, name, seconds, story))
        for name, seconds in [("late", 3.0), ("first", 1.0), ("second", 1.0), ("never", 9.0)]
    ]
    await clock.advance(5)
    assert story == [("first", 1.0), ("second", 1.0), ("late", 3.0)]
    assert clock.now() == 1005.0
    assert clock.sleepers == 1
    await clock.advance(4)
    assert story[-1] == ("never", 9.0)
    await asyncio.gather(*tasks)


async def test_sleeper_that_sleeps_again_wakes_within_one_advance() -> None:
    clock = ManualClock(start=0.0)
    ticks: list[float] = []

    async def ticker() -> None:
        while True:
            await clock.sleep(10)
            ticks.append(clock.now())

    task = asyncio.create_task(ticker())
    await clock.advance(35)
    assert ticks == [10.0, 20.0, 30.0]
    task.cancel()
    await clock.settle()
    assert clock.sleepers == 0


async def test_cancelled_sleepers_are_skipped() -> None:
    clock = ManualClock()
    story: list[tuple[str, float]] = []
    gone = asyncio.create_task(sleeper(clock, "gone", 1, story))
    stays = asyncio.create_task(sleeper(clock, "stays", 2, story))
    await clock.settle()
    gone.cancel()
    await clock.settle()
    assert await clock.advance_to_next()
    assert story == [("stays", 2.0)]
    assert not await clock.advance_to_next()
    await stays


async def test_zero_sleep_returns_at_once() -> None:
    clock = ManualClock()
    await clock.sleep(0)
    await clock.sleep(-1)
    assert clock.monotonic() == 0


async def test_time_never_goes_back() -> None:
    clock = ManualClock()
    with pytest.raises(ValueError, match="cannot go back"):
        await clock.advance(-1)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.skip(-1)
    clock.skip(2)
    assert clock.monotonic() == 2


async def test_the_system_clock_is_the_machines() -> None:
    clock: Clock = SystemClock()
    before = time.time()
    await clock.sleep(-1)
    assert before <= clock.now() <= time.time()
    assert clock.monotonic() <= time.monotonic()


async def test_next_deadline_is_reached_despite_rounding() -> None:
    clock = ManualClock()
    await clock.advance(0.02)
    sleeping = asyncio.create_task(clock.sleep(0.876))
    await clock.advance(0.299)
    assert 0.319 + (0.896 - 0.319) < 0.896, "numbers for which it matters"
    assert await clock.advance_to_next()
    assert sleeping.done()
