"""`python -m tools.kube.guard`: own namespaces and cgroups, of which nothing stays.

The guard starts an init process in new mount, network and process namespaces, and waits. When it
is told to stop, or its standard input ends because the process that started it was killed, it kills
the init process. The kernel then kills all processes of the namespaces, and removes their mounts
and network interfaces. The guard removes the cgroups.

Note: a guard that is killed itself leaves empty cgroups. The next guard removes them: it finds that
no process holds their lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

TOP = "hekla-kube"
CGROUPS = Path("/sys/fs/cgroup")
INIT = (
    "import os, signal\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})\n"
    "while signal.sigwait({signal.SIGCHLD}):\n"
    "    try:\n"
    "        while os.waitpid(-1, os.WNOHANG)[0]:\n"
    "            pass\n"
    "    except ChildProcessError:\n"
    "        pass\n"
)
_REMOVAL_LIMIT_S = 30.0
_POLL_S = 0.1


def new_init(*kinds: str) -> list[str]:
    """Return a command that runs an init process in new namespaces."""
    return [
        "unshare", "--fork", "--kill-child", "--pid", "--mount", "--mount-proc",
        "--propagation=private", *(f"--{kind}" for kind in kinds),
        sys.executable, "-c", INIT,
    ]  # fmt: skip


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def init_of(pid: int) -> int:
    """Return the init process below a process; 0 if it has not started, or has ended."""
    for child in children(pid):
        try:
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return 0
        is_init = words[0] == sys.executable.encode() and INIT.encode() in words
        return child if is_init else init_of(child)
    return 0


def hierarchies() -> list[Path]:
    """Return where cgroups are mounted: one place with version 2, several with version 1."""
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind in ("cgroup", "cgroup2") and Path(where).is_relative_to(CGROUPS):
            found.append(Path(where))
    return found


def make_cgroups(name: str) -> None:
    """Make the cgroup in every hierarchy, ready for limits of its children."""
    for top in hierarchies():
        here = top
        for part in Path(name).parts:
            _delegate(here)
            parent, here = here, here / part
            here.mkdir(exist_ok=True)
            for setting in ("cpuset.cpus", "cpuset.mems"):  # empty in a new cgroup of version 1
                if (parent / setting).exists() and not (here / setting).read_text().strip():
                    (here / setting).write_text((parent / setting).read_text())
        _delegate(here)


def _delegate(cgroup: Path) -> None:
    """Enable all controllers for the children, which only version 2 needs."""
    if (cgroup / "cgroup.subtree_control").exists():
        for controller in (cgroup / "cgroup.controllers").read_text().split():
            with contextlib.suppress(OSError):  # the root has processes, or it is not available
                (cgroup / "cgroup.subtree_control").write_text(f"+{controller}")


def remove_cgroups(name: str) -> None:
    """Remove the cgroup with all below it; what still has processes is tried again for a while."""
    deadline = time.monotonic() + _REMOVAL_LIMIT_S
    for top in hierarchies():
        while not _removed(top / name) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        with contextlib.suppress(OSError):
            (top / TOP).rmdir()  # unless others use it


def _removed(cgroup: Path) -> bool:
    for folder, _, _ in os.walk(cgroup, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return not cgroup.exists()


def remove_leftovers() -> None:
    """Remove the cgroups of guards that were killed."""
    names = {path.name for top in hierarchies() for path in (top / TOP).glob("*") if path.is_dir()}
    for name in names:
        with locked(name) as is_ours:
            if is_ours:
                remove_cgroups(f"{TOP}/{name}")


@contextlib.contextmanager
def locked(name: str) -> Iterator[bool]:
    """Hold the lock of a cgroup's name; yield whether it was free."""
    folder = Path(tempfile.gettempdir()) / f"{TOP}-locks"
    folder.mkdir(exist_ok=True, mode=0o700)
    path = folder / name
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
        path.unlink(missing_ok=True)


def guard(name: str) -> None:
    """Run an init process until the end; then nothing of it is left."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    remove_leftovers()
    with locked(name) as is_ours:
        if not is_ours:
            raise SystemExit(f"cgroup {TOP}/{name} is in use by another cluster")
        make_cgroups(f"{TOP}/{name}")
        try:
            init = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *new_init("net")],
                stdin=subprocess.DEVNULL,
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, ()),
            )
            _wait(init)
            init.kill()
            init.wait()
        finally:
            remove_cgroups(f"{TOP}/{name}")


def _wait(init: subprocess.Popen[bytes]) -> None:
    """Return on SIGTERM, at the end of standard input, or when the init process ends."""
    with selectors.DefaultSelector() as selector:
        for opened in (os.pidfd_open(init.pid), _signals()):
            selector.register(opened, selectors.EVENT_READ)
        if stat.S_ISFIFO(os.fstat(0).st_mode):
            selector.register(0, selectors.EVENT_READ)
        selector.select()


def _signals() -> int:
    """Return a descriptor that is readable after SIGTERM or SIGINT."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    return reader


def main(words: Sequence[str]) -> None:
    (name,) = words
    guard(name)


if __name__ == "__main__":
    main(sys.argv[1:])
