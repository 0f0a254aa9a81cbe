"""The ControllerRevisions of a stateful set, one per template. Pure.

`kubectl rollout history` and `undo` read them: the data is a strategic-merge patch that restores
the template.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from hekla.controllers.objects import is_deleting, key_of, owner_reference, status_of
from hekla.controllers.workloads.effects import Create, Delete, Effect, Patch
from hekla.controllers.workloads.pods import template_hash
from hekla.kube.resources import CONTROLLER_REVISIONS, Resource
from hekla.units.objects import Object

REVISION_LABEL: Final = "controller-revision-hash"
HASH_LABEL: Final = "controller.kubernetes.io/hash"


class Revisions:
    """The revisions of one owner, with the current and the updated one."""

    def __init__(self, resource: Resource[Any], owner: Object, known: Sequence[Object]) -> None:
        self._resource = resource
        self._owner = owner
        self._known = sorted(known, key=lambda each: (each.get("revision") or 0, key_of(each)))
        self._data = patch_of(owner["spec"]["template"])
        same = [each for each in self._known if each.get("data") == self._data]
        self._newest = same[-1] if same else None

    @property
    def updated(self) -> str:
        """The name of the revision of the newest template."""
        assert self._newest is not None
        return str(self._newest["metadata"]["name"])

    @property
    def current(self) -> str:
        """The name of the revision that a rollout started from, or reached."""
        named = status_of(self._owner).get("currentRevision")
        names = {each["metadata"]["name"] for each in self._known}
        return str(named) if named in names else self.updated

    def template(self, name: str) -> Object:
        for each in self._known:
            if each["metadata"]["name"] == name:
                template = dict(each["data"]["spec"]["template"])
                template.pop("$patch", None)
                return template
        found: Object = self._owner["spec"]["template"]
        return found

    def changes(self) -> list[Effect]:
        """Create the revision of the newest template, or give it the highest number."""
        last = max((each.get("revision") or 0 for each in self._known), default=0)
        if self._newest is None:
            return [Create(CONTROLLER_REVISIONS, self._body(last + 1))]
        if (self._newest.get("revision") or 0) < last:
            return [Patch(CONTROLLER_REVISIONS, self._newest, {"revision": last + 1})]
        return []

    def surplus(self, in_use: Collection[str]) -> list[Effect]:
        """Delete unused revisions beyond the history limit."""
        limit = self._owner["spec"].get("revisionHistoryLimit")
        kept = {self.updated, self.current, *in_use}
        idle = [
            each
            for each in self._known
            if each["metadata"]["name"] not in kept and not is_deleting(each)
        ]
        over = len(idle) - int(10 if limit is None else limit)
        return [Delete(CONTROLLER_REVISIONS, each) for each in idle[: max(0, over)]]

    def _body(self, number: int) -> Object:
        owner = self._owner
        digest = template_hash(self._data, status_of(owner).get("collisionCount") or 0)
        labels = dict((owner["spec"].get("selector") or {}).get("matchLabels") or {})
        kind = self._resource
        return {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": f"{owner['metadata']['name']}-{digest}",
                "namespace": owner["metadata"]["namespace"],
                "labels": {**labels, HASH_LABEL: digest},
                "ownerReferences": [owner_reference(kind.api_version, kind.kind, owner)],
            },
            "data": self._data,
            "revision": number,
        }


def patch_of(template: Object) -> Object:
    """Return the data of a revision: a patch that restores the template."""
    return {"spec": {"template": {**template, "$patch": "replace"}}}
