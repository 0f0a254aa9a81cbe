"""Reconcile StatefulSets: pods with stable names, ordinals and claims.

`next_step` is pure. Pods are created in order, each when those before it are available, and deleted
in reverse order; with `podManagementPolicy: Parallel` all at once. An update goes from the last pod
to the first, one at a time, down to the partition.

Note: names are fixed, so a pod can be replaced only when its predecessor no longer exists. While a
pod is being deleted, the set waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hekla.controllers.objects import (
    is_deleting,
    labels_of,
    owner_reference,
    status_of,
)
from hekla.controllers.workloads.effects import (
    MAX_BURST,
    Create,
    Delete,
    Effect,
    EmitEvent,
    RequeueAfter,
    SetStatus,
    requeue,
)
from hekla.controllers.workloads.pods import (
    from_template,
    is_available,
    is_finished,
    is_ready,
    label_selector,
    next_available,
    release_and_adopt,
)
from hekla.controllers.workloads.revisions import REVISION_LABEL, Revisions
from hekla.kube.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
)
from hekla.units.objects import Object
from hekla.units.patches import create_merge_patch

POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"


@dataclass(frozen=True)
class StatefulSetView:
    """The input of a decision about one stateful set."""

    owner: Object
    now: float
    pods: Sequence[Object] = ()
    orphans: Sequence[Object] = ()
    revisions: Sequence[Object] = ()
    claims: Mapping[str, Object] = field(default_factory=dict)
    """The claims of the namespace, by name."""

    @property
    def spec(self) -> Object:
        found: Object = self.owner["spec"]
        return found

    @property
    def name(self) -> str:
        return str(self.owner["metadata"]["name"])

    @property
    def first(self) -> int:
        return int((self.spec.get("ordinals") or {}).get("start") or 0)

    @property
    def ordinals(self) -> range:
        return range(self.first, self.first + int(self.spec.get("replicas") or 0))

    def ordinal(self, pod: Object) -> int | None:
        """Return the ordinal of a pod; None if its name has none."""
        base, _, number = str(pod["metadata"]["name"]).rpartition("-")
        return int(number) if base == self.name and number.isdecimal() else None

    def is_available(self, pod: Object) -> bool:
        least = self.spec.get("minReadySeconds") or 0
        return not is_deleting(pod) and is_available(pod, least, self.now)


def next_step(view: StatefulSetView) -> list[Effect]:
    """Return the effects that reconcile a stateful set."""
    selector = label_selector(view.spec.get("selector"))
    named = [pod for pod in view.orphans if view.ordinal(pod) is not None]
    taken = release_and_adopt(STATEFUL_SETS, view.owner, selector, PODS, view.pods, named)
    if taken:
        return [*taken, RequeueAfter(0.0)]
    revisions = Revisions(STATEFUL_SETS, view.owner, view.revisions)
    if is_deleting(view.owner):
        return []
    if changes := revisions.changes():
        return [*changes, RequeueAfter(0.0)]
    pods = {at: pod for pod in view.pods if (at := view.ordinal(pod)) is not None}
    effects: list[Effect] = [*_unsupported(view), *_pods(view, pods, revisions)]
    patch = create_merge_patch(status_of(view.owner), _status(view, pods, revisions))
    if patch:
        effects.append(SetStatus(patch))
    in_use = {labels_of(pod).get(REVISION_LABEL, "") for pod in view.pods}
    effects += revisions.surplus(in_use)
    wait = next_available(pods.values(), view.spec.get("minReadySeconds") or 0, view.now)
    return [*effects, *requeue(wait)]


def _unsupported(view: StatefulSetView) -> list[Effect]:
    given = (view.spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    if given.get("maxUnavailable") in (None, 1):
        return []
    message = "updateStrategy.rollingUpdate.maxUnavailable is not supported; only 1 is"
    return [EmitEvent("Warning", "UnsupportedField", message)]


# Pods


def _pods(view: StatefulSetView, pods: dict[int, Object], revisions: Revisions) -> list[Effect]:
    is_parallel = view.spec.get("podManagementPolicy") == "Parallel"
    effects, all_available = _scale_up(view, pods, revisions, is_parallel)
    if not all_available and not is_parallel:
        return effects
    shrunk, has_no_surplus = _scale_down(view, pods, is_parallel)
    effects += shrunk
    effects += _delete_unused_claims(view, pods)
    if effects or not has_no_surplus or not all_available:
        return effects
    return _update(view, pods, revisions)


def _scale_up(
    view: StatefulSetView, pods: dict[int, Object], revisions: Revisions, is_parallel: bool
) -> tuple[list[Effect], bool]:
    """Create missing pods and replace ended ones; return whether all are available."""
    effects: list[Effect] = []
    all_available = True
    for at in view.ordinals:
        pod = pods.get(at)
        if pod is not None and view.is_available(pod):
            continue
        all_available = False
        if pod is None:
            effects += _create_pod(view, at, revisions)
        elif not is_deleting(pod) and (is_finished(pod) or _is_stuck(view, at, pod, revisions)):
            message = f"StatefulSet {view.name} is recreating pod {pod['metadata']['name']}"
            effects += [EmitEvent("Warning", "RecreatingFailedPod", message), Delete(PODS, pod)]
        if not is_parallel or len(effects) >= MAX_BURST:
            break
    return effects, all_available


def _is_stuck(view: StatefulSetView, at: int, pod: Object, revisions: Revisions) -> bool:
    """Return whether a pod of an old template is not ready.

    Kubernetes waits for such a pod for ever, even if the new template would fix it; we replace it.
    """
    is_old = labels_of(pod).get(REVISION_LABEL) != revisions.updated
    return is_old and not is_ready(pod) and at >= _partition(view) and not _is_on_delete(view)


def _partition(view: StatefulSetView) -> int:
    given = (view.spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    return int(given.get("partition") or 0)


def _is_on_delete(view: StatefulSetView) -> bool:
    return (view.spec.get("updateStrategy") or {}).get("type") == "OnDelete"


def _scale_down(
    view: StatefulSetView, pods: dict[int, Object], is_parallel: bool
) -> tuple[list[Effect], bool]:
    """Delete pods beyond the last ordinal, highest first; return whether none is left."""
    effects: list[Effect] = []
    surplus = sorted((at for at in pods if at not in view.ordinals), reverse=True)
    for at in surplus[:MAX_BURST]:
        if not is_deleting(pods[at]):
            effects.append(Delete(PODS, pods[at]))
        if not is_parallel:
            break
    return effects, not surplus


def _update(view: StatefulSetView, pods: dict[int, Object], revisions: Revisions) -> list[Effect]:
    """Delete the highest pod of an old revision, when all others are available."""
    if _is_on_delete(view):
        return []
    for at in reversed(view.ordinals):
        pod = pods[at]
        if at >= _partition(view) and labels_of(pod).get(REVISION_LABEL) != revisions.updated:
            return [Delete(PODS, pod)]
    return []


def _create_pod(view: StatefulSetView, at: int, revisions: Revisions) -> list[Effect]:
    is_old = not _is_on_delete(view) and at < _partition(view)
    revision = revisions.current if is_old else revisions.updated
    pod = pod_of(view, at, revisions.template(revision), revision)
    missing = [
        body for body in claim_bodies(view, at) if body["metadata"]["name"] not in view.claims
    ]
    effects: list[Effect] = [
        Create(PERSISTENT_VOLUME_CLAIMS, body, is_shared=True) for body in missing
    ]
    return [*effects, Create(PODS, pod)]


def pod_of(view: StatefulSetView, at: int, template: Object, revision: str) -> Object:
    """Return the pod of an ordinal, with its name, host name and claims."""
    pod = from_template(STATEFUL_SETS, view.owner, template)
    name = f"{view.name}-{at}"
    pod["metadata"]["name"] = name
    pod["metadata"]["labels"] |= {POD_NAME: name, POD_INDEX: str(at), REVISION_LABEL: revision}
    spec = pod["spec"]
    spec["hostname"] = name
    if view.spec.get("serviceName"):
        spec["subdomain"] = view.spec["serviceName"]
    claimed = [
        {
            "name": each["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": f"{each['metadata']['name']}-{name}"},
        }
        for each in view.spec.get("volumeClaimTemplates") or ()
    ]
    taken = {each["name"] for each in claimed}
    kept = [each for each in spec.get("volumes") or () if each["name"] not in taken]
    if claimed:
        spec["volumes"] = [*kept, *claimed]
    return pod


# Claims


def claim_bodies(view: StatefulSetView, at: int) -> Iterable[Object]:
    """Yield the claims of an ordinal; by default they outlive the pods and the set."""
    policy = view.spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for template in view.spec.get("volumeClaimTemplates") or ():
        given = template["metadata"]
        metadata: Object = {
            "name": f"{given['name']}-{view.name}-{at}",
            "namespace": view.owner["metadata"]["namespace"],
            "labels": {
                **(given.get("labels") or {}),
                **((view.spec.get("selector") or {}).get("matchLabels") or {}),
            },
        }
        if given.get("annotations"):
            metadata["annotations"] = dict(given["annotations"])
        if policy.get("whenDeleted") == "Delete":
            owner = owner_reference("apps/v1", "StatefulSet", view.owner)
            metadata["ownerReferences"] = [owner]
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
            "spec": template.get("spec") or {},
        }


def _delete_unused_claims(view: StatefulSetView, pods: dict[int, Object]) -> list[Effect]:
    """Delete claims of removed ordinals, if the retention policy is Delete."""
    policy = view.spec.get("persistentVolumeClaimRetentionPolicy") or {}
    if policy.get("whenScaled") != "Delete":
        return []
    effects: list[Effect] = []
    for template in view.spec.get("volumeClaimTemplates") or ():
        prefix = f"{template['metadata']['name']}-{view.name}-"
        for name, claim in view.claims.items():
            number = name.removeprefix(prefix)
            if not name.startswith(prefix) or not number.isdecimal() or is_deleting(claim):
                continue
            if int(number) not in view.ordinals and int(number) not in pods:
                effects.append(Delete(PERSISTENT_VOLUME_CLAIMS, claim))
    return effects


# Status


def _status(view: StatefulSetView, pods: dict[int, Object], revisions: Revisions) -> Object:
    old = status_of(view.owner)
    active = [pod for pod in pods.values() if not is_deleting(pod) and not is_finished(pod)]
    ready = [pod for pod in active if is_ready(pod)]
    of = [labels_of(pod).get(REVISION_LABEL) for pod in active]
    new: Object = {
        "observedGeneration": view.owner["metadata"].get("generation", 0),
        "replicas": len(active),
        "readyReplicas": len(ready),
        "availableReplicas": sum(map(view.is_available, active)),
        "currentReplicas": of.count(revisions.current),
        "updatedReplicas": of.count(revisions.updated),
        "currentRevision": revisions.current,
        "updateRevision": revisions.updated,
        "collisionCount": old.get("collisionCount") or 0,
    }
    wanted = int(view.spec.get("replicas") or 0)
    complete = new["updatedReplicas"] == new["readyReplicas"] == new["replicas"] == wanted
    if complete and not _is_on_delete(view):
        new["currentRevision"] = revisions.updated
        new["currentReplicas"] = new["updatedReplicas"]
    for count in ("readyReplicas", "currentReplicas", "updatedReplicas"):
        if not new[count]:
            del new[count]
    if old.get("conditions"):
        new["conditions"] = old["conditions"]
    return new
