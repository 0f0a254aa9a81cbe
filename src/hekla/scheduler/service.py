"""The scheduler as a running part: watches in, effects out to the API server.

A change wakes it; what changes shortly after is gathered and decided together. There is no tick:
on a cluster where nothing happens it does nothing. The decision itself is `core.decide`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from pathlib import Path

from hekla.api import wellknown
from hekla.kube.client import Client
from hekla.kube.recorder import EventRecorder
from hekla.scheduler import config
from hekla.scheduler.cache import Cache
from hekla.scheduler.cluster import Cluster
from hekla.scheduler.config import Config
from hekla.scheduler.core import decide
from hekla.scheduler.discovery import discover
from hekla.scheduler.effects import Performer
from hekla.scheduler.errors import ConfigError
from hekla.scheduler.explain import Verdict
from hekla.scheduler.plugin import Registry
from hekla.units.clock import Clock, SystemClock

log = logging.getLogger("hekla.scheduler")

# A burst is gathered as long as more keeps coming, but a single pod waits only this long.
GATHER_S = 0.005
GATHER_MOST_S = 0.04
GATHER_LONGEST_S = 1.0
# Deadlines (sla) pass without any event; while jobs wait for one, look this often.
DEADLINE_POLL_S = 1.0
CONFIG_POLL_S = 1.0
RETRY_S = 1.0


class Scheduler:
    """One scheduler, for pods that name it in `spec.schedulerName`."""

    def __init__(
        self,
        client: Client,
        *,
        name: str = wellknown.DEFAULT_SCHEDULER,
        conf: Path | None = None,
        registry: Registry | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._clock: Clock = clock or SystemClock()
        self._registry = registry or discover()
        self._conf = conf
        self._name = name
        self._changed = asyncio.Event()
        self.cluster = Cluster(scheduler_names=(name,))
        self.config: Config = config.default(self._registry)
        self.verdicts: dict[str, Verdict] = {}
        """Why each job that waits does, as of the last cycle that looked at it."""
        self.cycles = 0
        self.plugin_failures: dict[str, int] = {}
        self._failed_at: float | None = None
        self._cycle_s = 0.0
        self._file_text: str | None = None
        self._tried_text: str | None = None
        self._cache = Cache(client, self.cluster, self._changed.set, clock=self._clock)
        self._recorder = EventRecorder(client, component=name, clock=self._clock)
        self._performer = Performer(
            client, self._cache, self._recorder, self._clock, self._changed.set
        )

    async def run(self) -> None:
        """Until cancelled."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._recorder)
            stack.push_async_callback(self._performer.stop)
            await self._cache.start(stack)
            if self._conf is not None:
                watcher = asyncio.create_task(self._watch_file(self._conf))
                stack.callback(watcher.cancel)
            log.info("scheduler %s: %d nodes", self._name, len(self.cluster.nodes))
            while True:
                await self._until_something_is_due()
                self.cycle()

    async def _until_something_is_due(self) -> None:
        waits = [w for w in (self._performer.next_due_s(), self._deadline_s()) if w is not None]
        try:
            async with asyncio.timeout(min(waits, default=None)):
                await self._changed.wait()
        except TimeoutError:
            return
        # A cycle that takes long (thousands of jobs wait) must leave time for everything else.
        await asyncio.sleep(min(self._cycle_s, GATHER_LONGEST_S))
        gathered_s = 0.0
        while self._changed.is_set() and gathered_s < GATHER_MOST_S:
            self._changed.clear()
            await asyncio.sleep(GATHER_S)
            gathered_s += GATHER_S

    def _deadline_s(self) -> float | None:
        if self._failed_at is not None:
            return RETRY_S
        has_deadlines = any(o.plugin.name == "sla" for tier in self.config.tiers for o in tier)
        return DEADLINE_POLL_S if has_deadlines and self.cluster.waiting else None

    def cycle(self) -> None:
        """Decide once, and begin to do it."""
        self._changed.clear()
        self._read_config()
        self.cycles += 1
        started_s = time.perf_counter()
        try:
            plan = decide(
                self.cluster,
                self.config,
                self._clock.now(),
                stopwatch=time.perf_counter,
                skipped=self._performer.skipped(),
            )
        except Exception:  # our own mistake must not end scheduling: say it, and try again later
            log.exception("a cycle failed; nothing was changed, trying again")
            self._failed_at = self._clock.monotonic()
            return
        self._failed_at = None
        self._cycle_s = time.perf_counter() - started_s
        self._remember(plan.verdicts)
        self.cluster.settled()
        for failure in plan.failures:
            count = self.plugin_failures.get(failure.plugin, 0) + 1
            self.plugin_failures[failure.plugin] = count
            log.error(
                "plugin %s failed in %s and lost its vote for this cycle (%d times so far): %s",
                failure.plugin,
                failure.hook,
                count,
                failure.error,
            )
        self._performer.start(plan)

    def _remember(self, verdicts: dict[str, Verdict]) -> None:
        waiting = self.cluster.waiting
        self.verdicts = {k: v for k, v in self.verdicts.items() if k in waiting}
        for key in waiting:
            self.verdicts.pop(key, None)
        self.verdicts.update(verdicts)
        self._performer.forget_jobs(self.cluster.jobs)

    # --- configuration ------------------------------------------------------------------------

    def _read_config(self) -> None:
        """Take over a configuration that changed; the last good one stays if it is wrong."""
        text = self._cache.config_text if self._conf is None else self._file_text
        if text == self._tried_text:
            return
        self._tried_text = text
        if text is None:
            self.config = config.default(self._registry)
            return
        try:
            self.config = config.parse(text, self._registry)
        except ConfigError as error:
            log.error("%s is refused, the last good one stays: %s", self._config_name(), error)
            return
        for warning in self.config.warnings:
            log.warning("%s: %s", self._config_name(), warning)
        log.info("%s is in force: %s", self._config_name(), ", ".join(self.config.actions))

    def _config_name(self) -> str:
        if self._conf is not None:
            return str(self._conf)
        return f"ConfigMap {wellknown.SYSTEM_NAMESPACE}/{wellknown.SCHEDULER_CONFIG_MAP}"

    async def _watch_file(self, path: Path) -> None:
        while True:
            try:
                text = await asyncio.to_thread(path.read_text)
            except (OSError, UnicodeDecodeError) as error:
                log.error("%s cannot be read, the last good one stays: %s", path, error)
            else:
                if text != self._file_text:
                    self._file_text = text
                    self._changed.set()
            await self._clock.sleep(CONFIG_POLL_S)
