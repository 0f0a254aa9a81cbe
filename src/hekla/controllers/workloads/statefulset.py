"""StatefulSets: pods with names, places and claims that stay theirs.

`next_step` is pure. Pods come up in order, each when those before it are available, and go in the
reverse order; with `podManagementPolicy: Parallel` all at once. An update goes from the last pod to
the first, one at a time, down to the partition.

What a newcomer gets wrong: names are fixed, so a pod can be replaced only when its predecessor is
gone for good. A pod that is being deleted therefore always means: wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import (
    is_controlled_by,
    is_deleting,
    key_of,
    labels_of,
    owner_reference,
    status_of,
    uid_of,
)
from hekla.controllers.watched import World
from hekla.controllers.workloads.base import MAX_BURST, WorkloadController, wakes
from hekla.controllers.workloads.effects import Create, Delete, Effect, SetStatus, Tell, Wake
from hekla.controllers.workloads.pods import (
    claims,
    from_template,
    is_available,
    is_over,
    is_ready,
    matcher,
    next_available,
)
from hekla.controllers.workloads.revisions import REVISION_LABEL, Revisions
from hekla.kube.recorder import EventRecorder
from hekla.kube.resources import (
    CONTROLLER_REVISIONS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
    Resource,
)
from hekla.units.objects import Object
from hekla.units.patches import create_merge_patch

POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"


@dataclass(frozen=True)
class StatefulView:
    owner: Object
    now: float
    pods: Sequence[Object] = ()
    orphans: Sequence[Object] = ()
    revisions: Sequence[Object] = ()
    claims: Mapping[str, Object] = field(default_factory=dict)
    """The claims of its namespace by name."""

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
        """Its place; None for a pod that is ours and has no such name."""
        base, _, number = str(pod["metadata"]["name"]).rpartition("-")
        return int(number) if base == self.name and number.isdecimal() else None

    def is_available(self, pod: Object) -> bool:
        least = self.spec.get("minReadySeconds") or 0
        return not is_deleting(pod) and is_available(pod, least, self.now)


def next_step(view: StatefulView) -> list[Effect]:
    """What to do about a stateful set."""
    selector = matcher(view.spec.get("selector"))
    named = [pod for pod in view.orphans if view.ordinal(pod) is not None]
    taken = claims(STATEFUL_SETS, view.owner, selector, PODS, view.pods, named)
    if taken:
        return [*taken, Wake(0.0)]
    revisions = Revisions(STATEFUL_SETS, view.owner, view.revisions)
    if is_deleting(view.owner):
        return []
    if changes := revisions.changes():
        return [*changes, Wake(0.0)]
    pods = {at: pod for pod in view.pods if (at := view.ordinal(pod)) is not None}
    effects: list[Effect] = [*_unsupported(view), *_pods(view, pods, revisions)]
    patch = create_merge_patch(status_of(view.owner), _status(view, pods, revisions))
    if patch:
        effects.append(SetStatus(patch))
    in_use = {labels_of(pod).get(REVISION_LABEL, "") for pod in view.pods}
    effects += revisions.surplus(in_use)
    wait = next_available(pods.values(), view.spec.get("minReadySeconds") or 0, view.now)
    return [*effects, *wakes(wait)]


def _unsupported(view: StatefulView) -> list[Effect]:
    given = (view.spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    if given.get("maxUnavailable") in (None, 1):
        return []
    told = "updateStrategy.rollingUpdate.maxUnavailable is not supported here: one pod at a time"
    return [Tell("Warning", "UnsupportedField", told)]


# Pods


def _pods(view: StatefulView, pods: dict[int, Object], revisions: Revisions) -> list[Effect]:
    is_parallel = view.spec.get("podManagementPolicy") == "Parallel"
    effects, is_settled = _grown(view, pods, revisions, is_parallel)
    if not is_settled and not is_parallel:
        return effects
    shrunk, is_small = _shrunk(view, pods, is_parallel)
    effects += shrunk
    effects += _freed_claims(view, pods)
    if effects or not is_small or not is_settled:
        return effects
    return _updated(view, pods, revisions)


def _grown(
    view: StatefulView, pods: dict[int, Object], revisions: Revisions, is_parallel: bool
) -> tuple[list[Effect], bool]:
    """Pods that are missing or have ended; whether all are there and available."""
    effects: list[Effect] = []
    is_settled = True
    for at in view.ordinals:
        pod = pods.get(at)
        if pod is not None and view.is_available(pod):
            continue
        is_settled = False
        if pod is None:
            effects += _made(view, at, revisions)
        elif not is_deleting(pod) and (is_over(pod) or _is_stuck(view, at, pod, revisions)):
            told = f"StatefulSet {view.name} is recreating pod {pod['metadata']['name']}"
            effects += [Tell("Warning", "RecreatingFailedPod", told), Delete(PODS, pod)]
        if not is_parallel or len(effects) >= MAX_BURST:
            break
    return effects, is_settled


def _is_stuck(view: StatefulView, at: int, pod: Object, revisions: Revisions) -> bool:
    """A pod of an old template that does not work. Kubernetes waits for it for ever, even when the
    new template is there to mend it; we do not.
    """
    is_old = labels_of(pod).get(REVISION_LABEL) != revisions.updated
    return is_old and not is_ready(pod) and at >= _partition(view) and not _is_manual(view)


def _partition(view: StatefulView) -> int:
    given = (view.spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    return int(given.get("partition") or 0)


def _is_manual(view: StatefulView) -> bool:
    return (view.spec.get("updateStrategy") or {}).get("type") == "OnDelete"


def _shrunk(
    view: StatefulView, pods: dict[int, Object], is_parallel: bool
) -> tuple[list[Effect], bool]:
    """Pods beyond the last ordinal, from the highest down; whether none is left."""
    effects: list[Effect] = []
    surplus = sorted((at for at in pods if at not in view.ordinals), reverse=True)
    for at in surplus[:MAX_BURST]:
        if not is_deleting(pods[at]):
            effects.append(Delete(PODS, pods[at]))
        if not is_parallel:
            break
    return effects, not surplus


def _updated(view: StatefulView, pods: dict[int, Object], revisions: Revisions) -> list[Effect]:
    """The highest pod of an old revision, when all others are fine."""
    if _is_manual(view):
        return []
    for at in reversed(view.ordinals):
        pod = pods[at]
        if at >= _partition(view) and labels_of(pod).get(REVISION_LABEL) != revisions.updated:
            return [Delete(PODS, pod)]
    return []


def _made(view: StatefulView, at: int, revisions: Revisions) -> list[Effect]:
    is_old = not _is_manual(view) and at < _partition(view)
    revision = revisions.current if is_old else revisions.updated
    pod = pod_of(view, at, revisions.template(revision), revision)
    missing = [body for body in claims_of(view, at) if body["metadata"]["name"] not in view.claims]
    made: list[Effect] = [
        Create(PERSISTENT_VOLUME_CLAIMS, body, is_shared=True) for body in missing
    ]
    return [*made, Create(PODS, pod)]


def pod_of(view: StatefulView, at: int, template: Object, revision: str) -> Object:
    """The pod of an ordinal, with its name, its host name and its claims."""
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


def claims_of(view: StatefulView, at: int) -> Iterable[Object]:
    """The claims of an ordinal; they outlive pods, and the set too unless it says otherwise."""
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


def _freed_claims(view: StatefulView, pods: dict[int, Object]) -> list[Effect]:
    """Claims of ordinals that were given up, if the set says that they go with them."""
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


def _status(view: StatefulView, pods: dict[int, Object], revisions: Revisions) -> Object:
    old = status_of(view.owner)
    here = [pod for pod in pods.values() if not is_deleting(pod) and not is_over(pod)]
    ready = [pod for pod in here if is_ready(pod)]
    of = [labels_of(pod).get(REVISION_LABEL) for pod in here]
    new: Object = {
        "observedGeneration": view.owner["metadata"].get("generation", 0),
        "replicas": len(here),
        "readyReplicas": len(ready),
        "availableReplicas": sum(map(view.is_available, here)),
        "currentReplicas": of.count(revisions.current),
        "updatedReplicas": of.count(revisions.updated),
        "currentRevision": revisions.current,
        "updateRevision": revisions.updated,
        "collisionCount": old.get("collisionCount") or 0,
    }
    wanted = int(view.spec.get("replicas") or 0)
    complete = new["updatedReplicas"] == new["readyReplicas"] == new["replicas"] == wanted
    if complete and not _is_manual(view):
        new["currentRevision"] = revisions.updated
        new["currentReplicas"] = new["updatedReplicas"]
    for count in ("readyReplicas", "currentReplicas", "updatedReplicas"):
        if not new[count]:
            del new[count]
    if old.get("conditions"):
        new["conditions"] = old["conditions"]
    return new


class StatefulSetController(WorkloadController):
    name = "statefulset-controller"
    resource = STATEFUL_SETS

    def __init__(self, world: World, recorder: EventRecorder, metrics: Metrics) -> None:
        super().__init__(world, recorder, metrics)
        self.follow(PODS)
        self.follow(CONTROLLER_REVISIONS)
        self._claims = world.watch(PERSISTENT_VOLUME_CLAIMS)

    def decide(self, owner: Object) -> list[Effect]:
        namespace = key_of(owner)[0]
        found: dict[str, Object] = {}
        if owner["spec"].get("volumeClaimTemplates"):
            found = {
                key_of(claim)[1]: claim
                for claim in self._claims.all()
                if key_of(claim)[0] == namespace
            }
        return next_step(
            StatefulView(
                owner,
                self.clock.now(),
                self.owned(PODS, owner),
                self.orphans(PODS, owner),
                self.owned(CONTROLLER_REVISIONS, owner),
                found,
            )
        )

    async def name_taken(self, owner: Object, kind: Resource[Any], found: Object) -> float | None:
        if is_controlled_by(found, uid_of(owner)):
            return 0.0
        return await super().name_taken(owner, kind, found)
