"""Rules of names, labels, annotations and metadata.

Note: there are three kinds of names: a *label* (`web-1`, up to 63 characters), a *subdomain*
(`web.v1`, up to 253, for most objects) and a *path segment* (anything without `/` and `%`, for
RBAC).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from hekla.api import kinds
from hekla.api.rules.fields import (
    FieldErrors,
    duplicate,
    forbidden,
    invalid,
    required,
    too_long,
    unchanged,
)
from hekla.units.objects import Object
from hekla.units.selectors import label_key_problem, label_value_problem

MAX_ANNOTATIONS: Final = 256 * 1024
MAX_LABEL: Final = 63
MAX_SUBDOMAIN: Final = 253

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII
)
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+", re.ASCII)
_PORT_NAME = re.compile(r"(?=[^a-z]*[a-z])[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)

Problem = Callable[[str], str | None]


def dns_label(name: str) -> str | None:
    """Return why a name is not a DNS label, or None."""
    if len(name) > MAX_LABEL:
        return f"may not be more than {MAX_LABEL} bytes"
    if not _LABEL.fullmatch(name):
        return (
            "must be a DNS label: lower-case letters, digits and '-', "
            "starting and ending with a letter or digit"
        )
    return None


def dns_1035_label(name: str) -> str | None:
    """As `dns_label`, with a letter first: the names of kinds and versions."""
    if len(name) > MAX_LABEL:
        return f"may not be more than {MAX_LABEL} bytes"
    if not _LABEL_1035.fullmatch(name):
        return "must be a DNS label that starts with a letter: lower-case letters, digits and '-'"
    return None


def dns_subdomain(name: str) -> str | None:
    if len(name) > MAX_SUBDOMAIN:
        return f"may not be more than {MAX_SUBDOMAIN} bytes"
    if not _SUBDOMAIN.fullmatch(name):
        return (
            "must be a DNS subdomain: DNS labels of lower-case letters, digits and '-', "
            "joined by '.'"
        )
    return None


def path_segment(name: str) -> str | None:
    if name in (".", ".."):
        return "may not be '.' or '..'"
    bad = next((c for c in "/%" if c in name), None)
    return f"may not contain '{bad}'" if bad else None


def port_name(name: str) -> str | None:
    if len(name) > 15:
        return "may not be more than 15 bytes"
    if not _PORT_NAME.fullmatch(name):
        return (
            "must be lower-case letters, digits and single '-' between them, "
            "with at least one letter"
        )
    return None


def config_key(key: str) -> str | None:
    """Check a key; keys become file names, so paths are rejected."""
    if len(key) > MAX_SUBDOMAIN:
        return f"may not be more than {MAX_SUBDOMAIN} bytes"
    if not _CONFIG_KEY.fullmatch(key):
        return "must be letters, digits, '-', '_' and '.'"
    if key in (".", "..") or key.startswith(".."):
        return "may not be '.', nor start with '..'"
    return None


def env_name(name: str) -> str | None:
    if not all(" " <= c <= "~" and c != "=" for c in name):
        return "must be printable ASCII without '='"
    return None


def checked(field: str, value: Any, problem: Problem) -> FieldErrors:
    """Yield the error of a name, if any; an empty name is missing."""
    if not value:
        yield required(field)
    elif not isinstance(value, str):
        yield invalid(field, value, "must be a string")
    elif (why := problem(value)) is not None:
        yield invalid(field, value, why)


def label_map(field: str, value: Mapping[str, Any] | None) -> FieldErrors:
    for key, text in (value or {}).items():
        if why := label_key_problem(key):
            yield invalid(field, key, why)
        if not isinstance(text, str):
            yield invalid(f"{field}[{key}]", text, "must be a string; put it in quotes")
        elif why := label_value_problem(text):
            yield invalid(field, text, why)


def annotation_map(field: str, value: Mapping[str, Any] | None) -> FieldErrors:
    size = 0
    for key, text in (value or {}).items():
        # Kubernetes lower-cases annotation keys before the check, but not labels.
        if why := label_key_problem(key.lower()):
            yield invalid(field, key, why)
        if not isinstance(text, str):
            yield invalid(f"{field}[{key}]", text, "must be a string; put it in quotes")
        else:
            size += len(key.encode()) + len(text.encode())
    if size > MAX_ANNOTATIONS:
        yield too_long(field, MAX_ANNOTATIONS)


# Kinds whose names are not DNS subdomains, by (apiVersion, kind).
_RBAC = "rbac.authorization.k8s.io/v1"
NAME_RULES: Final[Mapping[tuple[str, str], Problem]] = {
    ("v1", "Namespace"): dns_label,
    ("v1", "Service"): dns_label,
    (_RBAC, "Role"): path_segment,
    (_RBAC, "ClusterRole"): path_segment,
    (_RBAC, "RoleBinding"): path_segment,
    (_RBAC, "ClusterRoleBinding"): path_segment,
}


def metadata(obj: Object, old: Object | None) -> FieldErrors:
    """Check `metadata`, with the name by kind."""
    meta = obj.get("metadata") or {}
    problem = NAME_RULES.get((obj.get("apiVersion", ""), obj.get("kind", "")), dns_subdomain)
    prefix = meta.get("generateName")
    if prefix:
        # The server appends letters and digits, so a final dash or dot is valid.
        yield from checked("metadata.generateName", prefix + "x", problem)
    if meta.get("name"):
        yield from checked("metadata.name", meta["name"], problem)
    elif not prefix:
        yield required("metadata.name", "name or generateName is required")
    if meta.get("namespace"):
        yield from checked("metadata.namespace", meta["namespace"], dns_label)
    if meta.get("labels"):
        yield from label_map("metadata.labels", meta["labels"])
    if meta.get("annotations"):
        yield from annotation_map("metadata.annotations", meta["annotations"])
    if meta.get("finalizers"):
        yield from _finalizers(obj, (old or {}).get("metadata") or {})
    if meta.get("ownerReferences"):
        yield from _owners(meta["ownerReferences"])
    if old is not None:
        before = old.get("metadata") or {}
        for name in ("name", "namespace", "uid"):
            if meta.get(name) and before.get(name):
                yield from unchanged(f"metadata.{name}", meta[name], before[name])


# Finalizers of Kubernetes; all others need a domain.
_PLAIN_FINALIZERS: Final = {
    "foregroundDeletion",
    "kubernetes",
    "orphan",
    "customresourcecleanup.apiextensions.k8s.io",
}


def _finalizers(obj: Object, before: Object) -> FieldErrors:
    meta = obj["metadata"]
    built_in = kinds.by_kind(obj.get("apiVersion", ""), obj.get("kind", "")) is not None
    for index, finalizer in enumerate(meta["finalizers"]):
        field = f"metadata.finalizers[{index}]"
        if not isinstance(finalizer, str) or not finalizer:
            yield invalid(field, finalizer, "must be a name")
        elif why := label_key_problem(finalizer):
            yield invalid(field, finalizer, why)
        elif built_in and "/" not in finalizer and finalizer not in _PLAIN_FINALIZERS:
            yield invalid(field, finalizer, "must have a domain, as example.com/name")
    if before.get("deletionTimestamp"):
        added = set(meta["finalizers"]) - set(before.get("finalizers") or ())
        if added:
            yield forbidden(
                "metadata.finalizers",
                f"none can be added while the object is being deleted: {sorted(added)}",
            )


def _owners(owners: list[Object]) -> FieldErrors:
    controllers = []
    for index, owner in enumerate(owners):
        field = f"metadata.ownerReferences[{index}]"
        # Kubernetes reports the list here and not the item.
        for name in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(name):
                yield invalid(f"metadata.ownerReferences.{name}", "", "must not be empty")
        if owner.get("controller"):
            controllers.append(owner.get("name"))
        if owner.get("kind") == "Event" and owner.get("apiVersion") == "v1":
            yield invalid(field, owner.get("name"), "an Event cannot own anything")
    if len(controllers) > 1:
        yield invalid(
            "metadata.ownerReferences",
            owners,
            f"only one owner can be the controller, found {', '.join(map(str, controllers))}",
        )


def unique(field: str, items: list[Object], key: str = "name") -> FieldErrors:
    """Yield a duplicate error for each item with a key seen before."""
    seen: set[Any] = set()
    for index, item in enumerate(items):
        value = item.get(key)
        if value and value in seen:
            yield duplicate(f"{field}[{index}].{key}", value)
        seen.add(value)
