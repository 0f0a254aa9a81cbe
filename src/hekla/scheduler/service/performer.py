"""The performer: sends the binds and evictions of a plan, and backs off after failures.

What is sent is assumed in the cluster at once, so the next cycle counts on it. What fails is taken
back and retried. When one bind of a gang fails, the rest is not sent: binds that were sent stay,
the other tasks are pending again, and the job backs off by the kind of failure, so that a pod that
the server always refuses does not win every cycle.

Note: a bind without a response may have succeeded. Taking it back could free resources that are not
free, so the pod is read first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from hekla.api.wellknown import QUEUE_ALLOCATION_GATE, PodCondition
from hekla.kube.client import Client
from hekla.kube.correlation import Reference
from hekla.kube.errors import (
    ApiError,
    Conflict,
    Forbidden,
    KubeError,
    MethodNotAllowed,
    NotFound,
    ProtocolError,
    ServerError,
    TransportError,
)
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import PODGROUPS, PODS, Resource
from hekla.scheduler.framework.plan import (
    PREEMPTING,
    Bind,
    Event,
    Evict,
    OpenGate,
    Plan,
    SetGroupStatus,
    SetPodCondition,
    SetQueueStatus,
)
from hekla.scheduler.service.cache import Cache
from hekla.scheduler.service.metrics import SchedulerMetrics
from hekla.scheduler.service.status_writer import StatusWriter, backoff_s
from hekla.scheduler.service.volume_binder import VolumeBinder
from hekla.scheduler.service.write_priority import WritePriority
from hekla.scheduler.state import wire
from hekla.scheduler.state.changes import Assumed, Evictable, Leaves, Stays, Unbound
from hekla.units.clock import Clock
from hekla.units.timestamps import format_time

log = logging.getLogger("hekla.scheduler")

MAX_BINDS_IN_FLIGHT = 64
MAX_BACKLOG = 5000
"""The number of unsent binds above which no cycle starts; Volcano's number."""
EVICT = "Evict"
PREEMPTION = "PreemptionByScheduler"
_PODS: Resource[wire.Pod] = PODS.into(wire.Pod)


@dataclass(slots=True)
class _Backoff:
    signature: str
    failures: int
    until: float
    message: str


class PerformerStats(msgspec.Struct):
    """Counts of binds and evictions, for metrics."""

    bound: int = 0
    bind_failures: int = 0
    rolled_back: int = 0
    evicted: int = 0
    evict_failures: int = 0


class Performer:
    """Performs plans. A plan may start before the previous one is finished."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        recorder: EventRecorder,
        clock: Clock,
        wake: Callable[[], None],
        metrics: SchedulerMetrics | None = None,
    ) -> None:
        self.stats = PerformerStats()
        self.write_priority = WritePriority()
        self.status = StatusWriter(
            client,
            cache,
            clock,
            wake,
            self._spawn,
            self._event,
            self.write_priority,
        )
        self._client = client
        self._cache = cache
        self._recorder = recorder
        self._clock = clock
        self._wake = wake
        self._metrics = metrics or SchedulerMetrics()
        self._provider = VolumeBinder(client, cache)
        self._binds = asyncio.Semaphore(MAX_BINDS_IN_FLIGHT)
        self.unsent = 0
        """The number of binds that were decided and not sent."""
        self._has_capacity = asyncio.Event()
        self._has_capacity.set()
        self._backoffs: dict[str, _Backoff] = {}
        self._refused: dict[str, int] = {}
        self._opening: set[str] = set()
        """Pods whose gate is being removed: the next cycle may decide it again."""
        self._running: set[asyncio.Task[None]] = set()

    def skipped(self) -> dict[str, str]:
        """Return the jobs that back off, with the reason."""
        now = self._clock.monotonic()
        return {job: b.message for job, b in self._backoffs.items() if b.until > now}

    def next_due_s(self) -> float | None:
        """Return the time until a job may be tried again."""
        now = self._clock.monotonic()
        waits = [b.until - now for b in self._backoffs.values() if b.until > now]
        return min(waits, default=None)

    async def has_capacity(self) -> None:
        """Wait until few enough binds are unsent for another cycle."""
        await self._has_capacity.wait()

    def start(self, plan: Plan) -> None:
        """Assume the effects of a plan, and start to perform them."""
        gangs: dict[str, list[Bind]] = {}
        victims: dict[str, list[Evict]] = {}
        for effect in plan.effects:
            match effect:
                case Bind():
                    self._cache.change(Assumed(effect.uid, effect.node, effect.annotations))
                    self.status.is_placed(effect.uid)
                    gangs.setdefault(effect.job, []).append(effect)
                case Evict():
                    self._cache.change(Leaves(effect.uid))
                    victims.setdefault(effect.job, []).append(effect)
                case OpenGate():
                    if effect.uid not in self._opening:
                        self._opening.add(effect.uid)
                        self._spawn(self._open_gate(effect))
                case SetGroupStatus():
                    self.status.set_group(effect)
                case SetQueueStatus():
                    self.status.set_queue(effect)
                case SetPodCondition():
                    self.status.set_pod(effect)
                case Event():
                    # Of the Events that follow a status only the newest is emitted.
                    is_of_status = effect.kind == PODGROUPS.kind and effect.reason != PREEMPTING
                    (self.status.emit if is_of_status else self._event)(effect)
        for job, evictions in victims.items():
            self._spawn(self._evict_of(job, evictions))
        for job, binds in gangs.items():
            self._count_unsent(len(binds))
            self._spawn(self._carry_out(job, binds))

    async def idle(self) -> None:
        """Wait until all effects are performed."""
        while self._running:
            await asyncio.wait(self._running)

    async def stop(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self.write_priority.stop()

    def forget(self, jobs: Iterable[str], pods: Iterable[str]) -> None:
        """Drop the back-off of jobs and pods that were deleted."""
        if self._backoffs:
            kept = set(jobs)
            self._backoffs = {job: b for job, b in self._backoffs.items() if job in kept}
        if self._refused:
            alive = set(pods)
            self._refused = {uid: n for uid, n in self._refused.items() if uid in alive}

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("performing an effect failed", exc_info=task.exception())
            self._wake()

    def _count_unsent(self, more: int) -> None:
        self.unsent += more
        if self.unsent > MAX_BACKLOG:
            self._has_capacity.clear()
        else:
            self._has_capacity.set()

    # --- binding ------------------------------------------------------------------------------

    async def _carry_out(self, job: str, binds: list[Bind]) -> None:
        with self.write_priority.in_flight():
            await self._bind_gang(job, binds)

    async def _bind_gang(self, job: str, binds: list[Bind]) -> None:
        failures: list[KubeError] = []
        if not self._still_holds(binds):
            for bind in binds:
                self._count_unsent(-1)
                self._take_back(bind)
            return
        queue = iter(binds)
        workers = min(len(binds), MAX_BINDS_IN_FLIGHT)
        await asyncio.gather(*(self._bind_some(queue, failures) for _ in range(workers)))
        if failures:
            self._back_off(job, failures[0])
        else:
            self._backoffs.pop(job, None)
            self._metrics.gang_bound(self._cache.cluster.jobs.get(job), self._clock.now())

    def _still_holds(self, binds: list[Bind]) -> bool:
        """Tell whether the nodes still exist: they may be deleted during the cycle."""
        nodes = self._cache.cluster.nodes
        return all((node := nodes.get(b.node)) is not None and node.is_known for b in binds)

    async def _bind_some(self, binds: Iterator[Bind], failures: list[KubeError]) -> None:
        """Send binds of a gang one by one, until one fails."""
        for bind in binds:
            error = None if failures else await self._bind_claims(bind)
            async with self._binds:
                self._count_unsent(-1)
                if failures:
                    self._take_back(bind)
                    self.stats.rolled_back += 1
                    continue
                error = error or await self._bind(bind)
            if isinstance(error, TransportError | ProtocolError | ServerError):
                error = await self._confirm(bind, error)
            if error is None:
                self._bound(bind)
                continue
            self._take_back(bind)
            if not isinstance(error, NotFound):  # NotFound: the pod was deleted
                failures.append(error)
                self.stats.bind_failures += 1

    async def _bind_claims(self, bind: Bind) -> KubeError | None:
        """Bind the volumes of a task, without blocking other binds."""
        task = self._cache.cluster.tasks.get(bind.uid)
        if task is None or not task.klass.claims:
            return None
        try:
            await self._provider.bind_claims(task, bind.node)
        except KubeError as error:
            return error
        return None

    async def _bind(self, bind: Bind) -> KubeError | None:
        started_s = self._clock.monotonic()
        try:
            await self._client.bind(
                bind.pod,
                bind.node,
                namespace=bind.namespace,
                uid=bind.uid,
                annotations=bind.annotations,
            )
        except KubeError as error:
            return error
        finally:
            self._metrics.bind_took(self._clock.monotonic() - started_s)
        return None

    async def _confirm(self, bind: Bind, lost: KubeError) -> KubeError | None:
        """Tell whether a bind without a response succeeded; retry until it is known."""
        tries = 0
        while True:
            try:
                pod = await self._client.get(_PODS, bind.pod, namespace=bind.namespace)
            except NotFound as error:
                return error
            except KubeError as error:
                tries += 1
                name = f"{bind.namespace}/{bind.pod}"
                log.warning("whether %s was bound is not known yet: %s", name, error)
                await self._clock.sleep(backoff_s(tries))
                continue
            is_there = pod.metadata.uid == bind.uid and pod.spec.node_name == bind.node
            return None if is_there else lost

    def _bound(self, bind: Bind) -> None:
        self.stats.bound += 1
        self._metrics.pod_bound(self._cache.cluster.tasks.get(bind.uid), self._clock.now())
        text = f"Successfully assigned {bind.namespace}/{bind.pod} to {bind.node}"
        namespace, pod, uid = bind.namespace, bind.pod, bind.uid
        self._event(Event("Pod", namespace, pod, uid, "Normal", "Scheduled", text))

    def _take_back(self, bind: Bind) -> None:
        self._cache.change(Unbound(bind.uid, bind.node))
        self._wake()

    def _back_off(self, job: str, error: KubeError) -> None:
        code = f" {error.status}" if isinstance(error, ApiError) else ""
        signature = f"{type(error).__name__}{code}"
        known = self._backoffs.get(job)
        failures = known.failures + 1 if known is not None and known.signature == signature else 1
        wait_s = backoff_s(failures)
        message = f"binding failed ({signature}): {error}"
        log.warning("job %s: %s; trying again in %.1f s", job, message, wait_s)
        until = self._clock.monotonic() + wait_s
        self._backoffs[job] = _Backoff(signature, failures, until, message)
        self._metrics.job_retried(job)
        self._wake()

    async def _open_gate(self, effect: OpenGate) -> None:
        """Remove the queue-allocation gate of a pod; a later cycle tries again if it fails."""
        gate = {"$patch": "delete", "name": QUEUE_ALLOCATION_GATE}
        try:
            async with self._binds:
                await self._client.patch(
                    PODS,
                    effect.pod,
                    {"metadata": {"uid": effect.uid}, "spec": {"schedulingGates": [gate]}},
                    namespace=effect.namespace,
                    kind="strategic",
                )
        except (NotFound, Conflict):
            pass  # the pod is deleted
        except KubeError as error:
            name = f"{effect.namespace}/{effect.pod}"
            log.warning("removing the queue-allocation gate of %s failed: %s", name, error)
            await self._clock.sleep(backoff_s(1))
            self._wake()
        finally:
            self._opening.discard(effect.uid)

    # --- evicting -----------------------------------------------------------------------------

    async def _evict_of(self, key: str, evictions: list[Evict]) -> None:
        """Evict pods of a job, and emit one event per reason."""
        gone = await asyncio.gather(*map(self._evict, evictions))
        job = self._cache.cluster.jobs.get(key)
        if job is None or not job.has_group:
            return
        told = Counter(_why(e) for e, has_gone in zip(evictions, gone, strict=True) if has_gone)
        for reason, count in told.items():
            pods = "1 pod" if count == 1 else f"{count} pods"
            text = f"evicted {pods} by {reason}"
            event = Event("PodGroup", job.namespace, job.name, job.uid, "Normal", EVICT, text)
            self._event(event)

    async def _evict(self, effect: Evict) -> bool:
        """Evict a pod. If it is refused, the pod is no victim for a while."""
        try:
            async with self._binds:
                await self._send_eviction(effect)
        except NotFound:
            self._refused.pop(effect.uid, None)
            return False  # the pod is deleted
        except KubeError as error:
            self._spawn(self._mark_unevictable(effect, error))
            return False
        self.stats.evicted += 1
        self._refused.pop(effect.uid, None)
        text = f"Pod is evicted, because of {_why(effect)}"
        namespace, pod, uid = effect.namespace, effect.pod, effect.uid
        self._event(Event("Pod", namespace, pod, uid, "Warning", EVICT, text))
        return True

    async def _send_eviction(self, effect: Evict) -> None:
        """Evict through the eviction API, which respects budgets; delete if there is none.

        The eviction API sets the pod's condition itself, to a reason that names no preemptor. It is
        corrected while the pod terminates.
        """
        pod, namespace = effect.pod, effect.namespace
        try:
            await self._client.evict(pod, namespace=namespace, uid=effect.uid)
            with contextlib.suppress(NotFound):
                await self._mark(effect, "True")
            return
        except NotFound:  # no such pod, or no such API
            if await self._client.find(_PODS, pod, namespace=namespace) is None:
                raise
        except (MethodNotAllowed, Forbidden):
            pass
        await self._mark(effect, "True")
        try:
            await self._client.delete(
                PODS, pod, namespace=namespace, uid=effect.uid, missing_ok=True
            )
        except KubeError:
            with contextlib.suppress(NotFound):
                await self._mark(effect, "False")
            raise

    async def _mark(self, effect: Evict, status: str) -> None:
        """Write the reason to the pod's status, so that controllers do not count a failure.

        The uid keeps the condition off a new pod of the same name.
        """
        condition = {
            "type": PodCondition.DISRUPTION_TARGET,
            "status": status,
            "reason": PREEMPTION,
            "message": f"evicted by {_why(effect)}",
            "lastTransitionTime": format_time(self._clock.now()),
        }
        try:
            await self._client.patch(
                PODS,
                effect.pod,
                {"metadata": {"uid": effect.uid}, "status": {"conditions": [condition]}},
                namespace=effect.namespace,
                kind="strategic",
                subresource="status",
            )
        except NotFound:
            raise
        except Conflict as error:
            log.debug("pod %s/%s has a successor: %s", effect.namespace, effect.pod, error)
        except KubeError as error:
            log.warning("marking pod %s/%s failed: %s", effect.namespace, effect.pod, error)

    async def _mark_unevictable(self, effect: Evict, error: KubeError) -> None:
        """Take back the assumed eviction, and do not consider the pod as a victim for a while."""
        self.stats.evict_failures += 1
        failures = self._refused[effect.uid] = self._refused.get(effect.uid, 0) + 1
        wait_s = backoff_s(failures)
        name = f"{effect.namespace}/{effect.pod}"
        log.warning("evicting %s failed: %s; it stays for %.1f s", name, error, wait_s)
        self._cache.change(Stays(effect.uid))
        self._wake()
        await self._clock.sleep(wait_s)
        self._cache.change(Evictable(effect.uid))
        self._wake()

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


def _why(effect: Evict) -> str:
    return f"{effect.reason} for {effect.preemptor}" if effect.preemptor else effect.reason
