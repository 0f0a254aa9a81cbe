"""The client of coroutines that give none: one for each event loop, closed when the loop ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from weakref import WeakKeyDictionary

from hekla.kube import cluster_choice
from hekla.kube.client import Client

_Held = tuple[Client, AsyncGenerator[Client, None]]
_held: WeakKeyDictionary[asyncio.AbstractEventLoop, _Held] = WeakKeyDictionary()


async def default_client() -> Client:
    """Return the event loop's client of the cluster that the commands use.

    The cluster is chosen when the loop first needs it, by the rule of `hekla.kube.cluster_choice`.
    """
    loop = asyncio.get_running_loop()
    if loop not in _held:
        opened = _opened(loop)
        _held[loop] = await anext(opened), opened
    return _held[loop][0]


async def _opened(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[Client, None]:
    # A loop that ends, such as asyncio.run's, closes its open generators, and so this client.
    try:
        async with Client(cluster_choice.find(), component="sdk") as client:
            yield client
    finally:
        _held.pop(loop, None)
