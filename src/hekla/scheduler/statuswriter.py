"""Writing what PodGroups, queues and pods should say: one write per object at a time, newest wins.

Binds come first: status is written by few workers, and a state that was overtaken before its turn
is never sent. What others wait for (the phase of a PodGroup) is sent at once; counts and reasons,
which may change with every pod, wait until a second has passed since the object was last written,
or some seconds while binds are under way.
A write that fails is forgotten in the cluster after a pause, so that a later cycle
plans it anew from what is true then; the pause holds up nobody else.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from hekla.api.wellknown import JOB_ALLOCATED_HYPERNODE, PodCondition
from hekla.kube.client import Client
from hekla.kube.errors import Conflict, KubeError, NotFound
from hekla.kube.resources import PODGROUPS, PODS, QUEUES
from hekla.scheduler.cache import Cache
from hekla.scheduler.changes import Change, Due, GroupWritten, PodWritten, QueueWritten
from hekla.scheduler.plan import (
    Condition,
    Event,
    SetGroupStatus,
    SetPodCondition,
    SetQueueStatus,
)
from hekla.units.clock import Clock
from hekla.units.timestamps import format_time

log = logging.getLogger("hekla.scheduler")

GROUP_WORKERS: Final = 16
POD_WORKERS: Final = 8
QUEUE_WORKERS: Final = 4
BACKOFF_BASE_S: Final = 0.2
BACKOFF_CAP_S: Final = 60.0
MAX_FAILURES: Final = 4096
PACE_S: Final = 1.0
"""Between two writes to one object that nobody waits for."""
BUSY_S: Final = 5.0
"""The same while binds are under way: the server has something better to do."""
FIRST_S: Final = 0.5
"""A pod that waits no longer than this need not say why: its gang is still coming in, mostly."""
REASONS_PER_S: Final = 250.0
"""In a crowd that waits each says why the later, the more they are; PodGroups say it at once."""

Amounts = Mapping[str, str | int | float]
Spawn = Callable[[Coroutine[None, None, None]], None]
E = TypeVar("E")


def backoff_s(failures: int) -> float:
    """How long to wait after the n-th failure of a kind."""
    return min(BACKOFF_BASE_S * 2.0 ** min(failures - 1, 20), BACKOFF_CAP_S)


class WriteStats(msgspec.Struct):
    """What became of status writes, for metrics."""

    writes: int = 0
    failures: int = 0


class LatestWins(Generic[E]):
    """Effects by key: a few workers write them, never two of one key at once."""

    def __init__(
        self,
        write: Callable[[E], Awaitable[None]],
        workers: int,
        spawn: Spawn,
        clock: Clock,
    ) -> None:
        self._write = write
        self._workers = workers
        self._spawn = spawn
        self._clock = clock
        self._ready: dict[str, E] = {}
        self._held: dict[str, E] = {}
        self._busy: set[str] = set()
        self._running = 0

    def __len__(self) -> int:
        """How many keys wait to be written."""
        return len(self._ready) + len(self._held)

    def __contains__(self, key: str) -> bool:
        """Whether something waits to be written for this key."""
        return key in self._ready or key in self._held

    def put(self, key: str, effect: E, *, hold_s: float = 0.0) -> None:
        """Write this in place of what waits; after `hold_s`, unless a later one is more urgent."""
        if key in self._ready:
            self._ready[key] = effect
        elif hold_s <= 0:
            self._held.pop(key, None)
            self._ready[key] = effect
            self._begin()
        elif key in self._held:
            self._held[key] = effect
        else:
            self._held[key] = effect
            self._spawn(self._release(key, hold_s))

    def drop(self, key: str) -> None:
        """What waits to be written for this key no longer holds."""
        self._ready.pop(key, None)
        self._held.pop(key, None)

    def _begin(self) -> None:
        if self._running < self._workers:
            self._running += 1
            self._spawn(self._work())

    async def _release(self, key: str, hold_s: float) -> None:
        await self._clock.sleep(hold_s)
        if key in self._held:
            self._ready[key] = self._held.pop(key)
            self._begin()

    def _next(self) -> str | None:
        return next((key for key in self._ready if key not in self._busy), None)

    async def _work(self) -> None:
        try:
            while (key := self._next()) is not None:
                effect = self._ready.pop(key)
                self._busy.add(key)
                try:
                    await self._write(effect)
                finally:
                    self._busy.discard(key)
        finally:
            self._running -= 1


class StatusWriter:
    """Takes the status effects of plans, and sends them."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        clock: Clock,
        wake: Callable[[], None],
        spawn: Spawn,
        tell: Callable[[Event], None],
        is_busy: Callable[[], bool],
    ) -> None:
        self.stats = WriteStats()
        self._client = client
        self._cache = cache
        self._clock = clock
        self._wake = wake
        self._spawn = spawn
        self._tell = tell
        self._is_busy = is_busy
        self._news: dict[str, Event] = {}
        """What people are told of a PodGroup once its status says so."""
        self._written_at: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._named: dict[str, set[str]] = {}
        """Resources that the status of a queue may name, as of before its next write."""
        self._groups = LatestWins(self._write_group, GROUP_WORKERS, spawn, clock)
        self._queues = LatestWins(self._write_queue, QUEUE_WORKERS, spawn, clock)
        self._pods = LatestWins(self._write_pod, POD_WORKERS, spawn, clock)

    def set_group(self, effect: SetGroupStatus) -> None:
        key = f"{effect.namespace}/{effect.group}"
        counts = (effect.running, effect.succeeded, effect.failed)
        self._cache.change(GroupWritten(key, effect.phase, counts, effect.domain))
        stored = self._cache.groups.get(effect.namespace, effect.group)
        is_urgent = stored is None or stored.status.phase != effect.phase
        pause_s = BUSY_S if self._is_busy() else self._pause_s(f"PodGroup {key}")
        self._groups.put(key, effect, hold_s=0.0 if is_urgent else pause_s)

    def tell(self, event: Event) -> None:
        """Say what happened to a PodGroup, with its status if that is about to be written."""
        key = f"{event.namespace}/{event.name}"
        if key in self._groups:
            self._news[key] = event
        else:
            self._tell(event)

    def set_queue(self, effect: SetQueueStatus) -> None:
        queue = self._cache.cluster.queues.get(effect.queue)
        if queue is None:
            return
        before = queue.allocated_written
        self._named.setdefault(effect.queue, set()).update(before or ())
        self._cache.change(QueueWritten(effect.queue, dict(effect.allocated)))
        hold_s = self._pause_s(f"queue {effect.queue}")
        self._queues.put(effect.queue, (effect, before), hold_s=hold_s)

    def set_pod(self, effect: SetPodCondition) -> None:
        """A promise is written at once: it must outlive us. Reasons may change with every cycle."""
        condition = ("False", effect.reason, effect.message)
        task = self._cache.cluster.tasks.get(effect.uid)
        is_promise = task is not None and effect.nominated_node not in ("", task.nominated_node)
        self._cache.change(PodWritten(effect.uid, condition, effect.nominated_node))
        what = f"pod {effect.namespace}/{effect.pod}"
        pause_s = max(self._pause_s(what), FIRST_S + len(self._pods) / REASONS_PER_S)
        self._pods.put(effect.uid, effect, hold_s=0.0 if is_promise else pause_s)

    def is_placed(self, uid: str) -> None:
        """A pod found a place: why it waited need not be written any more."""
        self._pods.drop(uid)

    async def _write_group(self, effect: SetGroupStatus) -> None:
        stored = self._cache.groups.get(effect.namespace, effect.group)
        old = {c.type: c for c in stored.status.conditions} if stored is not None else {}
        now = format_time(self._clock.now())
        status = {
            "phase": effect.phase,
            "running": effect.running,
            "succeeded": effect.succeeded,
            "failed": effect.failed,
            "conditions": [_condition(c, old.get(c.type), now) for c in effect.conditions],
        }
        body: dict[str, Any] = {"status": status}
        if effect.domain is not None:
            notes = {JOB_ALLOCATED_HYPERNODE: effect.domain or None}
            body["metadata"] = {"annotations": notes}
        name = f"{effect.namespace}/{effect.group}"
        news = self._news.pop(name, None)
        try:
            # Not a subresource of this kind, so that one request writes both.
            await self._client.patch(PODGROUPS, effect.group, body, namespace=effect.namespace)
        except KubeError as error:
            self._failed(
                f"PodGroup {name}",
                error,
                lambda: self._cache.reread_group(effect.namespace, effect.group),
            )
        else:
            self._paced(f"PodGroup {name}")
            if news is not None:
                self._tell(news)

    async def _write_queue(self, job: tuple[SetQueueStatus, Amounts | None]) -> None:
        effect, before = job
        # A merge patch keeps what it does not name: resources no longer in use must be named.
        gone: dict[str, str | None] = {name: None for name in self._named.pop(effect.queue, ())}
        what = f"queue {effect.queue}"
        try:
            await self._client.patch_status(
                QUEUES, effect.queue, {"allocated": {**gone, **effect.allocated}}
            )
        except KubeError as error:
            self._named.setdefault(effect.queue, set()).update(gone, effect.allocated)
            self._cache.change(QueueWritten(effect.queue, before))
            self._failed(what, error, self._due(Due(queues=(effect.queue,))))
        else:
            self._paced(what)

    async def _write_pod(self, effect: SetPodCondition) -> None:
        condition = {
            "type": PodCondition.SCHEDULED,
            "status": "False",
            "reason": effect.reason,
            "message": effect.message,
            "lastTransitionTime": format_time(self._clock.now()),
        }
        status = {"conditions": [condition], "nominatedNodeName": effect.nominated_node or None}
        what = f"pod {effect.namespace}/{effect.pod}"
        try:
            await self._client.patch(
                PODS,
                effect.pod,
                {"status": status},
                namespace=effect.namespace,
                kind="strategic",
                subresource="status",
            )
        except Conflict:
            return  # it is another pod of that name, or was bound meanwhile
        except KubeError as error:
            unwritten = PodWritten(effect.uid, ("", "", ""), effect.nominated_node)
            self._failed(what, error, self._due(unwritten))
        else:
            self._paced(what)

    def _due(self, change: Change) -> Callable[[], None]:
        def due() -> None:
            self._cache.change(change)
            self._wake()

        return due

    def _pause_s(self, what: str) -> float:
        """How long until it may be written again, if nobody waits for that."""
        written_at = self._written_at.get(what)
        return 0.0 if written_at is None else written_at + PACE_S - self._clock.monotonic()

    def _paced(self, what: str) -> None:
        self._succeeded(what)
        now, known = self._clock.monotonic(), self._written_at
        known.pop(what, None)  # the longest ago comes first
        known[what] = now
        while known[(oldest := next(iter(known)))] + PACE_S < now:
            del known[oldest]

    def _succeeded(self, what: str) -> None:
        self.stats.writes += 1
        self._failures.pop(what, None)

    def _failed(self, what: str, error: KubeError, undo: Callable[[], None]) -> None:
        if isinstance(error, NotFound):
            self._failures.pop(what, None)
            return  # it is gone; the watch says so too
        self.stats.failures += 1
        failures = self._failures[what] = self._failures.pop(what, 0) + 1
        if len(self._failures) > MAX_FAILURES:  # of objects long gone, as like as not
            del self._failures[next(iter(self._failures))]
        wait_s = backoff_s(failures)
        log.warning("writing %s failed: %s; trying again in %.1f s", what, error, wait_s)

        async def later() -> None:
            await self._clock.sleep(wait_s)
            undo()

        self._spawn(later())


def _condition(wanted: Condition, known: Any, now: str) -> dict[str, str]:
    """A condition with its times: those it has if it says nothing new."""
    body = {
        "type": wanted.type,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": wanted.message,
        "lastTransitionTime": now,
    }
    if known is not None and (known.status, known.reason, known.message) == (
        wanted.status,
        wanted.reason,
        wanted.message,
    ):
        body["lastTransitionTime"] = known.last_transition_time or now
        if known.transition_id:
            body["transitionID"] = known.transition_id
    return body
