"""Binds go first; a moment without one is no rest."""

from __future__ import annotations

import asyncio

from hekla.scheduler.turns import REST_S, Turns

LONG_S = 60.0


async def test_who_waits_goes_on_once_binds_have_rested() -> None:
    turns = Turns()
    await turns.rest(LONG_S)
    loop = asyncio.get_running_loop()
    with turns.first():
        waiting = asyncio.create_task(turns.rest(LONG_S))
        await asyncio.sleep(0)
    with turns.first():
        pass
    ended = loop.time()
    assert not waiting.done(), "between two binds there is no rest"
    await waiting
    assert loop.time() - ended >= 0.9 * REST_S


async def test_nobody_waits_longer_than_they_said() -> None:
    turns = Turns()
    with turns.first():
        await turns.rest(0.0)
        with turns.first():
            await turns.rest(0.0)
    turns.stop()
