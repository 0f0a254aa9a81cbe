"""Stop containers: preStop hook, SIGTERM, and SIGKILL after the grace period."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from hekla.nodeagent import processes, sandbox
from hekla.nodeagent.background_tasks import BackgroundTasks
from hekla.nodeagent.container_setup import NodeContext
from hekla.nodeagent.image_config import stop_signal
from hekla.nodeagent.pod_state import PodState
from hekla.nodeagent.processes import Process
from hekla.nodeagent.runtime import ContainerRuntime

DEFAULT_GRACE_PERIOD_S = 30
MIN_HOOK_TIMEOUT_S = 0.1


class Terminator:
    """Stops the containers of a pod, each within the grace period."""

    def __init__(
        self,
        state: PodState,
        context: NodeContext,
        runtime: ContainerRuntime,
        tasks: BackgroundTasks,
    ) -> None:
        self._state = state
        self._context = context
        self._runtime = runtime
        self._tasks = tasks
        self._grace_period_s: float | None = None
        """Of a deletion; None for the pod's own."""

    def shorten_grace_period(self, grace_period_s: float) -> None:
        """Set the grace period, unless a shorter one is set."""
        if self._grace_period_s is None or grace_period_s < self._grace_period_s:
            self._grace_period_s = grace_period_s

    def stop_container(self, name: str) -> None:
        """Start to stop a container, once."""
        known = self._state.record.of(name)
        if not known.stopping:
            known.stopping = True
            message = f"Stopping container {name}"
            self._context.event(self._state.pod, "Normal", "Killing", message)
            self._tasks.start(self._stop(name))

    async def _stop(self, name: str) -> None:
        process = self._runtime.process_of(name)
        if process is None:
            return
        grace_period_s = self._grace_period_s
        if grace_period_s is None:
            grace_period_s = self._state.pod["spec"].get(
                "terminationGracePeriodSeconds", DEFAULT_GRACE_PERIOD_S
            )
        deadline = self._context.clock.now() + grace_period_s
        await self._run_pre_stop_hook(name, grace_period_s)
        await self._runtime.wait_for_setup(name)
        self._signal(name, process)
        await self._wait_for_exit(process, deadline, grace_period_s)
        self._kill(name, process)

    async def _run_pre_stop_hook(self, name: str, timeout_s: float) -> None:
        lifecycle = self._state.container(name).get("lifecycle") or {}
        hook = (lifecycle.get("preStop") or {}).get("exec")
        if hook:
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(max(MIN_HOOK_TIMEOUT_S, timeout_s)):
                    line, variables = await self._runtime.exec_command(name, hook["command"])
                    child = await asyncio.create_subprocess_exec(*line, env=variables)
                    await child.wait()

    def _signal(self, name: str, process: Process) -> None:
        """Ask a container to end: with SIGTERM, or with the signal of its image."""
        number = stop_signal(self._state.record.of(name).stop_signal)
        if number == signal.SIGTERM:
            processes.terminate(process)
        elif (command := sandbox.command_of(process.pid)) is not None:
            # Only to the command: the processes around it would not survive other signals.
            with contextlib.suppress(ProcessLookupError):
                os.kill(command, number)

    async def _wait_for_exit(
        self, process: Process, deadline: float, grace_period_s: float
    ) -> None:
        """Wait until the process has ended or the deadline, which a deletion may shorten."""
        clock = self._context.clock
        poll_s = 0.05 if grace_period_s < 2 else 0.2
        while process.is_alive and clock.now() < deadline:
            await clock.sleep(max(0.02, min(deadline - clock.now(), poll_s)))
            if self._grace_period_s is not None:
                deadline = min(deadline, clock.now() + self._grace_period_s)

    def _kill(self, name: str, process: Process) -> None:
        """Send SIGKILL to all processes of a container."""
        processes.kill(process)
        inner = sandbox.innermost(process.pid)
        if inner is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(inner, signal.SIGKILL)
        self._runtime.kill_group(name)
