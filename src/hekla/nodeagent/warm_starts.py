"""Processes that wait to become a container, so that its start does not wait for Python's.

`container_init` needs 20 ms to start and import, a third of the time of a small job. A few such
processes wait for the container that they set up: the agent writes what to run to their pipe.

Note: a waiting process ends when the pipe closes, so it ends with the agent. The file `proc` of the
container is written first: if the agent dies before it writes the pipe, the process removes it, and
the next agent starts the container again.
"""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import select
from dataclasses import dataclass
from pathlib import Path

from hekla.nodeagent import processes, sandbox
from hekla.nodeagent.processes import Process

COUNT = 2
REFILL_AFTER_S = 0.05
"""The container that took a process starts first."""


@dataclass(frozen=True, slots=True)
class WarmStart:
    """A waiting process."""

    process: Process
    control: Path
    pipe: int

    def become(
        self,
        spec: Path,
        log: Path,
        exit_file: Path,
        *,
        stdin: Path | None,
        stdin_ends: bool,
        descriptors: dict[int, int],
    ) -> None:
        """Run a container in this process; OSError if that is not possible."""
        message = marshal.dumps(
            {
                "spec": str(spec),
                "log": str(log),
                "stdin": str(stdin or "/dev/null"),
                "stdin_flags": processes.stdin_flags(stdin, stdin_ends),
                "descriptors": {
                    number: f"/proc/{os.getpid()}/fd/{ours}" for number, ours in descriptors.items()
                },
            }
        )
        try:
            if len(message) > select.PIPE_BUF:
                raise OSError("the paths of the container are too long for one write")
            self.control.write_text(f"{exit_file}\n")
            os.write(self.pipe, message)
        finally:
            os.close(self.pipe)


class WarmStarts:
    """Keeps some processes waiting."""

    def __init__(self, directory: Path, isolate: sandbox.Isolation, count: int = COUNT) -> None:
        self._directory = directory
        self._isolate = isolate
        self._count = count if isolate != "none" else 0
        self._waiting: list[WarmStart] = []
        self._number = 0
        self._closed = False

    def fill(self) -> None:
        """Start processes until enough wait."""
        if self._closed or not self._count:
            return
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self._number:
            self._remove_unused()
        with contextlib.suppress(OSError):  # containers then start without
            while len(self._waiting) < self._count:
                self._waiting.append(self._start())

    def _remove_unused(self) -> None:
        """Remove the files of processes that waited for an agent that was killed.

        A file with content has become a container's, which reads there where its exit code belongs.
        """
        for control in self._directory.iterdir():
            with contextlib.suppress(FileNotFoundError):  # its container ended now
                if not control.stat().st_size:
                    control.unlink()

    def take(self) -> WarmStart | None:
        """Return a waiting process, if there is one; another is started soon."""
        if not self._count:
            return None
        asyncio.get_running_loop().call_later(REFILL_AFTER_S, self.fill)
        while self._waiting:
            found = self._waiting.pop(0)
            if found.process.is_alive:
                return found
            self._discard(found)
        return None

    def close(self) -> None:
        """End the waiting processes."""
        self._closed = True
        while self._waiting:
            self._discard(self._waiting.pop())

    def _start(self) -> WarmStart:
        self._number += 1
        control = self._directory / f"{os.getpid()}-{self._number}"
        control.touch(mode=0o600)
        theirs, ours = os.pipe2(os.O_CLOEXEC)
        try:
            process = processes.spawn(
                sandbox.wait_to_launch(control, self._isolate),
                sandbox.helper_variables(),
                Path("/dev/null"),
                descriptors={sandbox.PIPE_FD: theirs},
            )
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        return WarmStart(process, control, ours)

    def _discard(self, unused: WarmStart) -> None:
        os.close(unused.pipe)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(unused.process.pid, 0)
        unused.control.unlink(missing_ok=True)
