"""The workload above a pod whose pods are a gang: found by owner references, read on demand.

A pod of a JobSet belongs to a Job, and the Job to the JobSet. A worker of a LeaderWorkerSet belongs
to a StatefulSet, that to its leader pod, and the leader to the StatefulSet of all leaders.

These kinds may not exist in a cluster, so there is no informer: a workload is read when one of its
pods gets a group, at most once per `MAX_AGE_S`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Final

from hekla.controllers.gangs import Gang, Workload, job_gang, workload_of
from hekla.controllers.informers import InformerFactory, MutationCache
from hekla.controllers.objects import (
    OwnerReference,
    controller_of,
    created_at,
    key_of,
    owner_reference,
    uid_of,
)
from hekla.kube.errors import Forbidden
from hekla.kube.resources import Resource, resource
from hekla.units.objects import Object

log = logging.getLogger("hekla.controllers")

MAX_AGE_S: Final = 10.0
MAX_REMEMBERED: Final = 1024
MAX_DEPTH: Final = 6
"""Owners above a pod. The deepest known chain is a worker of a LeaderWorkerSet, with five."""
NEW_POD_S: Final = 10.0
"""Until then a missing owner may just not have been seen yet."""


class OwnerUnknown(Exception):
    """An owner of a new pod is not in the cache yet."""


@dataclass(frozen=True, slots=True)
class GroupOwner:
    """The owner of a group: a workload, or one leader pod of it."""

    reference: OwnerReference
    workload: Object | None
    """With the annotations; None if it cannot be read."""
    gang: Gang | None


@cache
def _resource(api_version: str, plural: str, kind: str) -> Resource[Any]:
    return resource(api_version, plural, kind=kind)


class GangOwners:
    """Finds the owner of a pod's gang."""

    def __init__(
        self,
        informers: InformerFactory,
        owners: Mapping[str, MutationCache],
        pods: MutationCache,
        schedulers: Sequence[str],
    ) -> None:
        self._client = informers.client
        self._clock = informers.clock
        self._caches = {**owners, "Pod": pods}
        self._schedulers = schedulers
        self._read: dict[str, tuple[float, Object | None]] = {}
        self._refused: set[str] = set()

    async def of(self, pod: Object) -> GroupOwner | None:
        """Return the owner of the pod's gang; None if the pod's controller is the owner."""
        line = self._line(pod)
        if not line:
            return None
        reference, below = line[-1]
        workload = workload_of(reference)
        if workload is None:
            return None
        obj = await self._read_workload(reference, workload, key_of(pod)[0])
        gang = workload.gang(obj) if obj is not None else None
        if obj is not None and gang is None:
            return self._direct(pod, below)
        if workload.is_grouped_by_leader:
            leader = self._leader(pod, line)
            reference = owner_reference("v1", "Pod", leader)
        return GroupOwner(reference, obj, gang.scheduled_by(self._schedulers) if gang else None)

    def _line(self, pod: Object) -> list[tuple[OwnerReference, Object]]:
        """Return the controllers from the pod up, each with the object that it owns."""
        line: list[tuple[OwnerReference, Object]] = []
        below = pod
        while (reference := controller_of(below)) is not None and len(line) < MAX_DEPTH:
            line.append((reference, below))
            if workload_of(reference) is not None or reference.get("kind") not in self._caches:
                break
            found = self._caches[reference["kind"]].get(key_of(pod)[0], reference["name"])
            if found is None or uid_of(found) != reference["uid"]:
                if self._clock.now() - created_at(pod) < NEW_POD_S:
                    raise OwnerUnknown
                break
            below = found
        return line

    @staticmethod
    def _leader(pod: Object, line: list[tuple[OwnerReference, Object]]) -> Object:
        """Return the topmost pod of a line: the leader, or the pod itself."""
        for (reference, _), (_, owner) in reversed(list(pairwise(line))):
            if reference.get("kind") == "Pod":
                return owner
        return pod

    def _direct(self, pod: Object, below: Object) -> GroupOwner | None:
        """Return the owner of pods whose workload starts its parts one after the other."""
        reference = controller_of(pod)
        if reference is None or reference.get("kind") != "Job" or below is pod:
            return None
        return GroupOwner(reference, below, job_gang(below).scheduled_by(self._schedulers))

    async def _read_workload(
        self, reference: OwnerReference, workload: Workload, namespace: str
    ) -> Object | None:
        uid, now = str(reference["uid"]), self._clock.now()
        known = self._read.get(uid)
        if known is not None and now - known[0] < MAX_AGE_S:
            return known[1]
        kind = str(reference["kind"])
        where = _resource(str(reference["apiVersion"]), workload.plural, kind)
        try:
            found = await self._client.find(where, str(reference["name"]), namespace=namespace)
        except ValueError:  # pods may claim any owner, also one that cannot be
            found = None
        except Forbidden as error:
            found = None
            if kind not in self._refused:
                self._refused.add(kind)
                log.warning("groups of a %s have a minimum of 1, since it is unreadable: %s",
                            kind, error)  # fmt: skip
        if found is not None and uid_of(found) != uid:
            found = None
        self._read.pop(uid, None)
        self._read[uid] = (now, found)
        if len(self._read) > MAX_REMEMBERED:
            self._read.pop(next(iter(self._read)))
        return found
