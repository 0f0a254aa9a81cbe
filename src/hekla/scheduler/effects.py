"""Doing what a plan says: binds in parallel but bounded, gangs given up whole, failures backed off.

What is sent is assumed at once in the cluster, so the next cycle counts with it; what fails is
taken back there and tried again. A gang of which one bind failed stops sending the rest: those that
were sent stay (the watch will show them), the others wait, and the job backs off by the kind of
its failure, so that a pod which a server refuses for ever does not win every cycle.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass

import msgspec

from hekla.api.wellknown import PodCondition
from hekla.kube.client import Client
from hekla.kube.correlation import Reference
from hekla.kube.errors import ApiError, Conflict, Forbidden, KubeError, MethodNotAllowed, NotFound
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import PODGROUPS, PODS, QUEUES
from hekla.scheduler.cache import Cache
from hekla.scheduler.plan import (
    Bind,
    Event,
    Evict,
    Plan,
    SetGroupStatus,
    SetPodCondition,
    SetQueueStatus,
)
from hekla.units.clock import Clock
from hekla.units.timestamps import format_time

log = logging.getLogger("hekla.scheduler")

MAX_BINDS_IN_FLIGHT = 64
MAX_CONDITIONS_IN_FLIGHT = 8
EVICT = "Evict"
PREEMPTION = "PreemptionByScheduler"
BACKOFF_BASE_S = 0.2
BACKOFF_CAP_S = 60.0


@dataclass(slots=True)
class _Backoff:
    signature: str
    failures: int
    until: float
    message: str


class PerformerStats(msgspec.Struct):
    """What became of effects, for metrics."""

    bound: int = 0
    bind_failures: int = 0
    rolled_back: int = 0
    evicted: int = 0
    evict_failures: int = 0
    writes: int = 0
    write_failures: int = 0


class Performer:
    """Carries plans out. Give it one at a time; it does not wait for the last to be finished."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        recorder: EventRecorder,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        self.stats = PerformerStats()
        self._client = client
        self._cache = cache
        self._recorder = recorder
        self._clock = clock
        self._wake = wake
        self._binds = asyncio.Semaphore(MAX_BINDS_IN_FLIGHT)
        self._writes = asyncio.Semaphore(MAX_CONDITIONS_IN_FLIGHT)
        self._backoffs: dict[str, _Backoff] = {}
        self._refused: dict[str, int] = {}
        self._conditions: dict[str, SetPodCondition] = {}
        self._condition_writers = 0
        self._groups: dict[str, SetGroupStatus] = {}
        self._group_writing: set[str] = set()
        self._running: set[asyncio.Task[None]] = set()

    def skipped(self) -> dict[str, str]:
        """Jobs that back off now, and why."""
        now = self._clock.monotonic()
        return {job: b.message for job, b in self._backoffs.items() if b.until > now}

    def next_due_s(self) -> float | None:
        """How long until a job that backs off may try again."""
        now = self._clock.monotonic()
        waits = [b.until - now for b in self._backoffs.values() if b.until > now]
        return min(waits, default=None)

    def start(self, plan: Plan) -> None:
        """Assume what the plan says, and begin to do it."""
        cluster = self._cache.cluster
        gangs: dict[str, list[Bind]] = {}
        for effect in plan.effects:
            match effect:
                case Bind():
                    task = cluster.tasks.get(effect.uid)
                    if task is not None:
                        cluster.assume(task, effect.node)
                        gangs.setdefault(effect.job, []).append(effect)
                case Evict():
                    task = cluster.tasks.get(effect.uid)
                    if task is not None:
                        cluster.release(task)
                        self._spawn(self._evict(effect))
                case SetGroupStatus():
                    self._write_group(effect)
                case SetQueueStatus():
                    self._spawn(self._write_queue(effect))
                case SetPodCondition():
                    self._write_condition(effect)
                case Event():
                    self._event(effect)
        for job, binds in gangs.items():
            self._spawn(self._bind_gang(job, binds))

    async def idle(self) -> None:
        """Wait until everything begun has ended."""
        while self._running:
            await asyncio.wait(self._running)

    async def stop(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("performing an effect failed", exc_info=task.exception())
            self._wake()

    # --- binding ------------------------------------------------------------------------------

    async def _bind_gang(self, job: str, binds: list[Bind]) -> None:
        failure: list[KubeError] = []

        async def one(bind: Bind) -> None:
            async with self._binds:
                if failure:
                    self._take_back(bind)
                    self.stats.rolled_back += 1
                    return
                try:
                    await self._client.bind(
                        bind.pod, bind.node, namespace=bind.namespace, uid=bind.uid
                    )
                except NotFound:
                    self._take_back(bind)  # the pod is gone; the watch says so too
                except KubeError as error:
                    failure.append(error)
                    self.stats.bind_failures += 1
                    self._take_back(bind)
                else:
                    self.stats.bound += 1
                    self._event(
                        Event(
                            "Pod",
                            bind.namespace,
                            bind.pod,
                            bind.uid,
                            "Normal",
                            "Scheduled",
                            f"Successfully assigned {bind.namespace}/{bind.pod} to {bind.node}",
                        )
                    )

        await asyncio.gather(*(one(bind) for bind in binds))
        if failure:
            self._back_off(job, failure[0])
        else:
            self._backoffs.pop(job, None)

    def _take_back(self, bind: Bind) -> None:
        task = self._cache.cluster.tasks.get(bind.uid)
        if task is not None and task.node_name == bind.node:
            self._cache.cluster.forget(task)
        self._wake()

    def _back_off(self, job: str, error: KubeError) -> None:
        code = f" {error.status}" if isinstance(error, ApiError) else ""
        signature = f"{type(error).__name__}{code}"
        known = self._backoffs.get(job)
        failures = known.failures + 1 if known is not None and known.signature == signature else 1
        wait_s = min(BACKOFF_BASE_S * 2 ** (failures - 1), BACKOFF_CAP_S)
        message = f"binding failed ({signature}): {error}"
        log.warning("job %s: %s; trying again in %.1f s", job, message, wait_s)
        until = self._clock.monotonic() + wait_s
        self._backoffs[job] = _Backoff(signature, failures, until, message)
        self._wake()

    def forget_jobs(self, existing: Iterable[str]) -> None:
        """Drop what is remembered of jobs that are gone."""
        kept = set(existing)
        for job in [job for job in self._backoffs if job not in kept]:
            del self._backoffs[job]

    # --- evicting -----------------------------------------------------------------------------

    async def _evict(self, effect: Evict) -> None:
        """Mark the pod, then make it leave. If it cannot, it counts as staying for a while."""
        try:
            async with self._binds:
                await self._mark(effect, "True")
                await self._send_away(effect)
        except NotFound:
            self._refused.pop(effect.uid, None)
            return  # it is gone; the watch says so too
        except KubeError as error:
            await self._stays(effect, error)
            return
        self.stats.evicted += 1
        self._refused.pop(effect.uid, None)
        text = f"Pod is evicted, because of {effect.reason}"
        namespace, pod, uid = effect.namespace, effect.pod, effect.uid
        self._event(Event("Pod", namespace, pod, uid, "Warning", EVICT, text))
        job = self._cache.cluster.jobs.get(effect.for_job)
        if job is not None and job.has_group:
            namespace, name, uid = job.namespace, job.name, job.uid
            self._event(Event("PodGroup", namespace, name, uid, "Normal", EVICT, effect.reason))

    async def _send_away(self, effect: Evict) -> None:
        """Evict, so that disruption budgets are heeded; delete where that is not to be had."""
        try:
            await self._client.evict(effect.pod, namespace=effect.namespace, uid=effect.uid)
        except (NotFound, MethodNotAllowed, Forbidden):
            # No such pod, no such API, or no right to it: deleting tells the first from the rest.
            await self._client.delete(
                PODS, effect.pod, namespace=effect.namespace, uid=effect.uid, missing_ok=True
            )

    async def _mark(self, effect: Evict, status: str) -> None:
        """Say in the pod's status why it goes: controllers do not count it as a failure."""
        condition = {
            "type": PodCondition.DISRUPTION_TARGET,
            "status": status,
            "reason": PREEMPTION,
            "message": "preempting to accommodate a pod that goes first",
            "lastTransitionTime": format_time(self._clock.now()),
        }
        try:
            await self._client.patch(
                PODS,
                effect.pod,
                {"status": {"conditions": [condition]}},
                namespace=effect.namespace,
                kind="strategic",
                subresource="status",
            )
        except NotFound:
            raise
        except KubeError as error:
            log.warning("marking pod %s/%s failed: %s", effect.namespace, effect.pod, error)

    async def _stays(self, effect: Evict, error: KubeError) -> None:
        """Take back what was assumed, and leave the pod in peace before it is asked again."""
        cluster = self._cache.cluster
        self.stats.evict_failures += 1
        failures = self._refused[effect.uid] = self._refused.get(effect.uid, 0) + 1
        wait_s = min(BACKOFF_BASE_S * 2 ** (failures - 1), BACKOFF_CAP_S)
        name = f"{effect.namespace}/{effect.pod}"
        log.warning("evicting %s failed: %s; it stays for %.1f s", name, error, wait_s)
        task = cluster.tasks.get(effect.uid)
        if task is None:
            return
        cluster.retain(task)
        cluster.unevictable.add(effect.uid)
        self._wake()
        with contextlib.suppress(NotFound):
            await self._mark(effect, "False")
        await self._clock.sleep(wait_s)
        cluster.unevictable.discard(effect.uid)
        self._wake()

    # --- status -------------------------------------------------------------------------------

    def _write_group(self, effect: SetGroupStatus) -> None:
        """One write per PodGroup at a time; while it runs, only the newest state is kept."""
        key = f"{effect.namespace}/{effect.group}"
        job = self._cache.cluster.jobs.get(key)
        if job is not None:
            job.phase = effect.phase
            job.counts_written = (effect.running, effect.succeeded, effect.failed)
        self._groups[key] = effect
        if key not in self._group_writing:
            self._group_writing.add(key)
            self._spawn(self._write_groups(key))

    async def _write_groups(self, key: str) -> None:
        try:
            while (effect := self._groups.pop(key, None)) is not None:
                async with self._binds:
                    await self._write_one_group(effect)
        finally:
            self._group_writing.discard(key)

    async def _write_one_group(self, effect: SetGroupStatus) -> None:
        stored = self._cache.groups.get(effect.namespace, effect.group)
        old = {c.type: c for c in stored.status.conditions} if stored is not None else {}
        now = format_time(self._clock.now())
        conditions = []
        for condition in effect.conditions:
            known = old.get(condition.type)
            is_same = known is not None and (known.status, known.reason, known.message) == (
                condition.status,
                condition.reason,
                condition.message,
            )
            body = {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": now,
            }
            if is_same and known is not None:
                body["lastTransitionTime"] = known.last_transition_time or now
                if known.transition_id:
                    body["transitionID"] = known.transition_id
            conditions.append(body)
        status = {
            "phase": effect.phase,
            "running": effect.running,
            "succeeded": effect.succeeded,
            "failed": effect.failed,
            "conditions": conditions,
        }
        try:
            await self._client.patch_status(
                PODGROUPS, effect.group, status, namespace=effect.namespace
            )
            self.stats.writes += 1
        except NotFound:
            return
        except KubeError as error:
            self.stats.write_failures += 1
            log.warning("writing PodGroup %s/%s failed: %s", effect.namespace, effect.group, error)
            await self._clock.sleep(BACKOFF_BASE_S)
            self._cache.reread_group(effect.namespace, effect.group)

    async def _write_queue(self, effect: SetQueueStatus) -> None:
        queue = self._cache.cluster.queues.get(effect.queue)
        if queue is None:
            return
        before, queue.allocated_written = queue.allocated_written, dict(effect.allocated)
        # A merge patch keeps what it does not name: resources no longer in use must be named.
        gone: dict[str, str | None] = {name: None for name in before or {}}
        try:
            await self._client.patch_status(
                QUEUES, effect.queue, {"allocated": {**gone, **effect.allocated}}
            )
            self.stats.writes += 1
        except NotFound:
            return
        except KubeError as error:
            self.stats.write_failures += 1
            queue.allocated_written = before
            log.warning("writing queue %s failed: %s", effect.queue, error)

    def _write_condition(self, effect: SetPodCondition) -> None:
        """Conditions of pods come last and a few at a time: they must not delay a bind."""
        task = self._cache.cluster.tasks.get(effect.uid)
        if task is not None:
            task.condition = ("False", effect.reason, effect.message)
            task.nominated_node = effect.nominated_node
        self._conditions[effect.uid] = effect
        if self._condition_writers < MAX_CONDITIONS_IN_FLIGHT:
            self._condition_writers += 1
            self._spawn(self._write_conditions())

    async def _write_conditions(self) -> None:
        try:
            while self._conditions:
                uid = next(iter(self._conditions))
                effect = self._conditions.pop(uid)
                task = self._cache.cluster.tasks.get(uid)
                if task is None or task.node_name:
                    continue  # it found a place meanwhile, or is gone
                await self._write_one_condition(effect)
        finally:
            self._condition_writers -= 1

    async def _write_one_condition(self, effect: SetPodCondition) -> None:
        now = format_time(self._clock.now())
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": effect.reason,
            "message": effect.message,
            "lastTransitionTime": now,
        }
        try:
            await self._client.patch(
                PODS,
                effect.pod,
                {
                    "status": {
                        "conditions": [condition],
                        "nominatedNodeName": effect.nominated_node or None,
                    }
                },
                namespace=effect.namespace,
                kind="strategic",
                subresource="status",
            )
            self.stats.writes += 1
        except (NotFound, Conflict):
            return
        except KubeError as error:
            self.stats.write_failures += 1
            log.warning("writing pod %s/%s failed: %s", effect.namespace, effect.pod, error)
            task = self._cache.cluster.tasks.get(effect.uid)
            if task is not None:
                task.condition = ("", "", "")

    def _event(self, effect: Event) -> None:
        resource = PODS if effect.kind == "Pod" else PODGROUPS
        about = Reference(
            kind=effect.kind,
            namespace=effect.namespace,
            name=effect.name,
            uid=effect.uid,
            apiVersion=resource.api_version,
        )
        self._recorder.event(about, effect.type, effect.reason, effect.message)
