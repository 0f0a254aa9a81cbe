"""The pod worker: runs one pod from acceptance to the last exit code.

The worker applies the effects of `lifecycle.next_step`, and writes the result into the pod's
record before it continues, so that a restarted agent finds its pods again. Its parts: `runtime`
starts and watches containers, `prober` probes them, `termination` stops them.
"""

from __future__ import annotations

import asyncio
import logging
import shutil

from hekla.api.wellknown import PodPhase, PodReason
from hekla.nodeagent import ephemeral_storage, lifecycle
from hekla.nodeagent.admission import Rejection
from hekla.nodeagent.background_tasks import BackgroundTasks
from hekla.nodeagent.container_setup import ContainerSetup, NodeContext, remove_all_roots
from hekla.nodeagent.lifecycle import (
    Effect,
    PodFinished,
    PodSuspended,
    RequeueAt,
    StartContainer,
    StopContainer,
)
from hekla.nodeagent.pod_state import PodState
from hekla.nodeagent.prober import Prober
from hekla.nodeagent.runtime import ContainerRuntime
from hekla.nodeagent.status import pod_status
from hekla.nodeagent.termination import DEFAULT_GRACE_PERIOD_S, Terminator
from hekla.nodeagent.volumes import unmount_below
from hekla.units.objects import Object

log = logging.getLogger("hekla.nodeagent")

HOST_IP = "127.0.0.1"
EVICTION_GRACE_S = 1.0


class PodWorker:
    """Runs one pod. `run` returns when none of its containers runs any more."""

    def __init__(self, pod: Object, context: NodeContext, address: str) -> None:
        self._context = context
        self._address = address
        self._setup = setup = ContainerSetup(pod, context, address)
        self.state = PodState(pod, setup.directory, context.clock.now())
        self._tasks = BackgroundTasks()
        self.runtime = ContainerRuntime(
            self.state,
            context,
            setup,
            self._tasks,
            on_started=lambda name: self._prober.start(name),
            on_exited=lambda name: self._prober.stop(name),
        )
        self._terminator = Terminator(self.state, context, self.runtime, self._tasks)
        self._prober = Prober(
            self.state,
            context,
            self.runtime,
            address,
            stop_container=self._terminator.stop_container,
        )
        self._phase: str = PodPhase.PENDING
        self._reported: Object | None = None

    @property
    def pod(self) -> Object:
        return self.state.pod

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called for the pod."""
        return self.state.record.stop_asked_at is not None

    @property
    def hosts(self) -> list[str]:
        """The addresses of its ports: the pod's, and on the host network also this machine's."""
        is_bridged = self._context.network is not None and not self.pod["spec"].get("hostNetwork")
        return [self._address] if is_bridged else [self._address, HOST_IP]

    @property
    def is_finished(self) -> bool:
        """Whether none of its containers runs or will run."""
        return self._phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)

    @property
    def ended_at(self) -> float:
        """When its last container ended; of a pod that never ran, when it was accepted."""
        record = self.state.record
        runs = (known.current for known in record.containers.values())
        ends = (run.finished_at for run in runs if run is not None and run.finished_at)
        return max(ends, default=record.accepted_at)

    def reject(self, rejection: Rejection) -> None:
        """Fail the pod before anything of it starts."""
        self._phase = PodPhase.FAILED
        record = self.state.record
        record.failed_reason, record.failed_message = rejection.reason, rejection.message
        self._context.event(self.pod, "Warning", rejection.reason, rejection.message)

    def stop(self, grace_period_s: float) -> None:
        """Stop the pod; a shorter grace period overrides a longer one."""
        self._terminator.shorten_grace_period(grace_period_s)
        if self.state.record.stop_asked_at is None:
            self.state.record.stop_asked_at = self._context.clock.now()
        self.state.changed.set()

    def abort(self, grace_period_s: float) -> None:
        """End the pod: the node shuts down, and does not resume its pods."""
        record = self.state.record
        if not self.is_finished and record.stop_asked_at is None and not record.failed_reason:
            record.failed_reason = PodReason.TERMINATED
            record.failed_message = lifecycle.ABORT_MESSAGE
        self.stop(grace_period_s)

    def suspend(self, grace_period_s: float) -> None:
        """Stop the containers until the next agent resumes the pod: the node shuts down."""
        if self.is_finished or self.is_stopped or self.state.record.shutdown_at is not None:
            return
        own_s = self.pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_PERIOD_S)
        self._terminator.shorten_grace_period(min(float(own_s), grace_period_s))
        self.state.record.shutdown_at = self._context.clock.now()
        message = lifecycle.SHUTDOWN_MESSAGE
        self._context.event(self.pod, "Normal", PodReason.NODE_SHUTDOWN, message)
        self.state.changed.set()

    def report_again(self) -> None:
        """Report the status although it has not changed: another writer may have changed it."""
        self._reported = None
        self.state.changed.set()

    def detach(self) -> None:
        """Stop watching the pod and leave it running: the agent stops, the pod does not."""
        self.runtime.stdin.close_all()
        self._setup.close()
        self._tasks.cancel()
        self._prober.cancel()

    def remove(self) -> None:
        """Remove everything that the pod left on this machine, except its logs."""
        self._remove_network()
        for group in self._context.cgroups.of(self.state.uid):
            group.kill()
            group.remove()
        unmount_below(self.state.directory)
        self._keep_logs()
        self._unpin_images()
        remove_all_roots(self.state.directory)
        shutil.rmtree(self.state.directory, ignore_errors=True)

    def _unpin_images(self) -> None:
        """Let the images of the pod be deleted for space: no container of it starts any more."""
        known = self.state.record.containers.values()
        if self._setup.has_pinned or any(each.image_id for each in known):
            self._setup.unpin()

    def _keep_logs(self) -> None:
        record, containers = self.state.record, self.state.directory / "containers"
        try:
            self._context.kept_logs.keep(
                record.namespace, record.name, self.state.uid, containers, owner=record.owner
            )
        except OSError as error:
            log.warning("the logs of pod %s are lost: %s", record.name, error)

    async def run(self) -> None:
        """Sync the pod after every change until it has finished."""
        self.runtime.adopt()
        if lifecycle.resume(self.pod, self.state.record):
            message = "The containers that the shutdown of the cluster interrupted start again"
            self._context.event(self.pod, "Normal", "Resumed", message)
        if ephemeral_storage.size_limits(self.pod):
            self._tasks.start(self._watch_storage())
        while True:
            effects = lifecycle.next_step(self.pod, self.state.record, self._context.clock.now())
            self.state.changed.clear()
            requeue_at = await self._apply(effects)
            self.state.try_to_save()
            if PodSuspended() in effects:
                self._stop_watching()
                await self._report_status()
                return
            if self._phase in (PodPhase.SUCCEEDED, PodPhase.FAILED):
                self._clean_up()
                await self._report_status()
                await asyncio.to_thread(self._unpin_images)
                await asyncio.to_thread(remove_all_roots, self.state.directory)
                await asyncio.to_thread(self.state.remove_data)
                self.state.try_to_save()  # there may have been no space before
                return
            if any(record.is_running for record in self.state.record.containers.values()):
                self._phase = PodPhase.RUNNING if self._is_initialized() else PodPhase.PENDING
            await self._report_status()
            has_started = any(isinstance(effect, StartContainer) for effect in effects)
            if not has_started or requeue_at is not None:
                await self._wait(requeue_at)  # else sync at once: others may start now

    async def _watch_storage(self) -> None:
        """Evict the pod if it writes more into an emptyDir than the limit."""
        record, volumes = self.state.record, self.state.directory / "volumes"
        while not record.failed_reason:
            await self._context.clock.sleep(ephemeral_storage.CHECK_S)
            message = await asyncio.to_thread(ephemeral_storage.exceeded, self.pod, volumes)
            if message and not record.failed_reason:
                record.failed_reason, record.failed_message = PodReason.EVICTED, message
                self._context.event(self.pod, "Warning", PodReason.EVICTED, message)
                self._terminator.shorten_grace_period(EVICTION_GRACE_S)
                self.state.changed.set()

    async def _apply(self, effects: list[Effect]) -> float | None:
        """Apply effects; return the time of the next sync, if any."""
        requeue_at: float | None = None
        for effect in effects:
            match effect:
                case StartContainer(name):
                    requeue_at = await self.runtime.start(name) or requeue_at
                case StopContainer(name):
                    self._terminator.stop_container(name)
                case RequeueAt(at):
                    requeue_at = at if requeue_at is None else min(requeue_at, at)
                case PodFinished(phase):
                    self._phase = phase
        return requeue_at

    def _is_initialized(self) -> bool:
        record = self.state.record
        return any(record.of(each["name"]).current for each in self.pod["spec"]["containers"])

    async def _wait(self, until: float | None) -> None:
        """Wait for a change, or until a time."""
        if until is None:
            await self.state.changed.wait()
            return
        delay_s = max(0.0, until - self._context.clock.now())
        timer = asyncio.ensure_future(self._context.clock.sleep(delay_s))
        change = asyncio.ensure_future(self.state.changed.wait())
        try:
            await asyncio.wait({timer, change}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            change.cancel()

    def _stop_watching(self) -> None:
        self._setup.close()
        self._tasks.cancel()
        self._prober.cancel()
        self.runtime.remove_groups()
        self._remove_network()

    def _clean_up(self) -> None:
        self._stop_watching()
        unmount_below(self.state.directory)

    def _remove_network(self) -> None:
        if self._context.network is not None:
            self._context.network.remove(self.state.uid)

    async def _report_status(self) -> None:
        """Report the status if it has changed."""
        status = pod_status(
            self.pod,
            self.state.record,
            phase=self._phase,
            pod_ip=self._address,
            host_ip=HOST_IP,
            now=self._context.clock.now(),
        )
        if status != self._reported:
            self._reported = status
            await self._context.report(self.pod, status)
