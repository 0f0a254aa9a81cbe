"""The load collector: polls the load of nodes and changes the cluster state with each round.

A slow or broken source never delays a decision: a round has a time limit and ends before the next
begins, and the last readings count until they are stale. The log reports once that a source fails
and once that it answers again. The metrics `hekla_load_*` show how fresh readings are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

from hekla.kube.client import Client
from hekla.kube.credentials import Auth, FixedCredentials, with_password
from hekla.kube.errors import ApiError, KubeError, NotFound
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.retries import NO_RETRIES
from hekla.kube.transport import Transport
from hekla.scheduler.framework.config import Config
from hekla.scheduler.framework.load_source import ADAPTOR, METRICS_API, MetricsSource
from hekla.scheduler.service.cache import Cache
from hekla.scheduler.service.load.sources import BadAnswer, Known, Source, make
from hekla.scheduler.service.metrics import SchedulerMetrics
from hekla.scheduler.state.changes import Measured
from hekla.scheduler.state.dimensions import CPU, MEMORY
from hekla.scheduler.state.load import STALE_S, USAGE_PERIOD_S, ByPeriod
from hekla.units.clock import Clock

log = logging.getLogger("hekla.scheduler")

ROUND_S: Final = 10.0
"""The time limit of one round of requests; less if rounds are closer together."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""The size limit of one response; ten thousand nodes need about 3 MiB."""
_SERVED_BY: Final = {
    METRICS_API: "metrics-server",
    ADAPTOR: "the Prometheus adapter, with rules for node_cpu_usage_avg and node_memory_usage_avg",
}


class Collector:
    """Polls the source that the configuration names."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        clock: Clock,
        metrics: SchedulerMetrics,
        at_rest: asyncio.Event,
        wake: Callable[[], None],
    ) -> None:
        self._client = client
        self._cache = cache
        self._clock = clock
        self._metrics = metrics
        self._at_rest = at_rest
        self._wake = wake
        self._config: Config | None = None
        self._is_urgent = False
        """Whether a plugin needs loads even if no job is pending."""
        self._wanted: tuple[MetricsSource, frozenset[int]] | None = None
        self._changed = asyncio.Event()
        self._problem = ""

    def configured(self, config: Config) -> None:
        """Poll the source of this configuration from now on. Called before each cycle."""
        if config is self._config:
            return
        self._config = config
        asked = [option.make().load_period_s for tier in config.tiers for option in tier]
        looks = [period_s for period_s in asked if period_s is not None]
        self._is_urgent = bool(looks)
        periods_s = frozenset((USAGE_PERIOD_S, *looks))
        wanted = None if config.metrics is None else (config.metrics, periods_s)
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed.set()

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            self._changed.clear()
            if self._wanted is None:
                await self._changed.wait()
                continue
            settings, periods_s = self._wanted
            async with AsyncExitStack() as stack:
                transport = await self._transport(settings, stack)
                await self._follow(settings, make(settings, periods_s), transport)

    async def _follow(self, settings: MetricsSource, source: Source, transport: Transport) -> None:
        """Poll one source until the configuration changes."""
        changed = asyncio.create_task(self._changed.wait())
        try:
            while not changed.done():
                await self._round(settings, source, transport)
                pause = asyncio.create_task(self._clock.sleep(settings.interval_s))
                try:
                    await asyncio.wait((changed, pause), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    pause.cancel()
        finally:
            changed.cancel()

    async def _transport(self, settings: MetricsSource, stack: AsyncExitStack) -> Transport:
        if settings.is_in_cluster:
            return self._client.transport
        auth = Auth()
        if settings.username:
            auth = with_password(auth, settings.username, settings.password)
        target = ClusterConfig(
            settings.address,
            insecure=settings.insecure,
            credentials=FixedCredentials(auth),
        )
        transport = Transport(
            target, component="scheduler", retry=NO_RETRIES, max_connections=2, clock=self._clock
        )
        stack.push_async_callback(transport.close)
        return transport

    # --- one round ----------------------------------------------------------------------------

    async def _round(self, settings: MetricsSource, source: Source, transport: Transport) -> None:
        try:
            found = await self._fetched(settings, source, transport)
        except (KubeError, BadAnswer, TimeoutError) as error:
            self._failed(settings, _problem(settings, error))
            return
        except Exception as error:  # an error of hekla itself must not end the polling
            log.exception("reading the load of nodes from %s failed", settings.name)
            self._failed(settings, type(error).__name__)
            return
        if not any(found.values()):
            self._failed(settings, "it knows none of the cluster's nodes by name")
            return
        self._metrics.load_read("done")
        if self._problem:
            log.info("%s: answers again", settings.name)
            self._problem = ""
        self._cache.change(Measured(found))
        if self._is_urgent or self._cache.cluster.job_table.pending:
            self._wake()

    async def _fetched(
        self, settings: MetricsSource, source: Source, transport: Transport
    ) -> ByPeriod:
        limit_s = _limit_s(settings)
        sent = [
            transport.send(call, timeout_s=limit_s, max_body_bytes=MAX_BYTES)
            for call in source.ask()
        ]
        async with asyncio.timeout(limit_s):
            answers = await asyncio.gather(*sent)
        await self._at_rest.wait()  # a cycle may rearrange the nodes when it begins
        return source.read(answers, self._known(), self._clock.now())

    def _known(self) -> Known:
        cluster = self._cache.cluster
        nodes, allocatable_rn = cluster.nodes, cluster.matrix.allocatable_rn

        def allocatable(name: str) -> tuple[float, float]:
            column = nodes[name].index
            if column < 0:
                return 0.0, 0.0
            return float(allocatable_rn[CPU, column]), float(allocatable_rn[MEMORY, column])

        return Known(nodes, allocatable)

    def _failed(self, settings: MetricsSource, problem: str) -> None:
        self._metrics.load_read("failed")
        if problem != self._problem:
            log.warning(
                "%s: the load of nodes cannot be read: %s; readings older than %g s do not count",
                settings.name,
                problem,
                STALE_S,
            )
            self._problem = problem


def _problem(settings: MetricsSource, error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_limit_s(settings):g} s"
    if isinstance(error, NotFound) and settings.is_in_cluster:
        return f"this cluster does not serve it; install {_SERVED_BY[settings.type]}"
    if isinstance(error, ApiError) and not settings.is_in_cluster:
        return f"it answers {error.status}"  # the rest of the message is for an API server
    return str(error)


def _limit_s(settings: MetricsSource) -> float:
    return min(ROUND_S, settings.interval_s)
