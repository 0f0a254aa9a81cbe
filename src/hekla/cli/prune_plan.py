"""The plan of `hekla prune`, and carrying it out.

A plan holds only what the caller may delete. Objects are deleted by uid, so that a new object of
the same name stays.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hekla.cli.prunable import (
    LOCAL_SOURCES,
    EndedObject,
    LocalFiles,
    Scope,
    ended_objects,
    pod_end,
    size_of,
    used_keys,
)
from hekla.cli.vcctl.options import Session
from hekla.kube.data_dir import KUBECONFIG_FILE, running_pid
from hekla.kube.errors import Conflict, Forbidden, NotFound
from hekla.kube.resources import BATCH_CRON_JOBS, BATCH_JOBS, CRON_JOBS, JOB_TEMPLATES, JOBS, PODS
from hekla.units.objects import Object

RESOURCES = (JOBS, BATCH_JOBS, PODS)
REMOVAL_PATIENCE_S = 30.0
REMOVAL_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    """What is removed."""

    objects: Sequence[EndedObject]
    files: Sequence[LocalFiles] = ()
    pods: dict[str, Path] = field(default_factory=dict)
    """Directories of pods that are deleted, by uid, on this machine."""
    pod_bytes: int = 0
    forbidden: Counter[str] = field(default_factory=Counter)
    """Number of ended objects that the caller may not delete, by namespace."""

    @property
    def size_bytes(self) -> int:
        return self.pod_bytes + sum(each.size_bytes for each in self.files)

    def __bool__(self) -> bool:
        return bool(self.objects or self.files)

    def counts(self) -> str:
        """Return the numbers by kind, such as `3 jobs, 1 pod and 2 kept logs`."""
        kinds = Counter([*(one.kind for one in self.objects), *(one.kind for one in self.files)])
        words = [f"{count} {kind}{'s' * (count != 1)}" for kind, count in kinds.items()]
        return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def make_plan(session: Session, namespace: str | None, before: float) -> Plan:
    """Return what ended before a time, and what the caller may delete of it."""
    ended: list[EndedObject] = []
    pods: list[Object] = []
    for resource in RESOURCES:
        try:
            listed = session.client.list(resource, namespace=namespace).items
        except NotFound:
            continue  # the cluster does not have the kind
        ended += ended_objects(resource, listed, before)
        if resource is PODS:
            pods = listed
    allowed, forbidden = _by_right(session, ended)
    data_dir = _data_dir(session)
    if data_dir is None:
        return Plan(allowed, forbidden=forbidden)
    scope = Scope(data_dir, namespace, before, _used_keys(session, {each.uid for each in allowed}))
    files = [each for source in LOCAL_SOURCES for each in source(scope)]
    directories = _pod_directories(data_dir, {each.uid for each in allowed}, pods)
    pod_bytes = sum(size_of(path) for path in directories.values())
    return Plan(allowed, files, directories, pod_bytes, forbidden)


def _used_keys(session: Session, pruned: set[str]) -> frozenset[str] | None:
    """Return the keys of cached directories that jobs in any namespace use, or may use again.

    None for a caller who may not see all of them.
    """
    users: list[Object] = []
    for resource in (*RESOURCES, CRON_JOBS, JOB_TEMPLATES, BATCH_CRON_JOBS):
        try:
            listed = session.client.list(resource).items
        except NotFound:
            continue
        except Forbidden:
            return None
        users += [obj for obj in listed if resource is not PODS or pod_end(obj) is None]
    return frozenset(used_keys(obj for obj in users if obj["metadata"]["uid"] not in pruned))


def _by_right(
    session: Session, ended: Iterable[EndedObject]
) -> tuple[list[EndedObject], Counter[str]]:
    """Return what the caller may delete, and the number of the others by namespace."""
    rights: dict[tuple[str, str], bool] = {}
    allowed: list[EndedObject] = []
    forbidden: Counter[str] = Counter()
    for each in ended:
        key = str(each.resource), each.namespace
        if key not in rights:
            rights[key] = _may_delete(session, each)
        if rights[key]:
            allowed.append(each)
        else:
            forbidden[each.namespace] += 1
    return allowed, forbidden


def _may_delete(session: Session, each: EndedObject) -> bool:
    reviews = session.client.resource(
        "authorization.k8s.io/v1",
        "selfsubjectaccessreviews",
        kind="SelfSubjectAccessReview",
        namespaced=False,
    )
    attributes = {
        "verb": "delete",
        "group": each.resource.group,
        "resource": each.resource.plural,
        "namespace": each.namespace,
    }
    answer = session.client.create(reviews, {"spec": {"resourceAttributes": attributes}})
    return bool((answer.get("status") or {}).get("allowed"))


def _data_dir(session: Session) -> Path | None:
    """Return the data directory of the cluster, if it runs on this machine and is the caller's."""
    for path in session.config.paths:
        where = path.absolute().parent
        if path.name == KUBECONFIG_FILE and running_pid(where) is not None:
            return where
    return None


def _pod_directories(data_dir: Path, uids: set[str], pods: Iterable[Object]) -> dict[str, Path]:
    """Return the directories on this machine of the pods that are deleted with these objects."""
    found: dict[str, Path] = {}
    for pod in pods:
        uid = str(pod["metadata"]["uid"])
        owners = {str(owner.get("uid")) for owner in pod["metadata"].get("ownerReferences") or ()}
        path = data_dir / "node" / "pods" / uid
        if (uid in uids or owners & uids) and path.is_dir():
            found[uid] = path
    return found


def carry_out(session: Session, plan: Plan) -> int:
    """Delete what is planned; return how many objects were deleted."""
    deleted = 0
    for each in plan.objects:
        try:
            session.client.delete(
                each.resource,
                each.name,
                namespace=each.namespace,
                uid=each.uid,
                propagation="Background",
            )
            deleted += 1
        except (Conflict, NotFound):
            continue  # deleted in the meantime, or another object of the name
        except Forbidden:
            plan.forbidden[each.namespace] += 1
    for files in plan.files:
        if files.remove is None:
            _remove(files.path)
        else:
            files.remove()
    return deleted


def _remove(path: Path) -> None:
    """Remove a directory, and its parent if it is empty then."""
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()


def await_removal(plan: Plan) -> int:
    """Wait until the node agent has removed the pods, then remove the logs that it kept of them.

    Return how many pods it has not removed yet.
    """
    deadline = time.monotonic() + REMOVAL_PATIENCE_S
    left = dict(plan.pods)
    while left:
        for uid, path in list(left.items()):
            if not path.exists():
                del left[uid]
                for kept in path.parents[1].glob(f"logs/*/*/{uid}"):
                    _remove(kept)
        if not left or time.monotonic() >= deadline:
            break
        time.sleep(REMOVAL_POLL_S)
    return len(left)
