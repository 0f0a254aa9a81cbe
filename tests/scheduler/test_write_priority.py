"""Binds have priority; a moment without a bind is no pause."""

from __future__ import annotations

import asyncio

from hekla.scheduler.service.write_priority import REST_S, WritePriority

LONG_S = 60.0


async def test_writers_continue_after_a_pause_of_binds() -> None:
    first = WritePriority()
    await first.rest(LONG_S)
    loop = asyncio.get_running_loop()
    with first.in_flight():
        waiting = asyncio.create_task(first.rest(LONG_S))
        await asyncio.sleep(0)
    with first.in_flight():
        pass
    ended = loop.time()
    assert not waiting.done(), "between two binds there is no rest"
    await waiting
    assert loop.time() - ended >= 0.9 * REST_S


async def test_a_writer_waits_at_most_its_limit() -> None:
    first = WritePriority()
    with first.in_flight():
        await first.rest(0.0)
        with first.in_flight():
            await first.rest(0.0)
    first.stop()
