"""CustomResourceDefinitions: their kinds are served as soon as they are stored."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from hekla.apiserver.schema import formats
from hekla.apiserver.schema.kinds import Registry
from hekla.apiserver.storage.watch_cache import Event
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.apiserver.storage.store import Store

log = logging.getLogger("hekla.apiserver")

CRDS = "apiextensions.k8s.io/customresourcedefinitions"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


def subscribe(store: Store, registry: Registry) -> None:
    """Serve all stored definitions, and follow their changes."""

    def changed(resource: str, event: Event) -> None:
        if resource != CRDS:
            return
        crd = msgspec.json.decode(event.entry.body)
        if event.removed:
            registry.uninstall(crd["metadata"]["name"])
        else:
            _install(registry, crd)

    for entry in store.table(CRDS).entries.values():
        _install(registry, msgspec.json.decode(entry.body))
    store.subscribe(changed)


def _install(registry: Registry, crd: Object) -> None:
    try:
        registry.install(crd)
    except (KeyError, StopIteration, TypeError, ValueError):
        # Validation refuses such definitions; a stored one must not stop the others.
        log.exception("definition %s cannot be served", crd["metadata"]["name"])


def warnings(crd: Object, old: Object | None) -> list[str]:
    """Return a warning for each format in the schemas that nothing checks."""
    if old is not None and old.get("spec") == crd.get("spec"):
        return []
    found = [
        name
        for version in crd["spec"]["versions"]
        for name in formats.unrecognized((version.get("schema") or {}).get("openAPIV3Schema"))
    ]
    return [f'format "{name}" is not recognized and is not checked' for name in sorted(set(found))]


def prepare(crd: Object, now: str) -> None:
    """Set the status to NamesAccepted and Established."""
    spec = crd.setdefault("spec", {})  # validation, which comes later, reports what is missing
    names = spec.get("names") or {}
    status = crd.setdefault("status", {})
    status["acceptedNames"] = names
    stored = status.setdefault("storedVersions", [])
    for version in spec.get("versions") or ():
        if version.get("storage") and version.get("name") not in stored:
            stored.append(version["name"])
    if not status.get("conditions"):
        status["conditions"] = [
            {
                "type": kind,
                "status": "True",
                "lastTransitionTime": now,
                "reason": reason,
                "message": message,
            }
            for kind, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ]
    finalizers = crd["metadata"].setdefault("finalizers", [])
    if CLEANUP not in finalizers and "deletionTimestamp" not in crd["metadata"]:
        finalizers.append(CLEANUP)
