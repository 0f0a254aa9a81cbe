"""The status writer: writes the status of PodGroups, queues and pods, the latest state only.

Binds have priority: few workers write status, and a state that is replaced before its turn is never
sent. A PodGroup that becomes Inqueue is sent at once, because its pods are created then. Other
status of PodGroups is written by two workers that yield to binds: when thousands of groups arrive
at once, most have started before their Inqueue would be written. Counts and reasons, which may
change with every pod, are written at most once a second per object.

A write that fails is forgotten in the cluster after a pause, so that a later cycle plans it again
from the state then. The pause delays no other object.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgspec

from hekla.api import scheduling
from hekla.api.wellknown import JOB_ALLOCATED_HYPERNODE, PodCondition, PodGroupPhase
from hekla.kube.client import Client
from hekla.kube.errors import Conflict, KubeError, NotFound
from hekla.kube.resources import PODGROUPS, PODS, QUEUES
from hekla.scheduler.explain.status import group_written
from hekla.scheduler.framework.plan import (
    Condition,
    Event,
    SetGroupStatus,
    SetPodCondition,
    SetQueueStatus,
)
from hekla.scheduler.service.cache import Cache
from hekla.scheduler.service.write_priority import WritePriority
from hekla.scheduler.state.changes import (
    Change,
    Due,
    PodWritten,
    QueueWritten,
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
"""The time between two writes of one object that are not urgent."""
PATIENT_WORKERS: Final = 2
TURN_S: Final = 0.1
"""The longest time that a worker yields to binds."""
FIRST_S: Final = 0.5
"""A pod that is pending for less gets no condition: most of its gang is still being created."""
REASONS_PER_S: Final = 250.0
"""With many pending pods, conditions of pods are delayed more; those of PodGroups are not."""

Amounts = Mapping[str, str | int | float]
Spawn = Callable[[Coroutine[None, None, None]], None]
Turn = Callable[[], Awaitable[None]]
E = TypeVar("E")


def backoff_s(failures: int) -> float:
    """Return the pause after the n-th failure of a kind."""
    return min(BACKOFF_BASE_S * 2.0 ** min(failures - 1, 20), BACKOFF_CAP_S)


class WriteStats(msgspec.Struct):
    """Counts of status writes, for metrics."""

    writes: int = 0
    failures: int = 0


class _Lane(Generic[E]):
    """Effects that wait for a limited number of workers."""

    def __init__(self, workers: int, turn: Turn | None = None) -> None:
        self.waiting: dict[str, E] = {}
        self.workers = workers
        self.running = 0
        self.turn = turn


class LatestWins(Generic[E]):
    """Effects by key: a few workers write them, never two of one key at once.

    Before each effect that is not urgent, a worker awaits its `turn`.
    """

    def __init__(
        self,
        write: Callable[[E], Awaitable[None]],
        workers: int,
        spawn: Spawn,
        clock: Clock,
        turn: Turn | None = None,
    ) -> None:
        self._write = write
        self._spawn = spawn
        self._clock = clock
        self._urgent: _Lane[E] = _Lane(workers)
        self._patient: _Lane[E] = self._urgent if turn is None else _Lane(PATIENT_WORKERS, turn)
        self._held: dict[str, E] = {}
        self._busy: set[str] = set()

    def __len__(self) -> int:
        """Return the number of keys to write."""
        return sum(map(len, self._places()))

    def __contains__(self, key: str) -> bool:
        """Tell whether an effect of this key is not written yet."""
        return any(key in place for place in self._places())

    def put(self, key: str, effect: E, *, hold_s: float = 0.0, is_urgent: bool = False) -> None:
        """Replace the unwritten effect of a key; write it after `hold_s`, or sooner if urgent."""
        urgent, patient = self._urgent.waiting, self._patient.waiting
        if is_urgent and key not in urgent:
            self.drop(key)
            self._line_up(self._urgent, key, effect)
            return
        for place in (urgent, patient):
            if key in place:
                place[key] = effect
                return
        if hold_s <= 0:
            self._held.pop(key, None)
            self._line_up(self._patient, key, effect)
            return
        if key not in self._held:
            self._spawn(self._release(key, hold_s))
        self._held[key] = effect

    def drop(self, key: str) -> None:
        """Drop the unwritten effect of a key."""
        for place in self._places():
            place.pop(key, None)

    def _places(self) -> tuple[dict[str, E], ...]:
        places = self._urgent.waiting, self._held
        return places if self._patient is self._urgent else (*places, self._patient.waiting)

    def _line_up(self, lane: _Lane[E], key: str, effect: E) -> None:
        lane.waiting[key] = effect
        self._begin(lane)

    def _begin(self, lane: _Lane[E]) -> None:
        if lane.running < lane.workers and self._next(lane) is not None:
            lane.running += 1
            self._spawn(self._work(lane))

    def _next(self, lane: _Lane[E]) -> str | None:
        return next((key for key in lane.waiting if key not in self._busy), None)

    async def _release(self, key: str, hold_s: float) -> None:
        await self._clock.sleep(hold_s)
        if key in self._held:
            self._line_up(self._patient, key, self._held.pop(key))

    async def _work(self, lane: _Lane[E]) -> None:
        try:
            while self._next(lane) is not None:
                if lane.turn is not None:
                    await lane.turn()
                if (key := self._next(lane)) is not None:  # it may have been dropped meanwhile
                    await self._write_one(key, lane.waiting.pop(key))
        finally:
            lane.running -= 1

    async def _write_one(self, key: str, effect: E) -> None:
        self._busy.add(key)
        try:
            await self._write(effect)
        finally:
            self._busy.discard(key)
        for lane in (self._urgent, self._patient):  # a newer effect may wait for this one
            if key in lane.waiting:
                self._begin(lane)


class StatusWriter:
    """Sends the status effects of plans."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        clock: Clock,
        wake: Callable[[], None],
        spawn: Spawn,
        emit: Callable[[Event], None],
        write_priority: WritePriority,
    ) -> None:
        self.stats = WriteStats()
        self._client = client
        self._cache = cache
        self._clock = clock
        self._wake = wake
        self._spawn = spawn
        self._emit_event = emit
        self._news: dict[str, Event] = {}
        """The Event of a PodGroup that is emitted with its status."""
        self._written_at: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._named: dict[str, set[str]] = {}
        """Resources that the status of a queue may have, before its next write."""
        turn = partial(write_priority.rest, TURN_S)
        self._groups = LatestWins(self._write_group, GROUP_WORKERS, spawn, clock, turn)
        self._queues = LatestWins(self._write_queue, QUEUE_WORKERS, spawn, clock)
        self._pods = LatestWins(self._write_pod, POD_WORKERS, spawn, clock)

    def set_group(self, effect: SetGroupStatus) -> None:
        key = f"{effect.namespace}/{effect.group}"
        self._cache.change(group_written(effect))
        stored = self._cache.groups.get(effect.namespace, effect.group)
        is_news = stored is None or stored.status.phase != effect.phase
        is_urgent = stored is not None and is_news and self._is_urgent(stored, effect)
        pause_s = 0.0 if is_news else self._pause_s(f"PodGroup {key}")
        self._groups.put(key, effect, hold_s=pause_s, is_urgent=is_urgent)

    def _is_urgent(self, group: scheduling.PodGroup, effect: SetGroupStatus) -> bool:
        """Tell whether a controller creates pods once the group is Inqueue."""
        if effect.phase != PodGroupPhase.INQUEUE or not group.metadata.owner_references:
            return False
        job = self._cache.cluster.jobs.get(f"{effect.namespace}/{effect.group}")
        return job is None or len(job.tasks) < job.min_member

    def emit(self, event: Event) -> None:
        """Emit an Event of a PodGroup, with its status if that is about to be written."""
        key = f"{event.namespace}/{event.name}"
        if key in self._groups:
            self._news[key] = event
        else:
            self._emit_event(event)

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
        """Write a pod condition. A nomination is sent at once, so that it survives a restart."""
        condition = ("False", effect.reason, effect.message)
        task = self._cache.cluster.tasks.get(effect.uid)
        is_nomination = task is not None and effect.nominated_node not in ("", task.nominated_node)
        self._cache.change(PodWritten(effect.uid, condition, effect.nominated_node))
        what = f"pod {effect.namespace}/{effect.pod}"
        pause_s = max(self._pause_s(what), FIRST_S + len(self._pods) / REASONS_PER_S)
        self._pods.put(effect.uid, effect, hold_s=pause_s, is_urgent=is_nomination)

    def is_placed(self, uid: str) -> None:
        """Drop the condition of a pod that is placed."""
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
                self._emit_event(news)

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
            return  # another pod of that name, or it is bound
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
        """Return the time until an object may be written again."""
        written_at = self._written_at.get(what)
        return 0.0 if written_at is None else written_at + PACE_S - self._clock.monotonic()

    def _paced(self, what: str) -> None:
        self._succeeded(what)
        now, known = self._clock.monotonic(), self._written_at
        known.pop(what, None)  # the oldest entry comes first
        known[what] = now
        while known[(oldest := next(iter(known)))] + PACE_S < now:
            del known[oldest]

    def _succeeded(self, what: str) -> None:
        self.stats.writes += 1
        self._failures.pop(what, None)

    def _failed(self, what: str, error: KubeError, undo: Callable[[], None]) -> None:
        if isinstance(error, NotFound):
            self._failures.pop(what, None)
            return  # the object is deleted
        self.stats.failures += 1
        failures = self._failures[what] = self._failures.pop(what, 0) + 1
        if len(self._failures) > MAX_FAILURES:  # most are of deleted objects
            del self._failures[next(iter(self._failures))]
        wait_s = backoff_s(failures)
        log.warning("writing %s failed: %s; trying again in %.1f s", what, error, wait_s)

        async def later() -> None:
            await self._clock.sleep(wait_s)
            undo()

        self._spawn(later())


def _condition(wanted: Condition, known: Any, now: str) -> dict[str, str]:
    """Return a condition with times; an unchanged one keeps its transition time."""
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
