"""Reconcile Deployments: one replica set per template, and the rollout from one to the next.

`next_step` is pure. `rollout` computes the sizes of the sets, `deployment_status` the status; this
module finds the new set, its revision, and the history to keep. `kubectl rollout` reads what is
written here: revisions are annotations of the sets, and an undo writes an old template into the
deployment, whose set then becomes the newest.

Note: two templates are equal if they differ only in the label `pod-template-hash`. The hash in a
set's name only makes names unique.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final

from hekla.api.wellknown import LAST_APPLIED
from hekla.controllers.objects import (
    annotations_of,
    created_at,
    is_deleting,
    key_of,
    owner_reference,
    status_of,
    uid_of,
)
from hekla.controllers.workloads import rollout
from hekla.controllers.workloads.deployment_status import deadline_in, status
from hekla.controllers.workloads.effects import (
    Create,
    Delete,
    Effect,
    EmitEvent,
    Patch,
    RequeueAfter,
    SetStatus,
    requeue,
)
from hekla.controllers.workloads.pods import (
    is_finished,
    label_selector,
    release_and_adopt,
    template_hash,
)
from hekla.controllers.workloads.rollout import Sizes, name_of, size
from hekla.kube.resources import DEPLOYMENTS, REPLICA_SETS
from hekla.units.objects import Object
from hekla.units.patches import create_merge_patch

HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
HISTORY: Final = "deployment.kubernetes.io/revision-history"
_NOT_COPIED: Final = (
    REVISION,
    HISTORY,
    rollout.DESIRED,
    rollout.MAXIMUM,
    LAST_APPLIED,
    "deprecated.deployment.rollback.to",
)
NO_LIMIT: Final = 2**31 - 1


@dataclass(frozen=True)
class DeploymentView:
    """The input of a decision about one deployment."""

    deployment: Object
    now: float
    sets: Sequence[Object] = ()
    orphans: Sequence[Object] = ()
    pods: Mapping[str, Sequence[Object]] = field(default_factory=dict)
    """Pods by the UID of their set; only needed for `Recreate`."""

    @property
    def spec(self) -> Object:
        found: Object = self.deployment["spec"]
        return found


def next_step(view: DeploymentView) -> list[Effect]:
    """Return the effects that reconcile a deployment."""
    selector = label_selector(view.spec.get("selector"))
    taken = release_and_adopt(
        DEPLOYMENTS, view.deployment, selector, REPLICA_SETS, view.sets, view.orphans
    )
    if taken:
        return [*taken, RequeueAfter(0.0)]
    new, old = new_and_old_sets(view)
    effects: list[Effect] = []
    if not is_deleting(view.deployment):
        effects = _change(view, new, old)
    if any(isinstance(effect, RequeueAfter) for effect in effects):
        return effects
    patch = create_merge_patch(
        status_of(view.deployment), status(view.deployment, new, old, view.now)
    )
    if patch:
        effects.append(SetStatus(patch))
    return [*effects, *requeue(deadline_in(view.deployment, view.now))]


def new_and_old_sets(view: DeploymentView) -> tuple[Object | None, list[Object]]:
    """Return the set of the current template, if any, and all others."""
    wanted = without_hash(view.spec.get("template") or {})
    same = [each for each in rollout.oldest_first(view.sets) if template_of(each) == wanted]
    new = same[0] if same else None
    return new, [each for each in rollout.oldest_first(view.sets) if each is not new]


def template_of(replica_set: Object) -> Object:
    """Return the template of a replica set without the hash label."""
    return without_hash(replica_set["spec"].get("template") or {})


def without_hash(template: Object) -> Object:
    """Return a template without the hash label."""
    metadata = dict(template.get("metadata") or {})
    labels = {key: v for key, v in (metadata.get("labels") or {}).items() if key != HASH_LABEL}
    metadata["labels"] = labels
    # Some kinds get this from the server and others do not; it has no meaning.
    metadata.pop("creationTimestamp", None)
    return {**template, "metadata": metadata}


def _change(view: DeploymentView, new: Object | None, old: list[Object]) -> list[Effect]:
    all_sets = [*([new] if new is not None else []), *old]
    if view.spec.get("paused"):
        return _scale_sets(view, all_sets, rollout.rescale(view.deployment, new, old))
    if new is not None and (numbered := _update_revision(view, new, old)):
        return [*numbered, RequeueAfter(0.0)]
    if rollout.is_rescaled(view.deployment, all_sets):
        if sizes := rollout.rescale(view.deployment, new, old):
            return _scale_sets(view, all_sets, sizes)
        return _scale_sets(view, all_sets, {name_of(e): size(e) for e in all_sets if size(e) > 0})
    if not rollout.is_rolling(view.deployment):
        return _recreate(view, new, old)
    if new is None:
        return _new_set(view, old)
    sizes = rollout.rolling_update(view.deployment, new, old)
    return _scale_sets(view, all_sets, sizes) or _prune_history(view, new, old)


def _recreate(view: DeploymentView, new: Object | None, old: list[Object]) -> list[Effect]:
    if any(size(each) > 0 for each in old):
        return _scale_sets(view, old, {name_of(each): 0 for each in old if size(each) > 0})
    lingering = [
        pod for each in old for pod in view.pods.get(uid_of(each), ()) if not is_finished(pod)
    ]
    if lingering:
        return []  # a deleted pod reconciles the deployment
    if new is None:
        return _new_set(view, old)
    replicas = rollout.desired_replicas(view.deployment)
    sizes = {} if size(new) == replicas else {name_of(new): replicas}
    return _scale_sets(view, [new], sizes) or _prune_history(view, new, old)


# The new set


def _new_set(view: DeploymentView, old: list[Object]) -> list[Effect]:
    deployment, replicas = view.deployment, rollout.new_set_replicas(view.deployment, old, 0)
    template = without_hash(deepcopy(view.spec["template"]))
    digest = template_hash(template, status_of(deployment).get("collisionCount") or 0)
    template["metadata"]["labels"][HASH_LABEL] = digest
    selector = deepcopy(view.spec["selector"])
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: digest}
    annotations = _copied_annotations(deployment)
    annotations |= {REVISION: str(_next_revision(old)), **_size_annotations(deployment)}
    body: Object = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{deployment['metadata']['name']}-{digest}",
            "namespace": deployment["metadata"]["namespace"],
            "labels": dict(template["metadata"]["labels"]),
            "annotations": annotations,
            "ownerReferences": [owner_reference("apps/v1", "Deployment", deployment)],
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    }
    if view.spec.get("minReadySeconds"):
        body["spec"]["minReadySeconds"] = view.spec["minReadySeconds"]
    message = f"Scaled up replica set {name_of(body)} from 0 to {replicas}"
    return [
        Create(REPLICA_SETS, body),
        EmitEvent("Normal", "ScalingReplicaSet", message),
        RequeueAfter(0.0),
    ]


def revision(replica_set: Object) -> int:
    """Return the revision of a replica set; 0 if it has none."""
    text = annotations_of(replica_set).get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def _next_revision(sets: Iterable[Object]) -> int:
    return max(map(revision, sets), default=0) + 1


def _copied_annotations(deployment: Object) -> dict[str, str]:
    given = annotations_of(deployment)
    return {key: value for key, value in given.items() if key not in _NOT_COPIED}


def _size_annotations(deployment: Object) -> dict[str, str]:
    replicas = rollout.desired_replicas(deployment)
    most = replicas + rollout.surge_and_unavailable(deployment)[0]
    return {rollout.DESIRED: str(replicas), rollout.MAXIMUM: str(most)}


def _update_revision(view: DeploymentView, new: Object, old: list[Object]) -> list[Effect]:
    """Give the newest set the highest revision, and the deployment the same one."""
    effects: list[Effect] = []
    number, known = max(_next_revision(old), revision(new)), revision(new)
    annotations = {
        **annotations_of(new),
        **_copied_annotations(view.deployment),
        REVISION: str(number),
    }
    if number != known and known:
        earlier = annotations_of(new).get(HISTORY)
        annotations[HISTORY] = f"{earlier},{known}" if earlier else str(known)
    patch: Object = {}
    if changes := create_merge_patch(annotations_of(new), annotations):
        patch["metadata"] = {"annotations": changes}
    least = view.spec.get("minReadySeconds") or 0
    if (new["spec"].get("minReadySeconds") or 0) != least:
        patch["spec"] = {"minReadySeconds": least}
    if patch:
        effects.append(Patch(REPLICA_SETS, new, patch))
    if annotations_of(view.deployment).get(REVISION) != str(number):
        marks = {"metadata": {"annotations": {REVISION: str(number)}}}
        effects.append(Patch(DEPLOYMENTS, view.deployment, marks))
    return effects


# Sizes and history


def _scale_sets(view: DeploymentView, sets: Sequence[Object], sizes: Sizes) -> list[Effect]:
    """Scale sets to their sizes; sets of the right size only get the annotations."""
    effects: list[Effect] = []
    marks = _size_annotations(view.deployment)
    for each in sets:
        if name_of(each) not in sizes:
            continue
        before, after = size(each), sizes[name_of(each)]
        changes = create_merge_patch(annotations_of(each), {**annotations_of(each), **marks})
        patch: Object = {"metadata": {"annotations": changes}} if changes else {}
        if after != before:
            patch["spec"] = {"replicas": after}
            way = "up" if after > before else "down"
            message = f"Scaled {way} replica set {name_of(each)} from {before} to {after}"
            effects.append(EmitEvent("Normal", "ScalingReplicaSet", message))
        if patch:
            effects.append(Patch(REPLICA_SETS, each, patch))
    return [*effects, RequeueAfter(0.0)] if effects else []


def _prune_history(view: DeploymentView, new: Object, old: list[Object]) -> list[Effect]:
    """Delete old sets without pods beyond the limit, once the rollout is complete."""
    limit = view.spec.get("revisionHistoryLimit")
    if limit is None or limit == NO_LIMIT or any(map(size, old)):
        return []
    idle = [
        each
        for each in old
        if not is_deleting(each)
        and not status_of(each).get("replicas")
        and status_of(each).get("observedGeneration", 0) >= each["metadata"].get("generation", 0)
    ]
    idle.sort(key=lambda each: (revision(each), created_at(each), key_of(each)))
    return [Delete(REPLICA_SETS, each) for each in idle[: max(0, len(idle) - int(limit))]]
