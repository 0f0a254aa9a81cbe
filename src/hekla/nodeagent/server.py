"""The requests of the API server: logs, exec, attach and portforward."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, BinaryIO

from hekla.nodeagent.kept_logs import KeptLogs
from hekla.nodeagent.lifecycle import ContainerRun
from hekla.nodeagent.logs import LogFile, chunks
from hekla.nodeagent.pod_state import controller_uid
from hekla.nodeagent.streams import STDOUT, feed_pipe, forward_ports, run_stream
from hekla.nodeagent.worker import PodWorker
from hekla.units.clock import Clock
from hekla.units.objects import Object
from hekla.units.timestamps import parse_time

FOLLOW_S = 0.05
SUCCESS: Object = {"metadata": {}, "status": "Success"}


class PodServer:
    """Serves the output and input of the pods of one node."""

    def __init__(self, workers: Mapping[str, PodWorker], clock: Clock, kept_logs: KeptLogs) -> None:
        self._workers = workers
        self._clock = clock
        self._kept_logs = kept_logs

    def logs(self, pod: Object, request: Any) -> AsyncIterator[bytes]:
        """Yield a container's output in one run, until its end if `request.follow` is set.

        The run before the first one is the last run of the deleted pod whose place this pod took:
        it has the same name and controller.
        """
        metadata = pod["metadata"]
        lines = self._log_here(metadata["uid"], request)
        if lines is None and not request.previous:
            lines = self.kept_log(metadata, request)  # of an ended pod that is forgotten here
        if lines is None and request.previous and request.run is None:
            owner = controller_uid(pod)
            uid = self._kept_logs.last_uid(metadata["namespace"], metadata["name"], owner)
            if uid is not None and owner:
                lines = self.kept_log({**metadata, "uid": uid}, request)
        return _nothing() if lines is None else lines

    def _log_here(self, uid: str, request: Any) -> AsyncIterator[bytes] | None:
        """Return the output of a container of a pod that has a worker, if it has that run."""
        worker, name = self._workers.get(uid), request.container
        if worker is None:
            return None
        run = worker.state.run_of(name, previous=request.previous, number=request.run)
        if run is None:
            return None
        file, is_writing = worker.runtime.log_of(name, run), _is_writing(worker, name, run)
        return self._stream_log(file, request, is_writing)

    def kept_log(self, metadata: Object, request: Any) -> AsyncIterator[bytes] | None:
        """Return the output of a container of a deleted pod; None if it is not kept.

        With `owner` instead of `uid`, `request.run` counts the runs of all deleted pods with this
        name and controller.
        """
        if owner := metadata.get("owner"):
            where = metadata["namespace"], metadata["name"], owner, request.container
            attempt = self._kept_logs.find_attempt(*where, request.run or 0)
            return None if attempt is None else self._stream_log(attempt, request, lambda: False)
        uid, namespace, name = (metadata[key] for key in ("uid", "namespace", "name"))
        known = self._workers.get(uid)
        if known is not None and known.state.is_of(namespace, name):
            return self._log_here(uid, request)  # its deletion has not arrived here
        file = self._kept_logs.find(namespace, name, uid, request.container, request.run)
        return None if file is None else self._stream_log(file, request, lambda: False)

    async def _stream_log(
        self, file: LogFile, request: Any, is_writing: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        position = _start_position(file, request, self._clock.now())
        left = request.limit_bytes if request.limit_bytes is not None else sys.maxsize
        at_line_start = True
        with contextlib.ExitStack() as stack:
            opened: BinaryIO | None = None
            while True:
                is_open_ended = request.follow and is_writing()  # asked before the read
                if opened is None and (opened := file.open()) is not None:
                    stack.enter_context(opened)
                for chunk in chunks(opened, position) if opened is not None else ():
                    shown = (
                        file.stamp(chunk, position, at_line_start) if request.timestamps else chunk
                    )
                    at_line_start = chunk.endswith(b"\n")
                    position += len(chunk)
                    yield shown[:left]
                    left -= len(shown)
                    if left <= 0:
                        return
                if not is_open_ended:
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


def _is_writing(worker: PodWorker, name: str, run: ContainerRun) -> Callable[[], bool]:
    """Return a function that returns whether a run of a container may write more output."""

    def check() -> bool:
        process = worker.runtime.process_of(name)
        return worker.state.run_of(name) is run and process is not None and process.is_alive

    return check


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


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
