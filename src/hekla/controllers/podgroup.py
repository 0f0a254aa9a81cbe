"""PodGroups for pods that do not belong to a Volcano Job: bare pods, and pods of ReplicaSets,
StatefulSets, DaemonSets and Kubernetes' Jobs, if they name our scheduler.

Pods of one owner share a group, `podgroup-<uid of the owner>`; a bare pod has a group for itself.
The group follows the owner's annotations, and is deleted when the owner is scaled to zero. The
owner is the controller of the pod, or the workload above it whose pods are a gang (`gangs`).

Note: the scheduler reads the annotation on the pod. It is written last, when the group exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from hekla.api import wellknown
from hekla.api.pod_resources import Amounts, quota_usage
from hekla.api.wellknown import PodGroupPhase
from hekla.controllers.gang_owners import GangOwners, GroupOwner, OwnerUnknown
from hekla.controllers.gangs import Gang
from hekla.controllers.informers import OWNER, InformerFactory, is_volcano_job_ref
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import (
    Key,
    annotations_of,
    controller_of,
    is_deleting,
    key_of,
    labels_of,
    owner_reference,
    uid_of,
)
from hekla.controllers.reconciler import Reconciler
from hekla.kube.errors import AlreadyExists
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import (
    BATCH_JOBS,
    DAEMON_SETS,
    PODGROUPS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)
from hekla.units.objects import Object
from hekla.units.patches import create_merge_patch

WORKLOADS: Final[dict[str, Resource[Object]]] = {
    "ReplicaSet": REPLICA_SETS,
    "StatefulSet": STATEFUL_SETS,
    "DaemonSet": DAEMON_SETS,
    "Job": BATCH_JOBS,
}
OWNER_WAIT_S: Final = 0.2
_FROM_POD: Final = (wellknown.PREEMPTABLE, wellknown.COOLDOWN_TIME, wellknown.REVOCABLE_ZONE)


def wants_group(pod: Object, schedulers: Sequence[str]) -> bool:
    """Return whether this controller has to create a group for a pod."""
    return (
        (pod.get("spec") or {}).get("schedulerName") in schedulers
        and wellknown.GROUP_NAME not in annotations_of(pod)
        and not is_deleting(pod)
        and not is_volcano_job_ref(controller_of(pod))
    )


def group_name_for(pod: Object, above: GroupOwner | None = None) -> str:
    """Return the name of the group of a pod, from its owner or itself."""
    owner = above.reference if above else controller_of(pod)
    return f"{wellknown.BARE_POD_GROUP_PREFIX}{owner['uid'] if owner else uid_of(pod)}"


def min_member(owner: Object | None, gang: Gang | None = None) -> int:
    """Return the gang's minimum: the owner's annotation, what the workload needs, or one."""
    text = annotations_of(owner).get(wellknown.GROUP_MIN_MEMBER, "") if owner else ""
    if text.isdecimal():
        return int(text)
    return gang.min_member if gang else 1


def build(pod: Object, owner: Object | None, above: GroupOwner | None = None) -> Object:
    """Return the group of a pod, from the pod and its owner, or from the gang's owner above."""
    gang = above.gang if above else None
    owner = above.workload if above else owner
    spec, annotations, members = pod["spec"], annotations_of(pod), min_member(owner, gang)
    wanted: Object = {
        "minMember": members,
        "minResources": _texts(gang.resources(members))
        if gang
        else _resources(quota_usage(spec), members),
    }
    if priority := (gang.priority_class if gang else "") or spec.get("priorityClassName"):
        wanted["priorityClassName"] = priority
    from_owner = annotations_of(owner).get(wellknown.POD_QUEUE_NAME) if gang and owner else ""
    if queue := annotations.get(wellknown.POD_QUEUE_NAME) or from_owner or (gang and gang.queue):
        wanted["queue"] = queue
    if topology := _topology(annotations):
        wanted["networkTopology"] = topology
    inherited = {
        key: value
        for key, value in (annotations_of(owner) if owner else {}).items()
        if key.startswith(wellknown.OWNER_ANNOTATION_PREFIX)
    }
    inherited |= {key: annotations[key] for key in _FROM_POD if key in annotations}
    for key in (wellknown.JDB_MIN_AVAILABLE, wellknown.JDB_MAX_UNAVAILABLE):
        if key in annotations:
            inherited[key] = annotations[key]
            break
    if controller_of(pod) is None and wellknown.SUBMITTED_BY in annotations:
        # Admission recorded it on this pod. A pod of a controller has what its template claims.
        inherited[wellknown.SUBMITTED_BY] = annotations[wellknown.SUBMITTED_BY]
    keys = (wellknown.PREEMPTABLE, wellknown.COOLDOWN_TIME)
    labels = {key: labels_of(pod)[key] for key in keys if key in labels_of(pod)}
    owners = pod["metadata"].get("ownerReferences") if controller_of(pod) else None
    if above:
        # Without the right to block the deletion of other projects' kinds, which is not needed.
        owners = [{**above.reference, "blockOwnerDeletion": False}]
    metadata: Object = {
        "name": group_name_for(pod, above),
        "namespace": pod["metadata"]["namespace"],
        "ownerReferences": owners or [owner_reference("v1", "Pod", pod)],
    }
    if inherited:
        metadata["annotations"] = inherited
    if labels:
        metadata["labels"] = labels
    return {
        "apiVersion": wellknown.SCHEDULING_API,
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": wanted,
        "status": {"phase": PodGroupPhase.PENDING},
    }


def update(group: Object, wanted: Object, *, is_gang: bool = False) -> Object:
    """Return a patch that makes a group follow its owner; fields of other writers stay.

    The pods of a gang may differ: what was taken from its first pod stays.
    """
    changed = wanted["spec"]
    if is_gang:
        changed = {key: changed[key] for key in ("minMember", "minResources")}
    spec = {**(group.get("spec") or {}), **changed}
    annotations = {**annotations_of(group), **(wanted["metadata"].get("annotations") or {})}
    patch: Object = {}
    if changes := create_merge_patch(group.get("spec") or {}, spec):
        patch["spec"] = changes
    if changes := create_merge_patch(annotations_of(group), annotations):
        patch["metadata"] = {"annotations": changes}
    return patch


def _resources(usage: Amounts, members: int) -> dict[str, str]:
    return _texts({name: amount * members for name, amount in usage.items()})


def _texts(amounts: Amounts) -> dict[str, str]:
    return {name: str(amount) for name, amount in sorted(amounts.items())}


def _topology(annotations: dict[str, str]) -> Object | None:
    mode = annotations.get(wellknown.NETWORK_TOPOLOGY_MODE)
    tier = annotations.get(wellknown.NETWORK_TOPOLOGY_HIGHEST_TIER)
    if mode is None and tier is None:
        return None
    found: Object = {"mode": "soft" if (mode or "").lower() == "soft" else "hard"}
    if tier is not None and tier.isdecimal():
        found["highestTierAllowed"] = int(tier)
    return found


def _has_group_of_ours(pod: Object) -> bool:
    name = annotations_of(pod).get(wellknown.GROUP_NAME, "")
    return name.startswith(wellknown.BARE_POD_GROUP_PREFIX)


def is_scaled_to_zero(owner: Object) -> bool:
    return (owner.get("spec") or {}).get("replicas") == 0


class PodGroupController(Reconciler):
    """Reconciles pods; also groups of workloads that were scaled to zero."""

    name = "pg-controller"
    workers = 5

    def __init__(
        self,
        informers: InformerFactory,
        recorder: EventRecorder,
        metrics: Metrics,
        *,
        schedulers: Sequence[str] = (wellknown.DEFAULT_SCHEDULER,),
    ) -> None:
        super().__init__(informers, recorder, metrics)
        self._schedulers = schedulers
        self._pods = informers.cache(PODS)
        self._groups = informers.cache(PODGROUPS)
        self._owners = {kind: informers.cache(resource) for kind, resource in WORKLOADS.items()}
        self._gang_owners = GangOwners(informers, self._owners, self._pods, schedulers)
        self._pods.add_handler(self._on_pod)
        for cache in self._owners.values():
            cache.add_handler(self._on_owner)

    def _on_pod(self, event: str, old: Object | None, new: Object | None) -> None:
        if new is not None and wants_group(new, self._schedulers):
            self.queue.add(key_of(new))

    def _on_owner(self, event: str, old: Object | None, new: Object | None) -> None:
        """Reconcile the group by one pod of the owner."""
        if new is None:
            return
        namespace = key_of(new)[0]
        if is_scaled_to_zero(new):
            self.queue.add((namespace, f"{wellknown.BARE_POD_GROUP_PREFIX}{uid_of(new)}"))
            return
        if old is not None and annotations_of(old) == annotations_of(new):
            return
        for pod in self._pods.by_index(OWNER, uid_of(new))[:1]:
            self.queue.add(key_of(pod))

    def _owner(self, pod: Object) -> Object | None:
        reference = controller_of(pod)
        if reference is None or reference.get("kind") not in self._owners:
            return None
        found = self._owners[reference["kind"]].get(key_of(pod)[0], reference["name"])
        return found if found is not None and uid_of(found) == reference["uid"] else None

    async def reconcile(self, key: Key) -> float | None:
        namespace, name = key
        pod = self._pods.get(*key)
        if pod is None:
            await self._delete_group_at_zero_replicas(namespace, name)
            return None
        needs_group = wants_group(pod, self._schedulers)
        if not needs_group and not _has_group_of_ours(pod):
            return None
        try:
            above = await self._gang_owners.of(pod)
        except OwnerUnknown:
            return OWNER_WAIT_S
        has_own_group = annotations_of(pod).get(wellknown.GROUP_NAME) == group_name_for(pod, above)
        if not has_own_group and not needs_group:
            return None
        wanted = build(pod, self._owner(pod), above)
        group = self._groups.get(namespace, wanted["metadata"]["name"])
        if group is None:
            with suppress(AlreadyExists):  # by another pod of the same owner
                self._groups.record_write(await self.client.create(PODGROUPS, wanted))
        elif controller_of(pod) is not None and (
            patch := update(group, wanted, is_gang=above is not None)
        ):
            written = await self.client.patch(
                PODGROUPS, wanted["metadata"]["name"], patch, namespace=namespace
            )
            self._groups.record_write(written)
        if not has_own_group:
            marks = {wellknown.GROUP_NAME: wanted["metadata"]["name"]}
            patch = {"metadata": {"uid": uid_of(pod), "annotations": marks}}
            self._pods.record_write(await self.client.patch(PODS, name, patch, namespace=namespace))
        return None

    async def _delete_group_at_zero_replicas(self, namespace: str, name: str) -> None:
        """Delete the group of a workload that was scaled to zero."""
        if not name.startswith(wellknown.BARE_POD_GROUP_PREFIX):
            return
        group = self._groups.get(namespace, name)
        owner = controller_of(group) if group is not None else None
        if group is None or owner is None or owner.get("kind") not in self._owners:
            return
        workload = self._owners[owner["kind"]].get(namespace, owner["name"])
        if (
            workload is not None
            and is_scaled_to_zero(workload)
            and uid_of(workload) == owner["uid"]
        ):
            await self.client.delete(
                PODGROUPS, name, namespace=namespace, uid=uid_of(group), missing_ok=True
            )
