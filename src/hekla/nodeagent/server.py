"""The requests of the API server: logs, exec, attach and portforward."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

from hekla.nodeagent.logs import LogFile
from hekla.nodeagent.streams import STDOUT, feed_pipe, forward_ports, run_stream
from hekla.nodeagent.worker import PodWorker
from hekla.units.clock import Clock
from hekla.units.objects import Object
from hekla.units.timestamps import parse_time

FOLLOW_S = 0.05
SUCCESS: Object = {"metadata": {}, "status": "Success"}


class PodServer:
    """Serves the output and input of the pods of one node."""

    def __init__(self, workers: Mapping[str, PodWorker], clock: Clock) -> None:
        self._workers = workers
        self._clock = clock

    async def logs(self, pod: Object, request: Any) -> AsyncIterator[bytes]:
        """Yield a container's output in one run, until its end if `request.follow` is set."""
        worker = self._workers.get(pod["metadata"]["uid"])
        if worker is None:
            return
        state, runtime, name = worker.state, worker.runtime, request.container
        run = state.run_of(name, previous=request.previous, number=request.run)
        if run is None:
            return
        file = runtime.log_of(name, run)
        position = _start_position(file, request, self._clock.now())
        left = request.limit_bytes if request.limit_bytes is not None else sys.maxsize
        at_line_start = True
        while True:
            process = runtime.process_of(name)
            is_latest = state.run_of(name) is run
            is_writing = is_latest and process is not None and process.is_alive
            for chunk in file.read(position):
                shown = file.stamp(chunk, position, at_line_start) if request.timestamps else chunk
                at_line_start = chunk.endswith(b"\n")
                position += len(chunk)
                yield shown[:left]
                left -= len(shown)
                if left <= 0:
                    return
            if not request.follow or not is_writing:
                return
            await self._clock.sleep(FOLLOW_S)

    async def stream(self, pod: Object, request: Any, channels: Any) -> Object:
        """Run exec, attach or portforward, and return its Status."""
        worker = self._workers.get(pod["metadata"]["uid"])
        if request.verb == "portforward":
            if worker is not None:
                await forward_ports(worker.hosts, request.ports, channels)
            return SUCCESS
        if worker is None or worker.runtime.process_of(request.container) is None:
            return _failure(f"container {request.container!r} is not running")
        if request.verb == "attach":
            return await self._attach(worker, request, channels)
        command = list(request.command)
        line, variables = await worker.runtime.exec_command(request.container, command)
        return await run_stream(line, variables, request, channels)

    async def _attach(self, worker: PodWorker, request: Any, channels: Any) -> Object:
        """Send new output, and pass on input to a container with `stdin`."""
        feeding = None
        if request.tty:
            return _failure("containers have no terminal here; use `kubectl exec -it`")
        if request.stdin:
            descriptor = worker.runtime.stdin.get(request.container)
            if descriptor is None:
                return _failure("the container has no input; set `stdin: true` in its spec")
            feeding = asyncio.create_task(
                self._feed(worker, request.container, descriptor, channels)
            )
        try:
            async for chunk in self.logs(worker.pod, _FollowRequest(request.container)):
                await channels.send(STDOUT, chunk)
        finally:
            if feeding is not None:
                feeding.cancel()
        return SUCCESS

    async def _feed(
        self, worker: PodWorker, container: str, descriptor: int, channels: Any
    ) -> None:
        await feed_pipe(descriptor, channels)
        if worker.state.container(container).get("stdinOnce"):
            worker.runtime.stdin.close(container)


class _FollowRequest:
    """The log request of `attach`: new output only."""

    follow, previous, timestamps, run = True, False, False, None
    tail_lines, since_s, since_time, limit_bytes = 0, None, "", None

    def __init__(self, container: str) -> None:
        self.container = container


def _start_position(file: LogFile, request: Any, now: float) -> int:
    positions = [file.first()] if file.size() else [0]
    if request.since_s is not None:
        positions.append(file.since(now - request.since_s))
    if request.since_time:
        positions.append(file.since(parse_time(request.since_time)))
    if request.tail_lines is not None:
        positions.append(file.tail(request.tail_lines) if file.size() else 0)
    return max(positions)


def _failure(message: str) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": "InternalError",
        "message": message,
        "code": 500,
    }
