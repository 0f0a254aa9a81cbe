"""Run the startup, liveness and readiness probes of a pod's containers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from hekla.nodeagent import probe_handlers
from hekla.nodeagent.container_setup import NodeContext
from hekla.nodeagent.pod_state import PodState
from hekla.nodeagent.runtime import ContainerRuntime

STARTUP, LIVENESS, READINESS = "startupProbe", "livenessProbe", "readinessProbe"
DEFAULT_PERIOD_S = 10
DEFAULT_FAILURE_THRESHOLD = 3


class Prober:
    """Probes the running containers of a pod, and records whether they are started and ready."""

    def __init__(
        self,
        state: PodState,
        context: NodeContext,
        runtime: ContainerRuntime,
        address: str,
        *,
        stop_container: Callable[[str], None],
    ) -> None:
        self._state = state
        self._context = context
        self._runtime = runtime
        self._address = address
        self._stop_container = stop_container
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, name: str) -> None:
        """Probe a container that has started, if it has probes."""
        container = self._state.container(name)
        if any(kind in container for kind in (STARTUP, LIVENESS, READINESS)):
            self._tasks[name] = asyncio.create_task(self._probe(name))

    def stop(self, name: str) -> None:
        """Stop probing a container."""
        if name in self._tasks:
            self._tasks.pop(name).cancel()

    def cancel(self) -> None:
        """Stop probing all containers."""
        for task in self._tasks.values():
            task.cancel()

    async def _probe(self, name: str) -> None:
        """Run the startup probe; after its success, liveness and readiness in parallel."""
        await self._repeat(name, STARTUP, partial(self._on_startup, name))
        known = self._state.record.of(name)
        if known.started or STARTUP not in self._state.container(name):
            await asyncio.gather(
                self._repeat(name, LIVENESS, partial(self._on_liveness, name)),
                self._repeat(name, READINESS, partial(self._on_readiness, name)),
            )

    async def _repeat(self, name: str, kind: str, on_result: Callable[[bool], bool]) -> None:
        """Repeat a probe; call `on_result` at each threshold, until it returns True."""
        container, known = self._state.container(name), self._state.record.of(name)
        probe = container.get(kind)
        if probe is None:
            return
        ports = {p["name"]: p["containerPort"] for p in container.get("ports") or () if "name" in p}
        await self._context.clock.sleep(probe.get("initialDelaySeconds") or 0)
        successes = failures = 0
        while known.is_running:
            ok = await probe_handlers.check(probe, self._address, ports, partial(self._exec, name))
            successes, failures = (successes + 1, 0) if ok else (0, failures + 1)
            if ok and successes >= (probe.get("successThreshold") or 1) and on_result(True):
                return
            limit = probe.get("failureThreshold") or DEFAULT_FAILURE_THRESHOLD
            if not ok and failures >= limit and on_result(False):
                return
            await self._context.clock.sleep(probe.get("periodSeconds") or DEFAULT_PERIOD_S)

    async def _exec(self, name: str, command: list[str]) -> int:
        await self._runtime.wait_for_setup(name)
        line, variables = await self._runtime.exec_command(name, command)
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

    def _on_startup(self, name: str, ok: bool) -> bool:
        if not ok:
            return self._kill_unhealthy(name, "Startup")
        known = self._state.record.of(name)
        known.started = True
        known.ready = READINESS not in self._state.container(name)
        self._state.changed.set()
        return True

    def _on_liveness(self, name: str, ok: bool) -> bool:
        return not ok and self._kill_unhealthy(name, "Liveness")

    def _on_readiness(self, name: str, ok: bool) -> bool:
        known = self._state.record.of(name)
        if known.ready != ok:
            known.ready = ok
            self._state.changed.set()
        return False

    def _kill_unhealthy(self, name: str, kind: str) -> bool:
        message = f"{kind} probe of container {name} failed; the container is stopped"
        self._context.event(self._state.pod, "Warning", "Unhealthy", message)
        self._stop_container(name)
        return True
