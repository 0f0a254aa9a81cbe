"""The container runtime of one pod: processes, cgroups, logs and input of its containers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hekla.api.numa import STATIC
from hekla.nodeagent import lifecycle, processes
from hekla.nodeagent.background_tasks import BackgroundTasks
from hekla.nodeagent.cgroups import Group
from hekla.nodeagent.container_setup import (
    LONG_S,
    MARK,
    CannotStart,
    ContainerSetup,
    LaunchSpec,
    NodeContext,
)
from hekla.nodeagent.container_stdin import ContainerStdin
from hekla.nodeagent.image_config import image_id
from hekla.nodeagent.lifecycle import ContainerRecord, ContainerRun
from hekla.nodeagent.logs import LogFile
from hekla.nodeagent.pod_state import PodState
from hekla.nodeagent.processes import Process
from hekla.units.cpusets import format_cpuset

RETRY_S = 2.0
LOG_CHECK_S = 1.0
SETUP_POLL_S = 0.005
START_ERROR_CODES = (126, 127, 128)


class ContainerRuntime:
    """Starts the containers of a pod, and watches them until they exit."""

    def __init__(
        self,
        state: PodState,
        context: NodeContext,
        setup: ContainerSetup,
        tasks: BackgroundTasks,
        *,
        on_started: Callable[[str], None],
        on_exited: Callable[[str], None],
    ) -> None:
        self._state = state
        self._context = context
        self._setup = setup
        self._tasks = tasks
        self._on_started = on_started
        self._on_exited = on_exited
        self._processes: dict[str, Process] = {}
        self._groups: dict[str, Group] = {}
        self._logs: dict[str, LogFile] = {}
        self.stdin = ContainerStdin()

    def process_of(self, container: str) -> Process | None:
        """Return the process of a running container."""
        return self._processes.get(container)

    def log_of(self, container: str, run: ContainerRun) -> LogFile:
        """Return the log of a run."""
        current = self._logs.get(container)
        path = self._path(container, run.attempt, "log")
        return current if current is not None and current.path == path else LogFile(path)

    async def exec_command(
        self, container: str, command: list[str]
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command line and variables that run a command in a running container."""
        await self.wait_for_setup(container)
        pid, image_id = self._processes[container].pid, self._state.record.of(container).image_id
        spec = self._state.container(container)
        return await self._setup.exec_command(spec, pid, command, image_id)

    async def wait_for_setup(self, name: str) -> None:
        """Wait until the sandbox of a container that was just started is set up."""
        process, run = self._processes.get(name), self._state.record.of(name).current
        assert run is not None
        while process is not None and process.is_alive and not self._is_set_up(name, run):
            await self._context.clock.sleep(SETUP_POLL_S)

    def _is_set_up(self, name: str, run: ContainerRun) -> bool:
        if self._path(name, run.attempt, "up").exists():  # started by hekla 0.2.0
            return True
        try:
            return self._path(name, run.attempt, "ready").stat().st_size > 0
        except FileNotFoundError:
            return False

    def use_shared_cpus(self, cpus: str) -> None:
        """Restrict containers without exclusive CPUs to the shared pool."""
        exclusive = self._context.cpus.assignments.get(self._state.uid, {})
        for name, group in self._groups.items():
            if name not in exclusive:
                with contextlib.suppress(OSError):  # the container is ending
                    group.pin(cpus)

    def kill_group(self, name: str) -> None:
        """Kill all processes of a container."""
        if name in self._groups:
            self._groups[name].kill()

    def remove_groups(self) -> None:
        """Kill and remove the cgroups of all containers."""
        for group in self._groups.values():
            group.kill()
            group.remove()

    # Start

    async def start(self, name: str) -> float | None:
        """Start a container, or record why it waits; return the time of the retry, if any."""
        known = self._state.record.of(name)
        try:
            launch = await self._setup.launch(
                self._state.container(name), known.runs, partial(self._on_image, known)
            )
            process = self._spawn(name, known, launch)
        except CannotStart as error:
            return self._wait_to_retry(
                known,
                error.reason,
                str(error),
                RETRY_S if error.retry_s is None else error.retry_s,
                is_reported=error.is_reported,
            )
        except OSError as error:
            lifecycle.discard_unstarted_run(known)
            return self._wait_to_retry(known, "CreateContainerError", str(error))
        self._watch(name, process)
        self._context.event(self._state.pod, "Normal", "Started", f"Started container {name}")
        return None

    def _spawn(self, name: str, known: ContainerRecord, launch: LaunchSpec) -> Process:
        """Start the process of a container.

        The record is written first: an agent that restarts after it must not start a second one.
        """
        container, attempt = self._state.container(name), known.runs
        if known.current is not None:
            known.last = known.current
        self._path(name, attempt - 2, "log").unlink(missing_ok=True)  # keep one previous log
        known.waiting_reason = known.waiting_message = ""
        known.current = ContainerRun(attempt, self._context.clock.now())
        known.started = "startupProbe" not in container
        known.ready = known.started and "readinessProbe" not in container
        known.stopping = False
        known.image_id = known.stop_signal = ""
        if launch.image is not None:
            known.image_id = image_id(container["image"], launch.image.digest)
            known.stop_signal = launch.image.config.stop_signal
        if launch.group is not None:
            self._groups[name] = launch.group
        self._state.save()
        stdin, log = self._open_stdin(name, attempt), self._path(name, attempt, "log")
        if launch.owner is not None:
            log.touch(mode=0o600)
            for path in (log, stdin):
                if path is not None:  # programs open them again as /dev/stdout and /dev/stdin
                    os.chown(path, *launch.owner)
        return self._start_process(name, attempt, launch, log, stdin)

    def _start_process(
        self, name: str, attempt: int, launch: LaunchSpec, log: Path, stdin: Path | None
    ) -> Process:
        """Start the process, in one that waits for that if there is one."""
        ends = bool(self._state.container(name).get("stdinOnce"))
        exit_file, record = self._path(name, attempt, "exit"), self._path(name, attempt, "proc")
        warm = self._context.warm.take()
        if warm is not None:
            # Written first: see `warm_starts`.
            record.write_text(f"{warm.process.pid} {warm.process.born}")
            warm.become(
                launch.launch.spec,
                log,
                exit_file,
                stdin=stdin,
                stdin_ends=ends,
                descriptors=launch.descriptors,
            )
            return warm.process
        process = processes.spawn(
            launch.launch.line,
            launch.variables,
            log,
            stdin=stdin,
            stdin_ends=ends,
            descriptors=launch.descriptors,
        )
        with contextlib.suppress(OSError):  # then it is found by its variables
            record.write_text(f"{process.pid} {process.born}")
        return process

    def _open_stdin(self, name: str, attempt: int) -> Path | None:
        if not self._state.container(name).get("stdin"):
            return None
        path = self._path(name, attempt, "stdin")
        self.stdin.open(name, path)
        return path

    def _wait_to_retry(
        self,
        known: ContainerRecord,
        reason: str,
        message: str,
        delay_s: float = RETRY_S,
        *,
        is_reported: bool = False,
    ) -> float:
        if known.waiting_message != message and not is_reported:
            self._context.event(self._state.pod, "Warning", reason, message)
        known.waiting_reason, known.waiting_message = reason, message
        if known.current is None and delay_s < LONG_S:
            # `next_step` does not start a container with a waiting reason; the retry clears it.
            asyncio.get_running_loop().call_later(delay_s, self._clear_waiting, known)
        return self._context.clock.now() + delay_s

    def _clear_waiting(self, known: ContainerRecord) -> None:
        known.waiting_reason = ""
        self._setup.forget()
        self._state.changed.set()

    def _on_image(self, known: ContainerRecord, message: str | None) -> None:
        """Show how far a pull is, or continue after it."""
        if known.is_running:
            return
        known.waiting_message = message or ""
        if message is None:
            known.waiting_reason = ""
        self._state.changed.set()

    # Watch

    def adopt(self) -> None:
        """Watch the containers that an earlier agent started."""
        for name, known in self._state.record.containers.items():
            known.stopping = False
            run = known.current
            if run is None:
                known.waiting_reason = ""  # what would have cleared it ended with the last agent
            if run is None or run.is_over:
                continue
            group = self._context.cgroups.find(self._setup.group_name(name))
            if group is not None:
                self._groups[name] = group
            process = self._find_process(name, run.attempt)
            if process is not None and self._is_lost(name, run.attempt, process):
                lifecycle.record_lost_run(known, processes.KILLED, self._context.clock.now())
            elif process is not None:
                with contextlib.suppress(OSError):
                    self._open_stdin(name, run.attempt)
                self._watch(name, process)
            else:
                lifecycle.discard_unstarted_run(known)
        if self._groups and self._context.cpus.policy == STATIC:
            # CPUs may have been released since, before these groups were known here.
            self.use_shared_cpus(format_cpuset(self._context.cpus.shared_pool()))

    def _is_lost(self, name: str, attempt: int, process: Process) -> bool:
        """Return whether a process was killed together with the shell that reports its end.

        So it is after a restart of the machine, or if all processes of the cluster were killed.
        """
        # In this order: a process that ends now has written its exit code before.
        return not process.is_alive and not self._path(name, attempt, "exit").exists()

    def _find_process(self, name: str, attempt: int) -> Process | None:
        """Return the process of a run, alive or ended; None if it was never started."""
        try:
            pid, born = self._path(name, attempt, "proc").read_text().split()
            return Process(int(pid), int(born))
        except (OSError, ValueError):
            pass
        if self._path(name, attempt, "exit").exists():
            return Process(0, -1)
        return processes.find(MARK, str(self._path(name, attempt, "up")))

    def _watch(self, name: str, process: Process) -> None:
        self._processes[name] = process
        run = self._state.record.of(name).current
        assert run is not None
        self._logs[name] = LogFile(self._path(name, run.attempt, "log"))
        self._tasks.start(self._await_exit(name, process))
        self._tasks.start(self._maintain_log(name, process))
        self._on_started(name)

    async def _await_exit(self, name: str, process: Process) -> None:
        seen = await processes.wait(process)
        known = self._state.record.of(name)
        run = known.current
        assert run is not None
        run.exit_code = processes.exit_code(self._path(name, run.attempt, "exit"), seen)
        run.finished_at = self._context.clock.now()
        with contextlib.suppress(OSError):
            self._logs[name].bound()  # output since the last check
        group, usage = self._groups.pop(name, None), None
        if group is not None:
            usage = group.usage()
            if run.exit_code == processes.KILLED and group.out_of_memory():
                run.reason = "OOMKilled"
            group.kill()
            group.remove()
        if run.exit_code in START_ERROR_CODES and not run.reason:
            run.reason = "StartError"
            run.message = self._last_output(name)
        lifecycle.record_exit(known, run.finished_at, usage)
        self._on_exited(name)
        self._processes.pop(name, None)
        self.stdin.close(name)
        self._state.changed.set()

    def _last_output(self, name: str) -> str:
        file = self._logs[name]
        with contextlib.suppress(OSError):
            return b"".join(file.read(file.tail(3)))[-500:].decode(errors="replace").strip()
        return ""

    async def _maintain_log(self, name: str, process: Process) -> None:
        """Index the times of output, and bound its size."""
        file = self._logs[name]
        while process.is_alive:
            file.mark(self._context.clock.now())
            with contextlib.suppress(OSError):
                file.bound()
            await self._context.clock.sleep(LOG_CHECK_S)

    def _path(self, container: str, attempt: int, kind: str) -> Path:
        return self._setup.path(container, attempt, kind)
