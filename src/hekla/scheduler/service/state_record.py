"""The scheduler's record of itself: the configuration in force, its source, and failed plugins.

`hekla config show` and `hekla status` read it from the ConfigMap `hekla-scheduler-state`, where
each scheduler has one key: its name. The leader writes it when it changes.
"""

from __future__ import annotations

import logging
from asyncio import Event
from collections.abc import Callable
from typing import Any, Final

import msgspec

from hekla.api.scheduler_state import SCHEDULER_STATE_CONFIG_MAP, SchedulerState
from hekla.kube.client import Client
from hekla.kube.errors import KubeError, NotFound
from hekla.kube.resources import CONFIGMAPS
from hekla.scheduler.service.status_writer import backoff_s
from hekla.units.clock import Clock

log = logging.getLogger("hekla.scheduler")

WRITE_S: Final = 2.0
"""The shortest time between two writes: a plugin may fail in every cycle."""


class StateRecord:
    """Writes the state of one scheduler. `render` returns the current one."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        namespace: str,
        name: str,
        render: Callable[[], SchedulerState],
    ) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self._render = render
        self._wanted = Event()

    def changed(self) -> None:
        """Request a write."""
        self._wanted.set()

    async def run(self) -> None:
        """Write each change until cancelled."""
        written, failures = "", 0
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            text = msgspec.json.encode(self._render()).decode()
            if text == written:
                continue
            try:
                await self._send(text)
            except KubeError as error:
                failures += 1
                # The record only informs: a missing namespace or right is no failure.
                log.debug("the state of scheduler %s is not recorded: %s", self._name, error)
                self._wanted.set()
                await self._clock.sleep(backoff_s(failures))
                continue
            written, failures = text, 0
            await self._clock.sleep(WRITE_S)

    async def _send(self, text: str) -> None:
        data = {self._name: text}
        try:
            await self._client.patch(
                CONFIGMAPS, SCHEDULER_STATE_CONFIG_MAP, {"data": data}, namespace=self._namespace
            )
        except NotFound:
            meta = {"name": SCHEDULER_STATE_CONFIG_MAP, "namespace": self._namespace}
            body: dict[str, Any] = {"metadata": meta, "data": data}
            await self._client.create(CONFIGMAPS, body)
