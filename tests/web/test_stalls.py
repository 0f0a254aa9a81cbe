"""A step that holds the event loop is measured and logged with its stack."""

from __future__ import annotations

import asyncio
import threading

from hekla.web import stalls
from hekla.web.metrics import Registry
from hekla.web.stalls import StallWatch


def count() -> float:
    samples = [each for family in stalls.STALLS.collect() for each in family.samples]
    return next(each.value for each in samples if each.name.endswith("_count"))


def hold_the_loop(until: threading.Event) -> None:
    until.wait(30)


async def test_step_that_holds_the_loop_is_reported_with_its_stack() -> None:
    reported = threading.Event()
    stacks: list[tuple[str, int]] = []

    def report(stack: str, unlogged: int) -> None:
        stacks.append((stack, unlogged))
        reported.set()

    before = count()
    watch = StallWatch(asyncio.get_running_loop(), bound_s=0.01, report=report)
    watch.start()
    hold_the_loop(reported)  # the loop stands still until the watch has seen it
    await asyncio.sleep(0)  # now it gives the sign of life
    watch.stop()
    await asyncio.to_thread(watch._thread.join)
    assert count() > before
    assert "hold_the_loop" in stacks[0][0]


async def test_stalls_in_a_row_are_logged_once_and_counted() -> None:
    moments = iter(range(1_000))
    stacks: list[int] = []
    watch = StallWatch(
        asyncio.get_running_loop(),
        now=lambda: float(next(moments)),
        report=lambda stack, unlogged: stacks.append(unlogged),
    )
    for _ in range(30):
        watch._stalled()
    assert len(stacks) < 10
    assert sum(stacks) + len(stacks) <= 30
    assert all(unlogged > 0 for unlogged in stacks[1:])


def test_every_registry_of_the_process_serves_the_histogram() -> None:
    for registry in (Registry(), Registry()):
        assert b"hekla_loop_stall_seconds_bucket" in registry.render()
