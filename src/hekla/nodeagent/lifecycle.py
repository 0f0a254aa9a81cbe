"""Decide the next steps of a pod: its record in, effects out. Pure.

The agent keeps a `PodRecord` of runs, exits and probe results and calls `next_step` after every
change: start a container, stop one, sync again later, the pod has finished. This module touches no
process, and no other module decides.

A shutdown of the node stops the containers of a pod, and the pod is resumed at the next start: what
was running is started again, and does not count as a failure.

Note: a *sidecar* is an init container with restart policy Always. It starts in order like an init
container, runs beside the main containers, and stops after them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from hekla.api.history import PodUsage
from hekla.api.wellknown import PodPhase, PodReason
from hekla.units.objects import Object

BACKOFF_BASE_S: Final = 10.0
BACKOFF_CAP_S: Final = 300.0
BACKOFF_RESET_S: Final = 600.0
"""After a run of this length the back-off starts again."""
SHUTDOWN_MESSAGE: Final = "the cluster was shut down; the containers start again when it is up"
ABORT_MESSAGE: Final = (
    "the cluster was stopped with its pods: `hekla down --abort`, or the end of a temporary cluster"
)


@dataclass(slots=True)
class ContainerRun:
    """One run of a container, running or ended."""

    attempt: int
    started_at: float
    finished_at: float | None = None
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    interrupted: bool = False
    """Whether it ended by a shutdown of the node, or together with the machine."""

    @property
    def is_over(self) -> bool:
        return self.exit_code is not None


@dataclass(slots=True)
class ContainerRecord:
    """The recorded state of one container."""

    runs: int = 0
    """The number of ended runs."""
    current: ContainerRun | None = None
    last: ContainerRun | None = None
    failures: int = 0
    """Consecutive short runs, for the back-off."""
    started: bool = False
    ready: bool = False
    waiting_reason: str = ""
    waiting_message: str = ""
    stopping: bool = False
    cpu_seconds: float = 0.0
    memory_peak_bytes: int = 0
    """CPU time of all measured runs, and the highest peak of one."""
    measured_runs: int = 0
    """The number of ended runs whose use is known."""
    image_id: str = ""
    """Name and digest of the image that it runs; empty for programs of this machine."""
    stop_signal: str = ""
    """The signal of that image, empty for SIGTERM."""

    @property
    def is_running(self) -> bool:
        return self.current is not None and not self.current.is_over

    @property
    def is_waiting_to_restart(self) -> bool:
        return bool(self.waiting_reason) and self.current is not None and self.current.is_over

    @property
    def previous(self) -> ContainerRun | None:
        """The ended run that the status shows as the last one.

        While the container waits to be restarted, this is the run that ended just now.
        """
        return self.current if self.is_waiting_to_restart else self.last

    @property
    def restarts(self) -> int:
        return max(0, self.runs - (0 if self.is_running else 1))


@dataclass(slots=True)
class PodRecord:
    """The recorded state of a pod. It is stored as JSON: field names must stay."""

    accepted_at: float
    containers: dict[str, ContainerRecord] = field(default_factory=dict)
    stop_asked_at: float | None = None
    failed_reason: str = ""
    failed_message: str = ""
    shutdown_at: float | None = None
    """When a shutdown of the node began, until the pod is resumed."""
    namespace: str = ""
    name: str = ""
    owner: str = ""
    """For the logs of a pod whose object was deleted while no agent ran."""

    def of(self, name: str) -> ContainerRecord:
        return self.containers.setdefault(name, ContainerRecord())


@dataclass(frozen=True, slots=True)
class StartContainer:
    """Start the next run of a container."""

    container: str


@dataclass(frozen=True, slots=True)
class StopContainer:
    """Stop a running container."""

    container: str


@dataclass(frozen=True, slots=True)
class RequeueAt:
    """Sync the pod again at this time."""

    at: float


@dataclass(frozen=True, slots=True)
class PodFinished:
    """No container runs, and none will."""

    phase: str


@dataclass(frozen=True, slots=True)
class PodSuspended:
    """No container runs until the pod is resumed."""


Effect = StartContainer | StopContainer | RequeueAt | PodFinished | PodSuspended


def is_sidecar(container: Object) -> bool:
    """Return whether an init container is a sidecar."""
    return container.get("restartPolicy") == "Always"


def backoff_s(failures: int) -> float:
    """Return the delay of a restart: none for the first, then 10 s, doubling up to 5 minutes."""
    if failures <= 1:
        return 0.0
    return float(min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2 ** min(failures - 2, 10)))


def discard_unstarted_run(known: ContainerRecord) -> None:
    """Discard a run that was recorded but not started, because the agent died in between."""
    known.current, known.last = known.last, None


def record_exit(record: ContainerRecord, now: float, usage: PodUsage | None = None) -> None:
    """Record that the current run has ended, and what it has used if that was measured."""
    run = record.current
    assert run is not None
    record.runs += 1
    if usage is not None:
        record.measured_runs += 1
        record.cpu_seconds += usage.cpu_seconds
        record.memory_peak_bytes = max(record.memory_peak_bytes, usage.memory_peak_bytes)
    record.ready = record.started = record.stopping = False
    ran_s = (now if run.finished_at is None else run.finished_at) - run.started_at
    record.failures = 1 if ran_s >= BACKOFF_RESET_S else record.failures + 1


def pod_usage(pod: Object, record: PodRecord) -> PodUsage | None:
    """Return what an ended pod has used; None unless every run of its containers was measured.

    The peak is that of the main containers together, or of an init container if that is higher. The
    containers need not have peaked at the same time, so it is an upper bound.
    """
    known = record.containers
    if not any(each.runs for each in known.values()):
        return None
    if any(each.measured_runs < each.runs for each in known.values()):
        return None
    own_phase = {
        each["name"] for each in pod["spec"].get("initContainers") or () if not is_sidecar(each)
    }
    together = sum(each.memory_peak_bytes for name, each in known.items() if name not in own_phase)
    alone = (each.memory_peak_bytes for name, each in known.items() if name in own_phase)
    return PodUsage(
        round(sum(each.cpu_seconds for each in known.values()), 6), max([together, *alone])
    )


def record_lost_run(known: ContainerRecord, exit_code: int, now: float) -> None:
    """Record a run that ended together with the machine: no process is left, and no exit code."""
    run = known.current
    assert run is not None
    run.interrupted, run.exit_code, run.finished_at = True, exit_code, now
    record_exit(known, now)


def resume(pod: Object, record: PodRecord) -> bool:
    """Let interrupted containers start again; return whether there are any.

    The init containers run again too, as after a restart of a machine in Kubernetes. Containers
    that have finished stay finished.
    """
    was_suspended, record.shutdown_at = record.shutdown_at is not None, None
    if was_suspended:
        for known in record.containers.values():
            known.waiting_reason = known.waiting_message = ""
    if record.stop_asked_at is not None or record.failed_reason:
        return False
    interrupted = [name for name, known in record.containers.items() if _is_interrupted(known)]
    if not interrupted:
        return was_suspended
    inits = [c["name"] for c in pod["spec"].get("initContainers") or ()]
    for name in {*interrupted, *inits}:
        known = record.of(name)
        if known.current is not None and known.current.is_over:
            known.last, known.current, known.failures = known.current, None, 0
    return True


def _is_interrupted(known: ContainerRecord) -> bool:
    return known.current is not None and known.current.is_over and known.current.interrupted


def next_step(pod: Object, record: PodRecord, now: float) -> list[Effect]:
    """Return the effects that sync a pod."""
    spec = pod["spec"]
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not record.failed_reason:
        ends = record.accepted_at + deadline
        if now >= ends:
            record.failed_reason = PodReason.DEADLINE_EXCEEDED
            record.failed_message = "Pod was active on the node longer than the specified deadline"
    if record.stop_asked_at is not None or record.failed_reason:
        return _terminate(pod, record)
    if record.shutdown_at is not None:
        return _suspend(pod, record)
    effects = list(_sync_containers(pod, record, now))
    if deadline is not None and not any(isinstance(effect, PodFinished) for effect in effects):
        effects.append(RequeueAt(record.accepted_at + deadline))
    return effects


def _all(spec: Object) -> list[Object]:
    return [*(spec.get("initContainers") or ()), *spec["containers"]]


def _suspend(pod: Object, record: PodRecord) -> list[Effect]:
    """Stop all containers; then the pod is suspended, or finished if it had nothing left to do."""
    if stops := _stops(pod["spec"], record):
        for name in stops:
            if (run := record.of(name).current) is not None:
                run.interrupted = True
        return [StopContainer(name) for name in stops if not record.of(name).stopping]
    policy = pod["spec"].get("restartPolicy") or "Always"
    mains = [record.of(container["name"]) for container in pod["spec"]["containers"]]
    if not any(_is_interrupted(known) or _will_restart(known, policy) for known in mains):
        return list(_finish_pod(pod["spec"], record))
    for known in record.containers.values():
        if _is_interrupted(known):
            known.waiting_reason = PodReason.NODE_SHUTDOWN
            known.waiting_message = SHUTDOWN_MESSAGE
    return [PodSuspended()]


def _terminate(pod: Object, record: PodRecord) -> list[Effect]:
    """Stop all containers; then the pod has finished."""
    if stops := _stops(pod["spec"], record):
        return [StopContainer(name) for name in stops if not record.of(name).stopping]
    if record.failed_reason:
        return [PodFinished(PodPhase.FAILED)]
    return [PodFinished(_final_phase(pod["spec"], record))]


def _stops(spec: Object, record: PodRecord) -> list[str]:
    """Return what to stop next: the main containers, then the others in reverse order."""
    mains = [c["name"] for c in spec["containers"]]
    running = [name for name in mains if record.of(name).is_running]
    if not running:
        others = [c["name"] for c in reversed(spec.get("initContainers") or [])]
        running = [name for name in others if record.of(name).is_running][:1]
    return running


def _final_phase(spec: Object, record: PodRecord) -> str:
    codes = []
    for container in spec["containers"]:
        run = record.of(container["name"]).current
        codes.append(run.exit_code if run is not None and run.is_over else 1)
    return PodPhase.SUCCEEDED if not any(codes) else PodPhase.FAILED


def _sync_containers(pod: Object, record: PodRecord, now: float) -> Iterator[Effect]:
    spec = pod["spec"]
    policy = spec.get("restartPolicy") or "Always"
    mains = [record.of(container["name"]) for container in spec["containers"]]
    if not any(known.is_running or _will_restart(known, policy) for known in mains):
        yield from _finish_pod(spec, record)
        return
    for container in spec.get("initContainers") or ():
        known = record.of(container["name"])
        if is_sidecar(container):
            yield from _keep_running(container, known, "Always", now)
            if not known.started:
                return
            continue
        run = known.current
        if run is not None and run.is_over and run.exit_code == 0:
            continue
        if run is not None and run.is_over and policy == "Never":
            record.failed_reason = record.failed_reason or "InitFailed"
            record.failed_message = (
                f"init container {container['name']!r} failed with exit code {run.exit_code}"
            )
            yield from _terminate(pod, record)
            return
        # For an init container, Always means OnFailure.
        yield from _keep_running(container, known, "OnFailure", now)
        return
    for container in spec["containers"]:
        yield from _keep_running(container, record.of(container["name"]), policy, now)


def _finish_pod(spec: Object, record: PodRecord) -> Iterator[Effect]:
    """Stop the sidecars when the main containers have finished."""
    sidecars = [c["name"] for c in spec.get("initContainers") or () if is_sidecar(c)]
    running = [name for name in reversed(sidecars) if record.of(name).is_running]
    if running:
        yield from (StopContainer(name) for name in running if not record.of(name).stopping)
    else:
        yield PodFinished(_final_phase(spec, record))


def _will_restart(known: ContainerRecord, policy: str) -> bool:
    run = known.current
    if run is None:
        return True
    if policy == "Always":
        return True
    return policy == "OnFailure" and run.is_over and run.exit_code != 0


def _keep_running(
    container: Object, known: ContainerRecord, policy: str, now: float
) -> Iterator[Effect]:
    if known.is_running:
        return
    if known.current is None:
        if not known.waiting_reason:
            yield StartContainer(container["name"])
        return
    if not _will_restart(known, policy):
        return
    finished = known.current.finished_at
    due = (now if finished is None else finished) + backoff_s(known.failures)
    if now >= due:
        known.waiting_reason = known.waiting_message = ""
        yield StartContainer(container["name"])
    else:
        known.waiting_reason = "CrashLoopBackOff"
        known.waiting_message = (
            f"back-off {backoff_s(known.failures):.0f}s restarting failed container"
        )
        yield RequeueAt(due)
