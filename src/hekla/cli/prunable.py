"""What `hekla prune` may remove: ended objects of the API, and files of a cluster on this machine.

To add files of another kind, write a function as `kept_logs` and add it to `LOCAL_SOURCES`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hekla.api.wellknown import RUN_ENVIRONMENT, RUN_SNAPSHOT, JobPhase, PodPhase
from hekla.cli.vcctl.output import field_at
from hekla.kube.resources import BATCH_JOBS, JOBS, PODS, Resource
from hekla.sdk import host_paths
from hekla.sdk.environments import Environment, list_environments, remove_environment
from hekla.sdk.snapshots import list_snapshots, remove_snapshot
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
    remove: Callable[[], object] | None = None
    """How it is removed; None: as a directory."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which files are wanted: of a data directory, last used before a time."""

    data_dir: Path
    namespace: str | None
    """None means all, and files of no namespace."""
    before: float
    used_keys: frozenset[str] | None = None
    """Keys of the environments and snapshots that jobs use; None if they are not known."""


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


def environments(scope: Scope) -> Iterator[LocalFiles]:
    """Yield the environments of `hekla run --requirements` that no job uses."""
    for root in host_paths.cache_directories() if scope.used_keys is not None else ():
        for each in list_environments(root):
            if each.last_used < scope.before and each.key not in (scope.used_keys or ()):
                remove = partial(_remove_environment, each, scope.before)
                yield _cached("environment", each.key, each.path, each.last_used, remove)


def _remove_environment(environment: Environment, before: float) -> bool:
    """Remove an environment unless a run has used it in the meantime."""
    again = (each for each in list_environments(environment.path.parents[1]))
    now = next((each for each in again if each.key == environment.key), None)
    return now is not None and now.last_used < before and remove_environment(environment)


def snapshots(scope: Scope) -> Iterator[LocalFiles]:
    """Yield the snapshots of `hekla run --sync` that no job runs in."""
    for root in host_paths.cache_directories() if scope.used_keys is not None else ():
        for each in list_snapshots(root):
            if each.last_used < scope.before and each.key not in (scope.used_keys or ()):
                remove = partial(remove_snapshot, each)
                yield _cached("snapshot", each.key, each.path, each.last_used, remove)


def _cached(
    kind: str, key: str, path: Path, used_at: float, remove: Callable[[], object]
) -> LocalFiles:
    return LocalFiles(kind, "", key, path, used_at, size_of(path), remove)


LOCAL_SOURCES: tuple[LocalSource, ...] = (kept_logs, environments, snapshots)


def used_keys(objects: Iterable[Any]) -> Iterator[str]:
    """Yield the keys in the annotations of objects and of their pod templates, at any depth."""
    for value in objects:
        if isinstance(value, list):
            yield from used_keys(value)
        elif isinstance(value, dict):
            for name in (RUN_ENVIRONMENT, RUN_SNAPSHOT):
                if isinstance(key := value.get(name), str):
                    yield key
            yield from used_keys(value.values())


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
    usual, end_of = ENDS[str(resource)]
    for obj in objects:
        metadata = obj["metadata"]
        owners = metadata.get("ownerReferences") or ()
        ended_at = end_of(obj)
        if ended_at is None or ended_at >= before or metadata.get("deletionTimestamp"):
            continue
        if not any(owner.get("controller") for owner in owners):
            kind = "aborted job" if usual == "job" and _is_aborted(obj) else usual
            yield EndedObject(
                resource, kind, metadata["namespace"], metadata["name"], metadata["uid"], ended_at
            )


def _seconds(text: Any) -> float | None:
    try:
        return parse_time(text) if text else None
    except TimestampError:
        return None


def _is_aborted(job: Object) -> bool:
    """Return whether a job was aborted or suspended: it is kept until it is resumed or deleted."""
    return bool(field_at(job, "status", "state", "phase") == JobPhase.ABORTED)


def job_end(job: Object) -> float | None:
    """Return when a Volcano Job ended or was aborted; None if it has not."""
    if field_at(job, "status", "state", "phase") not in JobPhase.FINISHED and not _is_aborted(job):
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
