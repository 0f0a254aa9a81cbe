"""What a cluster on this machine leaves behind if it is killed: its pods run on.

The next agent in the data directory adopts them. Here they are counted, or ended without one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hekla.kube.data_dir import LOCK_FILE, PID_FILE, is_down, try_lock
from hekla.nodeagent import processes
from hekla.nodeagent.cgroups import Cgroups
from hekla.nodeagent.container_setup import MARK
from hekla.nodeagent.lifecycle import PodRecord
from hekla.nodeagent.network import BridgeNetwork, network_support
from hekla.nodeagent.pod_state import RECORD
from hekla.nodeagent.processes import Process
from hekla.nodeagent.volumes import unmount_below

TEMPORARY = "temporary"
"""Marks the data directory of a temporary cluster; locked as long as its run exists."""
PREFIX = "hekla-"
GRACE_S = 5.0
POLL_S = 0.02
SHOWN_PODS = 5


@dataclass(frozen=True)
class Leftover:
    """A pod whose containers run although its cluster does not."""

    directory: Path
    runs: dict[Path, Process]
    """The processes by the path of their run, without a suffix."""

    @property
    def name(self) -> str:
        """`namespace/name`; the UID if it is not recorded."""
        record = _record(self.directory)
        return f"{record.namespace}/{record.name}" if record is not None else self.directory.name

    @property
    def is_alive(self) -> bool:
        return any(process.is_alive for process in self.runs.values())


def stopping_note(where: Path) -> str:
    """Return which pods of a cluster that stops still run; empty if none does."""
    names = [pod.name for pod in of(where)]
    if not names:
        return ""
    more = f" and {len(names) - SHOWN_PODS} more" if len(names) > SHOWN_PODS else ""
    return (
        f"still stopping: {', '.join(names[:SHOWN_PODS])}{more}; a pod has its grace period, at "
        "most 30 s"
    )


def has_crashed(where: Path) -> bool:
    """Return whether the last cluster in a data directory ended without `hekla down`."""
    # `hekla run --data-dir` writes no pid file.
    return is_down(where) and ((where / PID_FILE).exists() or bool(of(where)))


def of(where: Path) -> list[Leftover]:
    """Return the pods that run on."""
    found = (Leftover(path, _runs(path)) for path in sorted(where.glob("node/pods/*")))
    return [pod for pod in found if pod.is_alive]


def _runs(pod: Path) -> dict[Path, Process]:
    """Return the processes of a pod, by the rules by which an agent finds them again."""
    runs = {}
    for path in pod.glob("containers/*/*.proc"):
        with contextlib.suppress(OSError, ValueError):
            pid, born = path.read_text().split()
            runs[path.with_suffix("")] = Process(int(pid), int(born))
    record = _record(pod)
    for name, known in record.containers.items() if record is not None else ():
        if known.current is not None and not known.current.is_over:
            run = pod / "containers" / name / str(known.current.attempt)
            started = processes.find(MARK, f"{run}.up") if run not in runs else None
            if started is not None:
                runs[run] = started
    return runs


def _record(pod: Path) -> PodRecord | None:
    try:
        return msgspec.json.decode((pod / RECORD).read_bytes(), type=PodRecord)
    except (OSError, msgspec.MsgspecError):
        return None


def end(where: Path, pods: Sequence[Leftover]) -> None:
    """End the pods for good, as `hekla down --abort` does: SIGTERM, then SIGKILL.

    Note: the caller holds the lock of the data directory.
    """
    for pod in pods:
        _record_stop(pod.directory)
        for process in pod.runs.values():
            processes.terminate(process)
    deadline = time.monotonic() + GRACE_S
    while any(pod.is_alive for pod in pods) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    cgroups = Cgroups()
    for pod in pods:
        for run, process in pod.runs.items():
            processes.kill(process)
            exit_file = run.with_suffix(".exit")
            if not exit_file.exists():
                exit_file.write_text(f"{processes.KILLED}\n")
        for group in cgroups.of(pod.directory.name):
            group.kill()
            group.remove()
        unmount_below(pod.directory)
    if network_support().bridge:
        BridgeNetwork(where).tear_down()


def _record_stop(pod: Path) -> None:
    """Let the next agent know that the pod was stopped: it does not start containers again."""
    record = _record(pod)
    if record is not None:
        record.stop_asked_at = time.time()
        (pod / RECORD).write_bytes(msgspec.json.encode(record))


@contextlib.contextmanager
def temporary_data_dir() -> Iterator[Path]:
    """Create a data directory for the block; `sweep` removes it if the process is killed."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as made, contextlib.ExitStack() as stack:
        where = Path(made)
        marker = stack.enter_context((where / f"{TEMPORARY}.new").open("w"))
        fcntl.flock(marker, fcntl.LOCK_EX)
        # Only now has it the name by which others find it.
        (where / f"{TEMPORARY}.new").rename(where / TEMPORARY)
        yield where


def sweep() -> list[str]:
    """Remove the directories of this user's temporary clusters that were killed, and their pods.

    Return a line for each.
    """
    swept = []
    for where in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            status = where.lstat()
            if where.is_symlink() or not where.is_dir() or status.st_uid != os.geteuid():
                continue
            for name in (TEMPORARY, LOCK_FILE):
                path = where / name
                if name == TEMPORARY or path.exists():
                    lock = stack.enter_context(path.open())
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            pods = of(where)
            end(where, pods)
            shutil.rmtree(where)
            ended = f" and ended its {_pods(len(pods))}" if pods else ""
            swept.append(f"removed {where} of a temporary cluster that was killed{ended}")
    return swept


def _pods(count: int) -> str:
    return f"{count} pod" if count == 1 else f"{count} pods"


def crash_note(where: Path, flag: str) -> str:
    """Return that the last cluster of a data directory crashed; empty if it did not.

    `flag` is what other commands need to mean this cluster.
    """
    if not has_crashed(where):
        return ""
    count = len(of(where))
    note = f"the cluster in {where} ended without `hekla down`: it crashed or was killed"
    if not count:
        return (
            f"{note}, or the machine restarted; none of its pods runs. `hekla up -d{flag}` starts "
            "it again"
        )
    return (
        f"{note}; {_pods(count)} {'runs' if count == 1 else 'run'} on. `hekla up -d{flag}` starts "
        f"it again and adopts {'it' if count == 1 else 'them'}; `hekla down --abort{flag}` ends "
        f"{'it' if count == 1 else 'them'}"
    )


def abort(where: Path) -> int | None:
    """End the pods of a cluster that crashed; return their number, or None if it starts again."""
    with (where / LOCK_FILE).open("a") as lock:
        if not try_lock(lock):
            return None
        pods = of(where)
        end(where, pods)
        (where / PID_FILE).unlink(missing_ok=True)
        return len(pods)
