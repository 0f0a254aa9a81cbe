"""The usage store: keeps the usage history in a ConfigMap, across restarts and leaders.

It is written once a minute while a plugin such as `fairshare` needs it, and read once at the start.
It contains the names of queues, namespaces and users with their usage, and for `vcctl queue top`
(see `api.fairshare`) their shares and what queues deserve.

Note: nothing is written before the stored history was read. Otherwise a server that is unavailable
at our start would cost the history.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from hekla.api.fairshare import QUEUES_KEY, SHARES_KEY, QueueShare, Shares
from hekla.api.wellknown import FAIRSHARE_CONFIG_MAP
from hekla.kube.client import Client
from hekla.kube.errors import KubeError, NotFound
from hekla.kube.resources import CONFIGMAPS
from hekla.scheduler.framework.config import Config
from hekla.scheduler.framework.plan import QueueMetrics
from hekla.scheduler.service.cache import Cache
from hekla.scheduler.service.status_writer import backoff_s
from hekla.scheduler.state.changes import Elapsed, Recalled
from hekla.scheduler.state.usage_history import (
    LEVELS,
    NAMESPACE,
    QUEUE,
    USER,
    History,
    Past,
    dominant,
)
from hekla.units.clock import Clock

log = logging.getLogger("hekla.scheduler")

WRITE_S: Final = 60.0
MAX_BYTES: Final = 640 * 1024
MAX_SHOWN_BYTES: Final = 160 * 1024
"""A ConfigMap holds a MiB: the history, and twice what is shown. If there is too much, the smallest
accounts and shares are left out."""
HISTORY_KEY: Final = "history"


class Written(msgspec.Struct, frozen=True):
    """The key `history`."""

    at: float
    accounts: tuple[Past, ...]


class UsageStore:
    """Reads and writes the usage history of one scheduler."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        clock: Clock,
        namespace: str,
        at_rest: asyncio.Event,
        figures: Callable[[], Mapping[str, QueueMetrics]],
    ) -> None:
        self._client = client
        self._cache = cache
        self._clock = clock
        self._namespace = namespace
        self._at_rest = at_rest
        self._figures = figures
        self._config: Config | None = None
        self._wanted = asyncio.Event()
        self.has_read = asyncio.Event()
        """Whether the stored history was read. From then on it may be overwritten."""

    def configured(self, config: Config, now: float) -> None:
        """Keep a history if this configuration needs it. Called before each cycle."""
        if config is not self._config:
            self._config = config
            asked = (option.make().half_life_s for tier in config.tiers for option in tier)
            self._cache.half_life_s = next((one for one in asked if one is not None), None)
        if self._cache.half_life_s is not None:
            self._cache.advance_history(now)
            self._wanted.set()

    async def run(self) -> None:
        """Run until cancelled."""
        await self._wanted.wait()
        failures = 0
        while not await self._read():
            failures += 1
            await self._clock.sleep(backoff_s(failures))
        self.has_read.set()
        while True:
            await self._clock.sleep(WRITE_S)
            await self._wanted.wait()
            await self.write()

    async def _read(self) -> bool:
        try:
            found = await self._client.find(
                CONFIGMAPS, FAIRSHARE_CONFIG_MAP, namespace=self._namespace
            )
        except KubeError as error:
            log.warning("the usage history cannot be read yet: %s", error)
            return False
        text = ((found or {}).get("data") or {}).get(HISTORY_KEY)
        if text is None:
            return True
        try:
            past = msgspec.json.decode(text, type=Written)
        except (msgspec.DecodeError, RecursionError) as error:
            log.error("%s has no valid history, a new one starts: %s", self._name, error)
            return True
        self._cache.change(Recalled(past.at, past.accounts))
        return True

    async def write(self) -> None:
        """Write the usage history up to now."""
        if self._cache.half_life_s is None:
            self._wanted.clear()
            return
        now = self._clock.now()
        self._cache.change(Elapsed(now, self._cache.half_life_s, tidy=True))
        await self._at_rest.wait()
        history = self._cache.cluster.job_table.history
        if history is None:
            return
        data = {
            HISTORY_KEY: self._history(history, now),
            QUEUES_KEY: self._queues(history, now),
            SHARES_KEY: self._shares(history, now),
        }
        try:
            await self._send(data)
        except KubeError as error:
            log.warning("the usage history could not be written: %s", error)

    async def _send(self, data: dict[str, str]) -> None:
        try:
            await self._client.patch(
                CONFIGMAPS, FAIRSHARE_CONFIG_MAP, {"data": data}, namespace=self._namespace
            )
        except NotFound:
            meta = {"name": FAIRSHARE_CONFIG_MAP, "namespace": self._namespace}
            body: dict[str, Any] = {"metadata": meta, "data": data}
            await self._client.create(CONFIGMAPS, body)

    def _history(self, history: History, now: float) -> str:
        total_r = self._cache.cluster.node_table.total_r
        shares = dict(history.shares(total_r, now))
        past = sorted(history.seen_at(now), key=lambda p: -shares[p.level, p.name])
        while True:
            text = msgspec.json.encode(Written(now, tuple(past)))
            if len(text) <= MAX_BYTES:
                return text.decode()
            past = past[: len(past) // 2]

    def _queues(self, history: History, now: float) -> str:
        cluster, figures = self._cache.cluster, self._figures()
        found = {
            name: QueueShare(
                dominant(history.mean_r((QUEUE, name), now), cluster.node_table.total_r),
                self._deserved(figures[name]) if name in figures else {},
            )
            for name in sorted(cluster.queues)
        }
        text = msgspec.json.encode(found)
        return text.decode() if len(text) <= MAX_SHOWN_BYTES else "{}"

    def _shares(self, history: History, now: float) -> str:
        had = sorted(
            history.shares(self._cache.cluster.node_table.total_r, now), key=lambda one: -one[1]
        )
        while True:
            shown: dict[str, dict[str, float]] = {level: {} for level in LEVELS}
            for (level, name), share in had:
                shown[level][name] = round(share, 6)
            text = msgspec.json.encode(Shares(history.half_life_s, shown[NAMESPACE], shown[USER]))
            if len(text) <= MAX_SHOWN_BYTES:
                return text.decode()
            had = had[: len(had) // 2]

    def _deserved(self, figures: QueueMetrics) -> dict[str, str]:
        finite_r = np.where(np.isfinite(figures.deserved_r), figures.deserved_r, 0.0)
        return self._cache.cluster.dimensions.show(finite_r)

    @property
    def _name(self) -> str:
        return f"ConfigMap {self._namespace}/{FAIRSHARE_CONFIG_MAP}"
