"""The running scheduler: watches in, decisions, writes out.

A change wakes it. Changes that follow shortly are gathered and decided together. There is no tick:
an idle cluster costs nothing. `core.decide` runs in a thread, so that leases are renewed and
watches are read meanwhile; their changes are applied after the cycle.

Start it only while the process is the leader (`kube.leases`). It then lists all objects, and so
sees everything that the previous leader wrote.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from hekla.api import wellknown
from hekla.api.scheduler_state import FailedPlugin, SchedulerState
from hekla.kube.client import Client
from hekla.kube.queues import ensure_queue
from hekla.kube.recorder import EventRecorder
from hekla.scheduler.core import decide
from hekla.scheduler.errors import ConfigError
from hekla.scheduler.framework import config
from hekla.scheduler.framework.config import Config
from hekla.scheduler.framework.load_source import without_password
from hekla.scheduler.framework.plan import Plan
from hekla.scheduler.framework.registry import Registry
from hekla.scheduler.framework.verdict import Verdict
from hekla.scheduler.invariants import Breach, breaches
from hekla.scheduler.plugins.discovery import discover
from hekla.scheduler.service.cache import Cache, NodeSelector
from hekla.scheduler.service.checkpoint import checkpoint
from hekla.scheduler.service.decision_log import DecisionLog, Journal
from hekla.scheduler.service.load.collector import Collector
from hekla.scheduler.service.metrics import SchedulerMetrics
from hekla.scheduler.service.performer import Performer
from hekla.scheduler.service.state_record import StateRecord
from hekla.scheduler.service.status_writer import backoff_s
from hekla.scheduler.service.usage_store import UsageStore
from hekla.scheduler.state.changes import Change, Rescheduled, Settled, attempt
from hekla.scheduler.state.cluster import Cluster
from hekla.units.clock import Clock, SystemClock

log = logging.getLogger("hekla.scheduler")

# Changes are gathered while more arrive; a single change waits only this long.
GATHER_S = 0.005
GATHER_MOST_S = 0.04
GATHER_LONGEST_S = 1.0
MAX_VERDICTS_SHOWN = 1000
MAX_BREACHES_SHOWN = 5
# Changes that affect only status are gathered for this long.
NOTICE_S = 0.5
CONFIG_POLL_S = 1.0
RETRY_S = 1.0
# Events are sent after binds; the queue holds those of a burst of this many pods.
MAX_EVENTS = 10_000
# The longest delay of an Event, on a cluster that binds all the time.
EVENTS_WAIT_S = 1.0
# A cycle this long hangs.
STALLED_S = 300.0
MAX_ERROR_SHOWN = 1024
MAX_TRACEBACK_SHOWN = 4096


class Scheduler:
    """A scheduler for pods that name it in `spec.schedulerName`."""

    def __init__(
        self,
        client: Client,
        *,
        names: Sequence[str] = (wellknown.DEFAULT_SCHEDULER,),
        default_queue: str = wellknown.DEFAULT_QUEUE,
        node_selector: NodeSelector = (),
        conf: Path | None = None,
        conf_namespace: str = wellknown.SYSTEM_NAMESPACE,
        registry: Registry | None = None,
        clock: Clock | None = None,
        metrics: SchedulerMetrics | None = None,
        decision_log: DecisionLog | None = None,
        check_invariants: bool = False,
    ) -> None:
        self._client = client
        self._clock: Clock = clock or SystemClock()
        self._default_queue = default_queue
        self._registry = registry or discover()
        self._conf = conf
        self._conf_namespace = conf_namespace
        self._names = tuple(names)
        self._changed = asyncio.Event()
        self._noticed: asyncio.TimerHandle | None = None
        self.cluster = Cluster(scheduler_names=names, default_queue=default_queue)
        self.config: Config = config.default(self._registry)
        self.verdicts: dict[str, Verdict] = {}
        """The verdict of each pending job, from the last cycle that visited it."""
        self.cycles = 0
        self.metrics = metrics or SchedulerMetrics()
        self.plugin_failures: dict[str, int] = {}
        self._failed_plugins: dict[str, FailedPlugin] = {}
        self._failed_at: float | None = None
        self._cycle_s = 0.0
        self._wake_at: float | None = None
        self._cycle_began: float | None = None
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._is_synced = False
        self._file_text: str | None = None
        self._file_problem = ""
        self._tried_text: str | None = None
        self._valid_text: str | None = None
        self._is_default = True
        self._refused = ""
        self._thread: ThreadPoolExecutor | None = None
        self._cache = Cache(
            client,
            self.cluster,
            self._changed.set,
            self._notice,
            clock=self._clock,
            node_selector=node_selector,
            config_namespace=conf_namespace if conf is None else None,
        )
        self._recorder = EventRecorder(
            client,
            component=self._names[0],
            clock=self._clock,
            queue_size=MAX_EVENTS,
            throttle=lambda: self._performer.write_priority.rest(EVENTS_WAIT_S),
        )
        self._performer = Performer(
            client, self._cache, self._recorder, self._clock, self._changed.set, self.metrics
        )
        self._usage_store = UsageStore(
            client,
            self._cache,
            self._clock,
            conf_namespace,
            self._at_rest,
            lambda: self.metrics.figures,
        )
        self._collector = Collector(
            client, self._cache, self._clock, self.metrics, self._at_rest, self._changed.set
        )
        self._state_record = StateRecord(
            client, self._clock, conf_namespace, self._names[0], self.state
        )
        self._check_invariants = check_invariants
        self._journal: Journal | None = None
        if decision_log is not None:
            self._journal = Journal(decision_log, self._cache, self._names, default_queue)

    async def run(self) -> None:
        """Run until cancelled."""
        async with AsyncExitStack() as stack:
            self._thread = stack.enter_context(ThreadPoolExecutor(1, "cycle"))
            await stack.enter_async_context(self._recorder)
            stack.push_async_callback(self._performer.stop)
            if self._conf is not None:
                await self._read_file(self._conf)
                watcher = asyncio.create_task(self._watch_file(self._conf))
                stack.callback(watcher.cancel)
            await self._cache.start(stack)
            # When the previous leader rebalanced nodes is not stored, so assume it was just now.
            self._cache.change(Rescheduled(self._clock.now()))
            if self._journal is not None:
                stack.push_async_callback(self._journal.stop)
                self._journal.start()
            founding = asyncio.create_task(self._ensure_queues())
            stack.callback(founding.cancel)
            keeping = asyncio.create_task(self._usage_store.run())
            stack.callback(keeping.cancel)
            recording = asyncio.create_task(self._state_record.run())
            stack.callback(recording.cancel)
            self._state_record.changed()
            collecting = asyncio.create_task(self._collector.run())
            stack.callback(collecting.cancel)
            stack.callback(self._forget_notice)
            self._is_synced = True
            log.info("scheduler %s: %d nodes", ", ".join(self._names), len(self.cluster.nodes))
            while True:
                await self._until_something_is_due()
                await self._performer.has_capacity()
                await self.cycle()

    async def _ensure_queues(self) -> None:
        """Create `root` and the default queue, as Volcano's scheduler does."""
        for name in (wellknown.ROOT_QUEUE, self._default_queue):
            await ensure_queue(
                self._client,
                self._clock,
                name,
                is_known=partial(self._has_queue, name),
                retry_s=backoff_s,
            )

    def _has_queue(self, name: str) -> bool:
        return name in self.cluster.queues

    async def _until_something_is_due(self) -> None:
        waits = [w for w in (self._performer.next_due_s(), self._deadline_s()) if w is not None]
        try:
            async with asyncio.timeout(min(waits, default=None)):
                await self._changed.wait()
        except TimeoutError:
            return
        # After a long cycle (thousands of pending jobs), leave time for other work.
        await asyncio.sleep(min(self._cycle_s, GATHER_LONGEST_S))
        gathered_s = 0.0
        while self._changed.is_set() and gathered_s < GATHER_MOST_S:
            self._changed.clear()
            await asyncio.sleep(GATHER_S)
            gathered_s += GATHER_S

    def _notice(self) -> None:
        """Request a cycle that is not urgent."""
        if self._noticed is None:
            loop = asyncio.get_running_loop()
            self._noticed = loop.call_later(NOTICE_S, self._changed.set)

    def _forget_notice(self) -> None:
        if self._noticed is not None:
            self._noticed.cancel()
            self._noticed = None

    def _deadline_s(self) -> float | None:
        """Return the time until a cycle starts without a change."""
        if self._failed_at is not None:
            return RETRY_S
        return None if self._wake_at is None else max(self._wake_at - self._clock.now(), 0.0)

    # --- a cycle ------------------------------------------------------------------------------

    async def cycle(self) -> None:
        """Run one cycle, and start to perform its plan."""
        self._changed.clear()
        self._forget_notice()
        self._read_config()
        self.cycles += 1
        now, skipped = self._clock.now(), self._performer.skipped()
        self._usage_store.configured(self.config, now)
        self._collector.configured(self.config)
        if self._journal is not None:
            self._journal.cut(self.cycles, now, self._valid_text, skipped)
        started_s = time.perf_counter()
        try:
            plan = await self._decide(now, skipped)
            self._failed_at = None
            self._wake_at = plan.wake_at
            self._cycle_s = time.perf_counter() - started_s
            news = self._cache.thaw()
            try:
                self._take_over(plan)
            finally:  # also if performing the plan fails to start
                self._make(news)
        except Exception:  # an error of hekla itself must not end scheduling
            log.exception("cycle %d failed; the cluster state is rebuilt", self.cycles)
            self._failed_at = self._clock.monotonic()
            self.metrics.cycle_failed()
            await self._rebuild()
        finally:
            self._make(self._cache.thaw())

    def _make(self, held: Sequence[Change]) -> None:
        for change in held:
            self._cache.change(change)

    async def _decide(self, now: float, skipped: dict[str, str]) -> Plan:
        """Decide in the thread while changes are held back."""
        work = partial(
            decide, self.cluster, self.config, now, stopwatch=time.perf_counter, skipped=skipped
        )
        self._cache.freeze()
        self._at_rest.clear()
        self._cycle_began = self._clock.monotonic()
        deciding = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            return await asyncio.shield(deciding)
        finally:
            if not deciding.done():  # cancelled: the next cycle must not start before this one ends
                await asyncio.wait((deciding,))
            self._cycle_began = None
            self._at_rest.set()

    async def _rebuild(self) -> None:
        """Replace the cluster state, which a failed cycle may have left half-changed.

        The new state is built from the objects that the informers hold, in the thread of the
        cycle, so that leases are renewed meanwhile.
        """

        def build(changes: Sequence[Change]) -> Cluster:
            fresh = Cluster(scheduler_names=self._names, default_queue=self._default_queue)
            for change in changes:
                attempt(fresh, change)
            return fresh

        self._cache.freeze()
        loop = asyncio.get_running_loop()
        try:
            fresh = await loop.run_in_executor(self._thread, build, checkpoint(self._cache))
        except Exception:
            log.exception(
                "the cluster state cannot be rebuilt; scheduling continues on the old one"
            )
            return
        self.cluster = self._cache.cluster = fresh
        if self._journal is not None:
            self._journal.restart()

    def _check(self, plan: Plan) -> None:
        """Check the safety laws on the state that the plan was decided on; log every breach."""
        found: list[Breach] = breaches(self.cluster, self.config, plan)
        for breach in found:
            self.metrics.invariant_broken(breach.law)
        if found:
            kept = None if self._journal is None else self._journal.keep(self.cycles)
            where = f"; replay it: hekla replay {kept} --cycle {self.cycles}" if kept else ""
            shown = "; ".join(str(each) for each in found[:MAX_BREACHES_SHOWN])
            log.error("cycle %d breaks %d safety laws: %s%s", self.cycles, len(found), shown, where)

    def _take_over(self, plan: Plan) -> None:
        """Apply a plan to the state that it was decided on; later changes follow."""
        self._remember(plan.verdicts)
        self.metrics.cycle(plan, self._cycle_s)
        if self._journal is not None:
            self._journal.decided(plan)
        if self._check_invariants:
            self._check(plan)
        self._cache.change(Settled())
        if plan.rescheduled_at is not None:
            self._cache.change(Rescheduled(plan.rescheduled_at))
        for failure in plan.failures:
            count = self.plugin_failures.get(failure.plugin, 0) + 1
            self.plugin_failures[failure.plugin] = count
            self._failed_plugins[failure.plugin] = FailedPlugin(
                failure.plugin,
                count,
                failure.hook,
                failure.error[-MAX_ERROR_SHOWN:],
                failure.traceback[-MAX_TRACEBACK_SHOWN:],
            )
            self._state_record.changed()
            log.error(
                "plugin %s failed in %s and was left out for this cycle (%d times so far): %s\n%s",
                failure.plugin,
                failure.hook,
                count,
                failure.error,
                failure.traceback.rstrip(),
            )
        self._performer.start(plan)

    def _remember(self, verdicts: dict[str, Verdict]) -> None:
        pending = self.cluster.job_table.pending
        kept = {key: one for key, one in self.verdicts.items() if key in pending}
        self.verdicts = kept | verdicts
        self._performer.forget(self.cluster.jobs, self.cluster.tasks)

    # --- health -------------------------------------------------------------------------------

    def unhealthy_reason(self) -> str:
        """Return why this process must be restarted; empty while it works."""
        began = self._cycle_began
        if began is not None and self._clock.monotonic() - began > STALLED_S:
            return f"a cycle has run for more than {STALLED_S:g} s"
        return ""

    def not_ready_reason(self) -> str:
        """Return why the scheduler is not ready; empty once it is."""
        if self._is_synced:
            return ""
        missing = self._cache.problems()
        return "not seen yet: " + ", ".join(
            kind if problem is None else f"{kind} ({problem})" for kind, problem in missing.items()
        )

    def set_leader(self, is_leader: bool) -> None:
        """Record in the metrics whether this process is the leader."""
        self.metrics.set_leader(is_leader)

    def pages(self) -> dict[str, Callable[[], bytes]]:
        """Return JSON pages for dashboards: `/verdicts` of pending jobs, and `/fairshare` with
        usage over time."""
        return {"verdicts": self._render_verdicts, "fairshare": self._render_fairshare}

    def _render_verdicts(self) -> bytes:
        shown = sorted(self.verdicts.items())[:MAX_VERDICTS_SHOWN]
        page = {
            "items": [verdict.to_dict() for _, verdict in shown],
            "leftOff": len(self.verdicts) - len(shown),
        }
        return msgspec.json.encode(page)

    def _render_fairshare(self) -> bytes:
        shares = self.cluster.shares(self._clock.now())
        items = [{"level": level, "name": name, "share": s} for (level, name), s in shares.items()]
        return msgspec.json.encode({"items": items})

    async def render_metrics(self) -> bytes:
        """Return the metrics in Prometheus' text format, after the current cycle."""
        await self._at_rest.wait()
        stats, writes = self._performer.stats, self._performer.status.stats
        effects = {
            ("bind", "done"): stats.bound,
            ("bind", "failed"): stats.bind_failures,
            ("bind", "rolled back"): stats.rolled_back,
            ("evict", "done"): stats.evicted,
            ("evict", "failed"): stats.evict_failures,
            ("status", "done"): writes.writes,
            ("status", "failed"): writes.failures,
        }
        self.metrics.collect(
            self.cluster,
            effects=effects,
            informers=self._cache.informers.values(),
            unsent=self._performer.unsent,
            now=self._clock.now(),
        )
        return self.metrics.registry.render()

    # --- configuration ------------------------------------------------------------------------

    def _read_config(self) -> None:
        """Load a changed configuration; the last valid one stays if it has an error."""
        text = self._cache.config_text if self._conf is None else self._file_text
        if text == self._tried_text:
            return
        self._tried_text = text
        self._refused = ""
        self._state_record.changed()
        if text is None:
            self.config, self._valid_text = config.default(self._registry), None
            self._is_default = True
            return
        try:
            self.config = config.parse(text, self._registry)
        except ConfigError as error:
            self._refused = str(error)
            log.error("%s is refused, the last valid one stays: %s", self._config_name(), error)
            message = f"refused, the last valid configuration stays in force: {error}"
            self._emit_about_config("Warning", "InvalidConfiguration", message)
            return
        self._valid_text, self._is_default = without_password(text), False
        for warning in self.config.warnings:
            log.warning("%s: %s", self._config_name(), warning)
        log.info("%s is in force: %s", self._config_name(), ", ".join(self.config.actions))
        in_force = f"in force, with the actions {', '.join(self.config.actions)}"
        self._emit_about_config("Normal", "Configured", in_force)

    def _emit_about_config(
        self, type: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Emit an Event on the ConfigMap of the configuration, if it is from there."""
        if self._conf is None and self._cache.config_reference is not None:
            self._recorder.event(self._cache.config_reference, type, reason, message)

    def state(self) -> SchedulerState:
        """Return the configuration in force, and its plugins that failed."""
        used = {option.plugin.name for tier in self.config.tiers for option in tier}
        return SchedulerState(
            source="default" if self._is_default else self._config_name(),
            configuration=self._valid_text or config.DEFAULT,
            refused=f"{self._config_name()}: {self._refused}" if self._refused else "",
            warnings=self.config.warnings,
            failed_plugins=tuple(
                each for name, each in sorted(self._failed_plugins.items()) if name in used
            ),
            custom_plugins=tuple(sorted(self._registry.custom)),
            left_out=tuple(f"{where}: {why}" for where, why in self._registry.left_out.items()),
        )

    def _config_name(self) -> str:
        if self._conf is not None:
            return str(self._conf)
        return f"ConfigMap {self._conf_namespace}/{wellknown.SCHEDULER_CONFIG_MAP}"

    async def _watch_file(self, path: Path) -> None:
        while True:
            await self._clock.sleep(CONFIG_POLL_S)
            await self._read_file(path)

    async def _read_file(self, path: Path) -> None:
        try:
            text = await asyncio.to_thread(_read_bounded, path)
        except (OSError, UnicodeDecodeError) as error:
            if str(error) != self._file_problem:
                log.error("%s cannot be read, the last valid one stays: %s", path, error)
            self._file_problem = str(error)
            return
        self._file_problem = ""
        if text != self._file_text:
            self._file_text = text
            self._changed.set()


def _read_bounded(path: Path) -> str:
    """Read a file up to slightly more than a configuration may have; parsing refuses that."""
    with path.open(encoding="utf-8") as file:
        return file.read(config.MAX_BYTES + 1)
