"""The node agent: registers this machine as a node and runs the pods bound to it as processes.

Each container is a process group of its own, its output in a file. This first form runs pods whose
image is `host`: the commands of this machine. A pod with any other image waits, and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hekla.api.wellknown import PodPhase
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, KubeError, NotFound
from hekla.kube.informers import Informer
from hekla.kube.resources import NODES, PODS
from hekla.units.clock import Clock, SystemClock
from hekla.units.timestamps import format_time

log = logging.getLogger("hekla.nodeagent")

HOST_IMAGE = "host"
MAX_PODS = 500
CHUNK = 64 * 1024
Object = dict[str, Any]


@dataclass
class Running:
    """A pod at work: the tasks that look after its containers."""

    task: asyncio.Task[None]
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    logs: dict[str, Path] = field(default_factory=dict)
    wrote: asyncio.Condition = field(default_factory=asyncio.Condition)
    done: bool = False


class Agent:
    """Runs the pods of one node."""

    def __init__(
        self, client: Client, node: str, directory: Path, *, clock: Clock | None = None
    ) -> None:
        self._client = client
        self.node = node
        self._directory = directory
        self._clock = clock or SystemClock()
        self._running: dict[str, Running] = {}
        self._pods: Informer[Object] = Informer(
            client, PODS, dict, field_selector=f"spec.nodeName={node}"
        )

    async def run(self) -> None:
        """Until cancelled; then the pods' processes are stopped."""
        await self._register()
        self._pods.add_handler(self._note)
        try:
            async with self._pods:
                await asyncio.Event().wait()
        finally:
            for running in self._running.values():
                running.task.cancel()
            tasks = [running.task for running in self._running.values()]
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _register(self) -> None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        resources = {
            "cpu": str(os.cpu_count() or 1),
            "memory": f"{memory // 1024}Ki",
            "pods": str(MAX_PODS),
        }
        node: Object = {
            "metadata": {"name": self.node, "labels": {"kubernetes.io/hostname": self.node}},
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "conditions": [
                    {"type": "Ready", "status": "True", "reason": "AgentReady",
                     "lastTransitionTime": self._now()},
                ],
            },
        }  # fmt: skip
        try:
            await self._client.create(NODES, node)
        except AlreadyExists:
            await self._client.patch_status(NODES, self.node, node["status"])

    def _now(self) -> str:
        return format_time(self._clock.now())

    def _note(self, _: str, old: Object | None, new: Object | None) -> None:
        pod = new or old
        assert pod is not None
        uid = pod["metadata"]["uid"]
        running = self._running.get(uid)
        leaving = new is None or "deletionTimestamp" in pod["metadata"]
        if running is not None:
            if leaving and not running.done:
                running.task.cancel()
            return
        finished = (pod.get("status") or {}).get("phase") in (PodPhase.SUCCEEDED, PodPhase.FAILED)
        if new is not None and not (finished and not leaving):
            task = asyncio.create_task(self._look_after(pod, leaving=leaving))
            self._running[uid] = Running(task)

    async def _look_after(self, pod: Object, *, leaving: bool) -> None:
        """A pod's whole life here."""
        metadata = pod["metadata"]
        try:
            if not leaving:
                await self._run_pod(pod)
        except asyncio.CancelledError:
            leaving = True
        except KubeError as error:
            log.warning("pod %s/%s: %s", metadata["namespace"], metadata["name"], error)
        finally:
            running = self._running[metadata["uid"]]
            await self._stop(running, pod["spec"].get("terminationGracePeriodSeconds", 30))
            running.done = True
            async with running.wrote:
                running.wrote.notify_all()
        if leaving:
            with contextlib.suppress(KubeError):
                await self._client.delete(
                    PODS,
                    metadata["name"],
                    namespace=metadata["namespace"],
                    grace_period_s=0,
                    uid=metadata["uid"],
                )

    async def _run_pod(self, pod: Object) -> None:
        running = self._running[pod["metadata"]["uid"]]
        containers = pod["spec"]["containers"]
        foreign = [c["image"] for c in containers if c["image"] != HOST_IMAGE]
        if foreign:
            await self._report(pod, PodPhase.PENDING, [_waiting(c) for c in containers])
            return
        started = self._now()
        for container in containers:
            await self._start(pod, running, container)
        await self._report(
            pod, PodPhase.RUNNING, [_state(c, "running", startedAt=started) for c in containers]
        )
        codes = {
            name: await self._wait(process, running) for name, process in running.processes.items()
        }
        phase = PodPhase.SUCCEEDED if not any(codes.values()) else PodPhase.FAILED
        finished = self._now()
        await self._report(
            pod,
            phase,
            [
                _state(
                    c,
                    "terminated",
                    exitCode=codes[c["name"]],
                    reason="Completed" if codes[c["name"]] == 0 else "Error",
                    startedAt=started,
                    finishedAt=finished,
                )
                for c in containers
            ],
        )

    async def _start(self, pod: Object, running: Running, container: Object) -> None:
        directory = self._directory / pod["metadata"]["uid"]
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = directory / f"{container['name']}.log"
        running.logs[container["name"]] = path
        command = [*(container.get("command") or ()), *(container.get("args") or ())]
        environment = {**os.environ, "HOSTNAME": pod["metadata"]["name"]}
        environment |= {e["name"]: e.get("value", "") for e in container.get("env") or ()}
        with path.open("wb") as output:
            running.processes[container["name"]] = await asyncio.create_subprocess_exec(
                *(command or ["true"]),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                cwd=container.get("workingDir") or directory,
                env=environment,
                start_new_session=True,
            )

    async def _wait(self, process: asyncio.subprocess.Process, running: Running) -> int:
        code = await process.wait()
        async with running.wrote:
            running.wrote.notify_all()
        return code if code >= 0 else 128 - code

    async def _stop(self, running: Running, grace_s: float) -> None:
        alive = [p for p in running.processes.values() if p.returncode is None]
        for process in alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_s):
                await asyncio.gather(*(process.wait() for process in alive))
        except TimeoutError:
            for process in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            await asyncio.gather(*(process.wait() for process in alive))

    async def _report(self, pod: Object, phase: str, statuses: list[Object]) -> None:
        metadata = pod["metadata"]
        ready = "True" if phase == PodPhase.RUNNING else "False"
        status = {
            "phase": phase,
            "containerStatuses": statuses,
            "startTime": self._now(),
            "conditions": [
                *(c for c in (pod.get("status") or {}).get("conditions") or ()
                  if c["type"] not in ("Ready", "ContainersReady")),
                {"type": "Ready", "status": ready, "lastTransitionTime": self._now()},
                {"type": "ContainersReady", "status": ready, "lastTransitionTime": self._now()},
            ],
        }  # fmt: skip
        with contextlib.suppress(NotFound):
            await self._client.patch_status(
                PODS, metadata["name"], status, namespace=metadata["namespace"]
            )

    async def logs(self, pod: Object, request: Any) -> AsyncIterator[bytes]:
        """A container's output, to its end when `request.follow` is set."""
        running = self._running.get(pod["metadata"]["uid"])
        path = self._directory / pod["metadata"]["uid"] / f"{request.container}.log"
        if not path.exists():
            return
        with path.open("rb") as file:
            while True:
                ended = running is None or running.done
                if data := file.read(CHUNK):
                    yield data
                elif ended or not request.follow:
                    return
                else:
                    assert running is not None
                    await self._more(running)

    async def stream(self, pod: Object, request: Any, channels: Any) -> Object:
        """exec, attach and port-forward: refused, with the reason, until pods have an inside."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": "NotImplemented",
            "message": f"this node agent does not offer {request.verb} yet",
            "code": 501,
        }

    async def _more(self, running: Running) -> None:
        """Until the pod ends, or long enough for more output to have come."""
        async with running.wrote:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await running.wrote.wait()


def _state(container: Object, state: str, **details: Any) -> Object:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": state == "running",
        "restartCount": 0,
        "state": {state: details},
    }


def _waiting(container: Object) -> Object:
    message = (
        f"image {container['image']!r} needs a container engine, which this machine does not have; "
        f"write image: {HOST_IMAGE} to run the command on this machine"
    )
    return _state(container, "waiting", reason="ImageNotAvailable", message=message)
