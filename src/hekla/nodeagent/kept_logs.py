"""The logs of pods that have ended, kept for a while.

A pod may be deleted as soon as it has ended, by a policy of its job for example, and its last lines
say why. So its logs are moved to `logs/NAMESPACE/NAME/UID/CONTAINER/RUN.log` below the node's
directory instead of being removed. The logs of an ended pod that still exists stay in its own
directory. Size and number of both together are bounded, and the age after the deletion.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hekla.nodeagent.logs import LogFile
from hekla.units.clock import Clock

MAX_AGE_S = 7 * 24 * 3600.0
MAX_TOTAL_BYTES = 1 << 30
MAX_KEPT_PODS = 10_000
OWNER = "owner"
"""The file with the uid of the controller of a deleted pod."""
_COMPONENT = re.compile(r"[A-Za-z0-9][-A-Za-z0-9.]*")
"""Names from requests become parts of paths."""


@dataclass(frozen=True, slots=True)
class KeptPod:
    """The logs of one ended pod, in one directory for each container."""

    path: Path
    ended_at: float
    size_bytes: int
    is_deleted: bool = True
    """Whether the pod was deleted, so that its logs are here."""


def expired(kept: Iterable[KeptPod], now: float) -> list[KeptPod]:
    """Return the pods whose logs are too old, and the oldest beyond the size and the number."""
    total_bytes, removed = 0, []
    newest_first = sorted(kept, key=lambda pod: pod.ended_at, reverse=True)
    for number, pod in enumerate(newest_first):
        total_bytes += pod.size_bytes
        is_old = pod.is_deleted and pod.ended_at < now - MAX_AGE_S
        if is_old or number >= MAX_KEPT_PODS or total_bytes > MAX_TOTAL_BYTES:
            removed.append(pod)
    return removed


class KeptLogs:
    """The directory of kept logs."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock

    def keep(
        self, namespace: str, name: str, uid: str, containers: Path, *, owner: str = ""
    ) -> None:
        """Move the logs below a pod's directory of containers here.

        `owner` is the uid of the pod's controller.
        """
        logs = [log for log in containers.glob("*/*.log") if log.stat().st_size]
        target = self._path(namespace, name, uid)
        if not logs or target is None:
            return
        for log in logs:
            own = target / log.parent.name
            own.mkdir(parents=True, exist_ok=True, mode=0o700)
            log.replace(own / log.name)
        if owner:
            (target / OWNER).write_text(owner)
        now = self._clock.now()
        os.utime(target, (now, now))

    def find(
        self, namespace: str, name: str, uid: str, container: str, run: int | None = None
    ) -> LogFile | None:
        """Return the kept log of a run, by default of the last."""
        pod = self._path(namespace, name, uid)
        if pod is None or not _COMPONENT.fullmatch(container):
            return None
        if run is not None:
            path = pod / container / f"{run}.log"
            return LogFile(path) if path.exists() else None
        runs = sorted((pod / container).glob("*.log"), key=lambda path: int(path.stem))
        return LogFile(runs[-1]) if runs else None

    def find_attempt(
        self, namespace: str, name: str, owner: str, container: str, number: int
    ) -> LogFile | None:
        """Return the log of an attempt: the runs of all deleted pods with a name and a controller,
        counted from 0, the oldest first. An empty container means all.
        """
        pods = self._path(namespace, name)
        if pods is None or not pods.is_dir() or not owner:
            return None
        if container and not _COMPONENT.fullmatch(container):
            return None
        oldest_first = sorted(pods.iterdir(), key=lambda path: path.stat().st_mtime)
        runs = [
            run
            for pod in oldest_first
            if _owner(pod) == owner
            for run in sorted(
                pod.glob(f"{container or '*'}/*.log"),
                key=lambda path: (path.parent.name, int(path.stem)),
            )
        ]
        return LogFile(runs[number]) if 0 <= number < len(runs) else None

    def last_uid(self, namespace: str, name: str, owner: str) -> str | None:
        """Return the uid of the last deleted pod with a name and a controller."""
        pods = self._path(namespace, name)
        if pods is None or not pods.is_dir():
            return None
        newest_first = sorted(pods.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        return next((path.name for path in newest_first if _owner(path) == owner), None)

    def collect_garbage(self, finished: Iterable[Path] = ()) -> None:
        """Remove what is beyond the bounds.

        `finished` are the directories of the containers of ended pods that still exist.
        """
        kept = [*_measured(self._directory.glob("*/*/*")), *_measured(finished, is_deleted=False)]
        for pod in expired(kept, self._clock.now()):
            for log in pod.path.glob("*/*.log"):
                log.unlink(missing_ok=True)
            if not pod.is_deleted:
                continue
            shutil.rmtree(pod.path, ignore_errors=True)
            for parent in (pod.path.parent, pod.path.parent.parent):
                with contextlib.suppress(OSError):  # not empty
                    parent.rmdir()

    def _path(self, *parts: str) -> Path | None:
        """Return a path below the directory; None for names that no object has."""
        if not all(_COMPONENT.fullmatch(part) for part in parts):
            return None
        return self._directory.joinpath(*parts)


def _owner(pod: Path) -> str:
    try:
        return (pod / OWNER).read_text()
    except OSError:
        return ""


def _measured(pods: Iterable[Path], *, is_deleted: bool = True) -> Iterator[KeptPod]:
    for path in pods:
        with contextlib.suppress(OSError):  # removed in the meantime
            logs = list(path.glob("*/*.log"))
            size_bytes = sum(log.stat().st_blocks * 512 for log in logs)
            if logs or is_deleted:
                yield KeptPod(path, path.stat().st_mtime, size_bytes, is_deleted)
