"""One pod on this machine, from acceptance to its last exit code.

The worker is the edge: it asks `lifecycle.next_step` what to do, does it, and notes what came of it
in a record on disk before it goes on, so that an agent that dies at any point finds its pods again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from hekla.api.wellknown import PodPhase
from hekla.nodeagent import lifecycle, probes, processes, sandbox
from hekla.nodeagent.cgroups import Group
from hekla.nodeagent.lifecycle import ContainerRecord, Over, PodRecord, Run, Start, Stop, Wake
from hekla.nodeagent.logs import LogFile
from hekla.nodeagent.preparing import CannotStart, Kit, Launch, Surroundings
from hekla.nodeagent.processes import Process
from hekla.nodeagent.status import pod_status
from hekla.units.objects import Object

log = logging.getLogger("hekla.nodeagent")

RETRY_S = 2.0
LOG_CHECK_S = 1.0
DEFAULT_GRACE_S = 30


class PodWorker:
    """Runs one pod. `run` returns when nothing of it runs any more."""

    def __init__(self, pod: Object, around: Surroundings, address: str) -> None:
        self.pod = pod
        self._around = around
        self._address = address
        self._kit = Kit(pod, around, address)
        self._directory = self._kit.directory
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._processes: dict[str, Process] = {}
        self._groups: dict[str, Group] = {}
        self._logs: dict[str, LogFile] = {}
        self._probing: dict[str, asyncio.Task[None]] = {}
        self._inputs: dict[str, int] = {}
        self._reported: Object | None = None
        self._grace_s: float | None = None
        self.phase: str = PodPhase.PENDING
        self.record = self._load() or PodRecord(accepted_at=around.clock.now())

    # The record on disk

    def _load(self) -> PodRecord | None:
        try:
            return msgspec.json.decode(
                (self._directory / "record.json").read_bytes(), type=PodRecord
            )
        except (OSError, msgspec.MsgspecError):
            return None

    def _save(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._directory / "record.json"
        temporary = path.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(self.record))
        temporary.replace(path)

    def _try_to_save(self) -> None:
        """On a full disk the pod goes on; only an agent that dies now would know less of it."""
        try:
            self._save()
        except OSError as error:
            log.warning(
                "pod %s: its record cannot be kept: %s", self.pod["metadata"]["name"], error
            )

    # From outside

    def stop(self, grace_s: float) -> None:
        """Ask the pod to end; a shorter grace overrides a longer one."""
        if self._grace_s is None or grace_s < self._grace_s:
            self._grace_s = grace_s
        if self.record.stop_asked_at is None:
            self.record.stop_asked_at = self._around.clock.now()
        self._changed.set()

    def run_of(
        self, container: str, *, previous: bool = False, number: int | None = None
    ) -> Run | None:
        """A container's current or previous run, or the one of a number if it is one of them."""
        known = self.record.of(container)
        if number is None:
            return known.last if previous else known.current
        runs = (known.current, known.last)
        return next((run for run in runs if run is not None and run.attempt == number), None)

    def log_of(self, container: str, run: Run) -> LogFile:
        current = self._logs.get(container)
        path = self._path(container, run.attempt, "log")
        return current if current is not None and current.path == path else LogFile(path)

    def process_of(self, container: str) -> Process | None:
        return self._processes.get(container)

    async def inside(self, container: str, command: list[str]) -> tuple[list[str], dict[str, str]]:
        """The command line and variables that run something in a running container."""
        pid = self._processes[container].pid
        return await self._kit.inside(self._container(container), pid, command)

    async def _entered(self, name: str) -> None:
        """Wait until the set-up of a container that was just started is through."""
        process, run = self._processes.get(name), self.record.of(name).current
        assert run is not None
        up = self._path(name, run.attempt, "up")
        while process is not None and process.is_alive and not up.exists():
            await self._around.clock.sleep(0.005)

    @property
    def hosts(self) -> list[str]:
        """Where its ports are: its own address, and without a network of its own this machine's."""
        own_network = self._around.network is not None and not self.pod["spec"].get("hostNetwork")
        return [self._address] if own_network else [self._address, "127.0.0.1"]

    def share_cpus(self, cpus: str) -> None:
        """Keep containers without CPUs of their own to those that are left."""
        own = self._around.cpus.taken.get(self.pod["metadata"]["uid"], {})
        for name, group in self._groups.items():
            if name not in own:
                with contextlib.suppress(OSError):  # it is ending
                    group.pin(cpus)

    def detach(self) -> None:
        """Leave everything running and forget it: the agent is going, the pod is not."""
        for container in list(self._inputs):
            self.close_input(container)
        for task in [*self._tasks, *self._probing.values()]:
            task.cancel()

    def remove(self) -> None:
        """Everything the pod left on this machine."""
        self._leave_network()
        for group in self._around.cgroups.of(self.pod["metadata"]["uid"]):
            group.kill()
            group.remove()
        shutil.rmtree(self._directory, ignore_errors=True)

    # The loop

    async def run(self) -> None:
        self._adopt()
        while True:
            now = self._around.clock.now()
            effects = lifecycle.next_step(self.pod, self.record, now)
            self._changed.clear()
            wake_at: float | None = None
            for effect in effects:
                match effect:
                    case Start(name):
                        wake_at = await self._start(name) or wake_at
                    case Stop(name):
                        self._begin_stop(name)
                    case Wake(at):
                        wake_at = at if wake_at is None else min(wake_at, at)
                    case Over(phase):
                        self.phase = phase
            self._try_to_save()
            if self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED):
                self._clean_up()
                await self._report()
                return
            if any(record.is_running for record in self.record.containers.values()):
                self.phase = PodPhase.RUNNING if self._is_initialized() else PodPhase.PENDING
            await self._report()
            if not any(isinstance(effect, Start) for effect in effects) or wake_at is not None:
                await self._wait(wake_at)  # else ask again: what started may let others start

    def _is_initialized(self) -> bool:
        return any(self.record.of(c["name"]).current for c in self.pod["spec"]["containers"])

    async def _wait(self, wake_at: float | None) -> None:
        if wake_at is None:
            await self._changed.wait()
            return
        delay = max(0.0, wake_at - self._around.clock.now())
        timer = asyncio.ensure_future(self._around.clock.sleep(delay))
        change = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({timer, change}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            change.cancel()

    def _clean_up(self) -> None:
        for task in [*self._tasks, *self._probing.values()]:
            task.cancel()
        for group in self._groups.values():
            group.kill()
            group.remove()
        self._leave_network()

    def _leave_network(self) -> None:
        if self._around.network is not None:
            self._around.network.remove(self.pod["metadata"]["uid"])

    async def _report(self) -> None:
        status = pod_status(
            self.pod,
            self.record,
            phase=self.phase,
            pod_ip=self._address,
            host_ip="127.0.0.1",
            now=self._around.clock.now(),
        )
        if status != self._reported:
            self._reported = status
            await self._around.report(self.pod, status)

    # Starting

    def _container(self, name: str) -> Object:
        spec = self.pod["spec"]
        found: Object = next(
            c for c in [*spec["containers"], *(spec.get("initContainers") or ())]
            if c["name"] == name
        )  # fmt: skip
        return found

    def _path(self, container: str, attempt: int, kind: str) -> Path:
        return self._kit.path(container, attempt, kind)

    async def _start(self, name: str) -> float | None:
        """Start a container, or note why it cannot be; the time to try again, if any."""
        known = self.record.of(name)
        try:
            launch = await self._kit.launch(self._container(name), known.runs)
            process = self._spawn_noted(name, known, launch)
        except CannotStart as error:
            return self._hold(known, error.reason, str(error))
        except OSError as error:
            lifecycle.never_began(known)
            return self._hold(known, "CreateContainerError", str(error))
        self._watch(name, process)
        self._around.event(self.pod, "Normal", "Started", f"Started container {name}")
        return None

    def _spawn_noted(self, name: str, known: ContainerRecord, launch: Launch) -> Process:
        """The record goes first: an agent that dies after it must not start the process twice."""
        container, attempt = self._container(name), known.runs
        if known.current is not None:
            known.last = known.current
            self._path(name, attempt - 2, "log").unlink(missing_ok=True)  # one previous is kept
        known.waiting_reason = known.waiting_message = ""
        known.current = Run(attempt, self._around.clock.now())
        known.started = "startupProbe" not in container
        known.ready = known.started and "readinessProbe" not in container
        known.stopping = False
        if launch.group is not None:
            self._groups[name] = launch.group
        self._save()
        process = processes.spawn(
            launch.line,
            launch.variables,
            self._path(name, attempt, "log"),
            stdin=self._open_input(name, attempt),
            stdin_ends=bool(container.get("stdinOnce")),
        )
        with contextlib.suppress(OSError):  # it is found by its variables then
            self._path(name, attempt, "proc").write_text(f"{process.pid} {process.born}")
        return process

    def _open_input(self, name: str, attempt: int) -> Path | None:
        """A pipe for a container that wants input; ours to write to until it ends."""
        if not self._container(name).get("stdin"):
            return None
        path = self._path(name, attempt, "stdin")
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # For reading too: else it could not be opened before the container opens it.
        self._inputs[name] = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        return path

    def input_of(self, container: str) -> int | None:
        """Where to write what a client types for a container."""
        return self._inputs.get(container)

    def close_input(self, container: str) -> None:
        if (descriptor := self._inputs.pop(container, None)) is not None:
            os.close(descriptor)

    def _hold(self, known: ContainerRecord, reason: str, message: str) -> float:
        if known.waiting_message != message:
            self._around.event(self.pod, "Warning", reason, message)
        known.waiting_reason, known.waiting_message = reason, message
        if known.current is None:
            # `next_step` leaves a held container alone; the retry lifts the hold.
            loop = asyncio.get_running_loop()
            loop.call_later(RETRY_S, self._lift, known)
        return self._around.clock.now() + RETRY_S

    def _lift(self, known: ContainerRecord) -> None:
        known.waiting_reason = ""
        self._kit.forget()
        self._changed.set()

    # Watching

    def _adopt(self) -> None:
        """Take up containers that an earlier agent started."""
        for name, known in self.record.containers.items():
            known.stopping = False
            run = known.current
            if run is None or run.is_over:
                continue
            group = self._around.cgroups.find(self._kit.group_name(name))
            if group is not None:
                self._groups[name] = group
            process = self._find_process(name, run.attempt)
            if process is not None:
                with contextlib.suppress(OSError):
                    self._open_input(name, run.attempt)
                self._watch(name, process)
            else:
                lifecycle.never_began(known)

    def _find_process(self, name: str, attempt: int) -> Process | None:
        """The process of a run, alive or ended; None if the earlier agent died before it began."""
        try:
            pid, born = self._path(name, attempt, "proc").read_text().split()
            return Process(int(pid), int(born))
        except (OSError, ValueError):
            pass
        if self._path(name, attempt, "exit").exists():
            return Process(0, -1)
        return processes.find("HEKLA_UP", str(self._path(name, attempt, "up")))

    def _watch(self, name: str, process: Process) -> None:
        self._processes[name] = process
        run = self.record.of(name).current
        assert run is not None
        self._logs[name] = LogFile(self._path(name, run.attempt, "log"))
        self._spawn(self._await_exit(name, process))
        self._spawn(self._keep_log(name, process))
        container = self._container(name)
        kinds = ("startupProbe", "livenessProbe", "readinessProbe")
        if any(kind in container for kind in kinds):
            self._probing[name] = asyncio.create_task(self._probe(name, container))

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _await_exit(self, name: str, process: Process) -> None:
        seen = await processes.wait(process)
        known = self.record.of(name)
        run = known.current
        assert run is not None
        run.exit_code = processes.exit_code(self._path(name, run.attempt, "exit"), seen)
        run.finished_at = self._around.clock.now()
        with contextlib.suppress(OSError):
            self._logs[name].bound()  # what was written since the last look
        group = self._groups.pop(name, None)
        if group is not None:
            if run.exit_code == processes.KILLED and group.out_of_memory():
                run.reason = "OOMKilled"
            group.kill()
            group.remove()
        if run.exit_code in (126, 127, 128) and not run.reason:
            run.reason = "StartError"
            run.message = self._last_words(name)
        lifecycle.ended(known, run.finished_at)
        if name in self._probing:
            self._probing.pop(name).cancel()
        self._processes.pop(name, None)
        self.close_input(name)
        self._changed.set()

    def _last_words(self, name: str) -> str:
        file = self._logs[name]
        with contextlib.suppress(OSError):
            return b"".join(file.read(file.tail(3)))[-500:].decode(errors="replace").strip()
        return ""

    async def _keep_log(self, name: str, process: Process) -> None:
        """Note the times of output, and keep it within bounds."""
        file = self._logs[name]
        while process.is_alive:
            file.mark(self._around.clock.now())
            with contextlib.suppress(OSError):
                file.bound()
            await self._around.clock.sleep(LOG_CHECK_S)

    async def _probe(self, name: str, container: Object) -> None:
        """Startup first; then liveness and readiness side by side."""
        known = self.record.of(name)
        ports = {p["name"]: p["containerPort"] for p in container.get("ports") or () if "name" in p}

        async def execute(command: list[str]) -> int:
            await self._entered(name)
            line, variables = await self.inside(name, command)
            child = await asyncio.create_subprocess_exec(
                *line,
                env=variables,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                return await child.wait()
            finally:
                if child.returncode is None:
                    child.kill()

        async def watch(kind: str, on_change: Callable[[bool], bool]) -> None:
            probe = container.get(kind)
            if probe is None:
                return
            await self._around.clock.sleep(probe.get("initialDelaySeconds") or 0)
            good = bad = 0
            while known.is_running:
                ok = await probes.check(probe, self._address, ports, execute)
                good, bad = (good + 1, 0) if ok else (0, bad + 1)
                if ok and good >= (probe.get("successThreshold") or 1) and on_change(True):
                    return
                if not ok and bad >= (probe.get("failureThreshold") or 3) and on_change(False):
                    return
                await self._around.clock.sleep(probe.get("periodSeconds") or 10)

        def started(ok: bool) -> bool:
            if not ok:
                return self._unhealthy(name, "Startup")
            known.started = True
            known.ready = "readinessProbe" not in container
            self._changed.set()
            return True

        def ready(ok: bool) -> bool:
            if known.ready != ok:
                known.ready = ok
                self._changed.set()
            return False

        await watch("startupProbe", started)
        if known.started or "startupProbe" not in container:
            await asyncio.gather(
                watch("livenessProbe", lambda ok: not ok and self._unhealthy(name, "Liveness")),
                watch("readinessProbe", ready),
            )

    def _unhealthy(self, name: str, kind: str) -> bool:
        message = f"{kind} probe of container {name} failed; it will be stopped"
        self._around.event(self.pod, "Warning", "Unhealthy", message)
        self._begin_stop(name)
        return True

    # Stopping

    def _begin_stop(self, name: str) -> None:
        known = self.record.of(name)
        if not known.stopping:
            known.stopping = True
            self._around.event(self.pod, "Normal", "Killing", f"Stopping container {name}")
            self._spawn(self._stop(name))

    async def _stop(self, name: str) -> None:
        """preStop, SIGTERM, and after the grace period SIGKILL to all that is left."""
        process = self._processes.get(name)
        if process is None:
            return
        grace = self._grace_s
        if grace is None:
            grace = self.pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
        clock = self._around.clock
        ends = clock.now() + grace
        hook = ((self._container(name).get("lifecycle") or {}).get("preStop") or {}).get("exec")
        if hook:
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(max(0.1, grace)):
                    line, variables = await self.inside(name, hook["command"])
                    child = await asyncio.create_subprocess_exec(*line, env=variables)
                    await child.wait()
        await self._entered(name)
        processes.terminate(process)
        while process.is_alive and clock.now() < ends:
            remaining = min(ends, clock.now() + 0.5) - clock.now()
            await clock.sleep(max(0.02, min(remaining, 0.05 if grace < 2 else 0.2)))
            if self._grace_s is not None:
                ends = min(ends, clock.now() + self._grace_s)
        processes.kill(process)
        inner = sandbox.innermost(process.pid)
        if inner is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(inner, 9)
        if name in self._groups:
            self._groups[name].kill()
