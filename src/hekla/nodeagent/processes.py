"""Container processes: start, wait, stop, and find them again after a restart of the agent.

A container runs under a small shell (see `sandbox`) that outlives the agent and writes the exit
code to a file. A restarted agent finds the process by pid and start time, waits for it through a
pidfd, which works for processes that are not its children, and reads the exit code.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

KILLED = 137
MAX_CODE = 255


@dataclass(frozen=True, slots=True)
class Process:
    """A process, identified by pid and start time."""

    pid: int
    born: int

    @property
    def is_alive(self) -> bool:
        return _born(self.pid) == self.born


def _born(pid: int) -> int:
    """Return the start time in clock ticks; 0 for an ended process or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def spawn(
    command: Sequence[str],
    environment: dict[str, str],
    log: Path,
    *,
    stdin: Path | None = None,
    stdin_ends: bool = False,
    descriptors: Mapping[int, int] | None = None,
) -> Process:
    """Start a process in a new session, with its output in a file.

    `stdin` is a named pipe, opened with `stdin_flags`. `descriptors` maps numbers in the
    process to descriptors of this one.
    """
    write = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawnp(
        command[0],
        list(command),
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, str(stdin or "/dev/null"), stdin_flags(stdin, stdin_ends), 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), write, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *((os.POSIX_SPAWN_DUP2, ours, its) for its, ours in (descriptors or {}).items()),
        ],
        setsid=True,
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP],
        setsigmask=[],
    )
    return Process(pid, _born(pid))


def stdin_flags(stdin: Path | None, stdin_ends: bool) -> int:
    """Return how a process opens its input.

    Unless `stdin_ends`, it also holds the write end of the pipe, so that it does not see an end of
    input when a client disconnects.
    """
    return os.O_RDONLY if stdin is None or stdin_ends else os.O_RDWR


def find(variable: str, value: str) -> Process | None:
    """Return the oldest running process of this user that was started with this variable.

    Only processes outside of containers count: what runs in one chooses its variables itself.
    """
    mark = f"{variable}={value}".encode()
    here = os.readlink("/proc/self/ns/pid")
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if (
                mark in path.read_bytes().split(b"\0")
                and path.stat().st_uid == os.geteuid()
                and os.readlink(path.parent / "ns" / "pid") == here
            ):
                pid = int(path.parent.name)
                found.append(Process(pid, _born(pid)))
    return min((p for p in found if p.born), key=lambda p: (p.born, p.pid), default=None)


async def wait(process: Process) -> int | None:
    """Wait until a process has ended; return the exit code if it was our child."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:  # ended, or pid 0 for an unknown process
        return None
    try:
        if not process.is_alive:
            return _reap(process.pid)
        loop = asyncio.get_running_loop()
        exited: asyncio.Future[None] = loop.create_future()
        loop.add_reader(descriptor, _finish, exited)
        try:
            await exited
        finally:
            loop.remove_reader(descriptor)
    finally:
        os.close(descriptor)
    return _reap(process.pid)


def _finish(exited: asyncio.Future[None]) -> None:
    if not exited.done():
        exited.set_result(None)


def _reap(pid: int) -> int | None:
    with contextlib.suppress(ChildProcessError):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
    return None


def exit_code(path: Path, seen: int | None = None) -> int:
    """Return the exit code in the file; else `seen`, if the shell was killed before it wrote it."""
    try:
        return min(MAX_CODE, int(path.read_text().strip()))
    except (OSError, ValueError):
        return KILLED if seen is None else seen


def terminate(process: Process) -> None:
    """Send SIGTERM to a process group."""
    _signal_group(process, signal.SIGTERM)


def kill(process: Process) -> None:
    """Send SIGKILL to a process group."""
    _signal_group(process, signal.SIGKILL)


def _signal_group(process: Process, number: int) -> None:
    if process.is_alive:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
