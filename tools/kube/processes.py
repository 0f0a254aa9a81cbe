"""Server processes of a directory, with their logs and ids.

Note: every process leads its own session. A time-out that signals a whole process group must not
stop etcd before the server that needs it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

READY_LIMIT_S = 300.0
STOP_LIMIT_S = 60.0
_POLL_S = 0.1
# Below the ephemeral ports of Linux and the BSDs, and above most registered ports.
_PORTS = (12_000, 30_000)


class StartFailed(Exception):
    """A process did not start; the text has the end of its log."""


def free_port() -> int:
    """Return a loopback port that stays free until a child of this process uses it.

    It is not an ephemeral port: the kernel assigns those to connections of any program at any
    time, so a server that starts later, or restarts, could find its port taken.
    """
    while True:
        number = random.SystemRandom().randrange(*_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", number))
            _claim(number)
            return number


def _claim(number: int) -> None:
    """Reserve the port among processes that use `free_port`, by a datagram socket."""
    mark = socket.socket(type=socket.SOCK_DGRAM)
    try:
        mark.bind(("127.0.0.1", number))
    except OSError:
        mark.close()
        raise
    atexit.register(mark.close)


class Processes:
    """The processes of a directory. Started in order, stopped in reverse order."""

    def __init__(self, directory: Path, *, outlive: bool = False) -> None:
        self._directory = directory
        self._outlive = outlive
        self._entry: tuple[str, ...] = ()
        # If the test runner is killed, the kernel stops the processes.
        self._leash = [] if outlive else leash()
        self._ours: dict[str, subprocess.Popen[bytes]] = {}
        self._words: dict[str, list[str]] = {}

    def enter(self, entry: Sequence[str]) -> None:
        """Start programs with this prefix from now on; it replaces itself by the program."""
        self._entry = tuple(entry)

    def start(
        self,
        name: str,
        words: Sequence[str | Path],
        *,
        cleans_up: bool = False,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Start a program.

        One that `cleans_up` is not killed with this process: its standard input ends then.
        """
        command = [str(word) for word in words]
        if not cleans_up:
            command = [*self._leash, *self._entry, *command]
        with self.log(name).open("ab") as log:
            self._ours[name] = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if cleans_up and not self._outlive else subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                start_new_session=True,
                pass_fds=pass_fds,
            )
        self._words[name] = [str(word) for word in words]
        self._record()

    def pids(self) -> dict[str, int]:
        """Return the process id of each name."""
        return {name: process.pid for name, process in self._ours.items()}

    def has_ended(self, name: str) -> bool:
        """Return whether it has exited."""
        return self._ours[name].poll() is not None

    def log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def wait_for(self, name: str, is_ready: Callable[[], bool]) -> None:
        """Wait until it is ready; raise StartFailed if it exits first or is never ready."""
        deadline = time.monotonic() + READY_LIMIT_S
        while not is_ready():
            ended = self._ours[name].poll()
            if ended is not None or time.monotonic() > deadline:
                fact = "does not answer" if ended is None else f"ended with code {ended}"
                end = self.log(name).read_text(errors="replace")[-3000:]
                raise StartFailed(f"{name} {fact}; {self.log(name)} ends with:\n{end}")
            time.sleep(_POLL_S)

    def stop(self, name: str) -> None:
        process = self._ours.pop(name, None)
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            process.terminate()
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._record()

    def restart(self, name: str, *, kill: bool = False) -> None:
        """Restart with the same command, after SIGKILL or SIGTERM."""
        process = self._ours[name]
        if kill:
            process.kill()
            process.wait()
        self.stop(name)
        self.start(name, self._words[name])

    def stop_all(self) -> None:
        for name in reversed(list(self._ours)):
            self.stop(name)

    def kill_all(self) -> None:
        """Kill all processes when their state is not needed any more."""
        for process in self._ours.values():
            process.kill()
        self.stop_all()

    def forget(self) -> None:
        """Keep them running when this process ends: `stop_recorded` stops them."""
        for process in self._ours.values():
            process.returncode = 0  # no ResourceWarning

    def _record(self) -> None:
        running = [(p.pid, self._words[name][0]) for name, p in self._ours.items()]
        (self._directory / "processes.json").write_text(json.dumps(running))


def leash() -> list[str]:
    """Return a command prefix that ends the command with this process, if setpriv exists."""
    found = shutil.which("setpriv")
    return [found, "--pdeathsig", "KILL"] if found else []


def stop_recorded(directory: Path) -> list[str]:
    """Stop what another process started in `directory`; return the stopped programs."""
    stopped: list[str] = []
    for pid, program in reversed(json.loads((directory / "processes.json").read_text())):
        if _runs(pid, program):
            os.kill(pid, signal.SIGTERM)
            _await_end(pid, program)
            stopped.append(Path(program).name)
    return stopped


def _runs(pid: int, program: str) -> bool:
    # The process id may have been reused.
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0].decode(errors="replace") == program


def _await_end(pid: int, program: str) -> None:
    deadline = time.monotonic() + STOP_LIMIT_S
    while _runs(pid, program):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            return
        time.sleep(_POLL_S)
