"""What `hekla prune` may remove: ended objects of the API, and files of a cluster on this machine.

To add files of another kind, write a function as `kept_logs` and add it to `LOCAL_SOURCES`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hekla.api.wellknown import JobPhase, PodPhase
from hekla.cli.vcctl.output import field_at
from hekla.kube.resources import BATCH_JOBS, JOBS, PODS, Resource
from hekla.units.objects import Object
from hekla.units.timestamps import TimestampError, parse_time

BLOCK_BYTES = 512


@dataclass(frozen=True, slots=True)
class EndedObject:
    """A job or a pod that has ended, and that no other object owns."""

    resource: Resource[Any]
    kind: str
    namespace: str
    name: str
    uid: str
    ended_at: float


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """Files of the cluster on this machine that nothing needs any more."""

    kind: str
    namespace: str
    """Empty for files of no namespace."""
    name: str
    path: Path
    used_at: float
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Scope:
    """Which files are wanted: of a data directory, last used before a time."""

    data_dir: Path
    namespace: str | None
    """None means all, and files of no namespace."""
    before: float


LocalSource = Callable[[Scope], Iterator[LocalFiles]]


def kept_logs(scope: Scope) -> Iterator[LocalFiles]:
    """Yield the logs of deleted pods; see `hekla.nodeagent.kept_logs`."""
    for path in (scope.data_dir / "node" / "logs").glob("*/*/*"):
        namespace, name = path.parts[-3:-1]
        if path.is_symlink() or scope.namespace not in (None, namespace):
            continue
        with contextlib.suppress(OSError):  # the agent removes logs at the same time
            used_at = path.stat().st_mtime
            if used_at < scope.before:
                yield LocalFiles("kept log", namespace, name, path, used_at, size_of(path))


LOCAL_SOURCES: tuple[LocalSource, ...] = (kept_logs,)


def size_of(path: Path) -> int:
    """Return the disk space of a file or a directory."""
    total = 0
    for each in (path, *path.rglob("*")):
        with contextlib.suppress(OSError):
            total += each.lstat().st_blocks * BLOCK_BYTES
    return total


def ended_objects(
    resource: Resource[Any], objects: Iterable[Object], before: float
) -> Iterator[EndedObject]:
    """Yield the objects that ended before a time.

    An object with a controller is left alone: its owner decides, and might create it again.
    """
    kind, end_of = ENDS[str(resource)]
    for obj in objects:
        metadata = obj["metadata"]
        owners = metadata.get("ownerReferences") or ()
        ended_at = end_of(obj)
        if ended_at is None or ended_at >= before or metadata.get("deletionTimestamp"):
            continue
        if not any(owner.get("controller") for owner in owners):
            yield EndedObject(
                resource, kind, metadata["namespace"], metadata["name"], metadata["uid"], ended_at
            )


def _seconds(text: Any) -> float | None:
    try:
        return parse_time(text) if text else None
    except TimestampError:
        return None


def job_end(job: Object) -> float | None:
    """Return when a Volcano Job ended; None if it has not, or if a resume may follow."""
    if field_at(job, "status", "state", "phase") not in JobPhase.FINISHED:
        return None
    return _seconds(field_at(job, "status", "state", "lastTransitionTime"))


def batch_job_end(job: Object) -> float | None:
    """Return when a Kubernetes Job completed or failed."""
    for condition in field_at(job, "status", "conditions") or ():
        if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
            return _seconds(condition.get("lastTransitionTime"))
    return None


def pod_end(pod: Object) -> float | None:
    """Return when the last container of an ended pod exited."""
    if field_at(pod, "status", "phase") not in (PodPhase.SUCCEEDED, PodPhase.FAILED):
        return None
    states = [one.get("state") or {} for one in field_at(pod, "status", "containerStatuses") or ()]
    ends = [_seconds((state.get("terminated") or {}).get("finishedAt")) for state in states]
    created = _seconds(pod["metadata"].get("creationTimestamp"))
    return max(filter(None, ends), default=created)


ENDS: dict[str, tuple[str, Callable[[Object], float | None]]] = {
    str(JOBS): ("job", job_end),
    str(BATCH_JOBS): ("Kubernetes Job", batch_job_end),
    str(PODS): ("pod", pod_end),
}
"""What an object is called, and when it ended, by resource."""
