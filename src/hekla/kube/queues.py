"""Create the queues that must exist: `root` and the default queue."""

from __future__ import annotations

import logging
from collections.abc import Callable

from hekla.api.volcano.queues import builtin_queue
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, KubeError
from hekla.kube.resources import QUEUES
from hekla.units.clock import Clock
from hekla.units.objects import Object

log = logging.getLogger("hekla.kube")


async def ensure_queue(
    client: Client,
    clock: Clock,
    name: str,
    *,
    is_known: Callable[[], bool],
    retry_s: Callable[[int], float],
) -> Object | None:
    """Create a queue unless it exists, and return what was created.

    A failure is retried after `retry_s(failures)`: on a new cluster the webhooks may start last.
    """
    failures = 0
    while not is_known():
        try:
            return await client.create(QUEUES, builtin_queue(name))
        except AlreadyExists:
            return None
        except KubeError as error:
            log.warning("queue %s is missing and cannot be created yet: %s", name, error)
        failures += 1
        await clock.sleep(retry_s(failures))
    return None
