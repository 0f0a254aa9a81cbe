"""Permissions of the components by their roles, and those they used by the audit log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from hekla.units.objects import Object

COMPONENTS = ("scheduler", "controllers", "admission")


class Permission(NamedTuple):
    """One verb on one resource of a group; `resource` includes the subresource."""

    component: str
    group: str
    resource: str
    verb: str


def granted_permissions(objects: Iterable[Object]) -> set[Permission]:
    """Return every permission that a Role or ClusterRole of a component grants."""
    found = set()
    for obj in objects:
        component = obj["metadata"]["name"].removeprefix("hekla-")
        if obj["kind"] not in ("Role", "ClusterRole") or component not in COMPONENTS:
            continue
        for rule in obj["rules"]:
            found |= {
                Permission(component, group, resource, verb)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return found


def requests(audit_log: Path, namespace: str) -> Iterator[tuple[Permission, int, str]]:
    """Yield all requests of the components: the permission, the status, the path."""
    users = {f"system:serviceaccount:{namespace}:hekla-{name}": name for name in COMPONENTS}
    with audit_log.open() as lines:
        for line in lines:
            entry = json.loads(line)
            component = users.get(entry["user"]["username"])
            about = entry.get("objectRef")
            if component is None or about is None:
                continue
            resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
            right = Permission(component, about.get("apiGroup", ""), resource, entry["verb"])
            yield right, (entry.get("responseStatus") or {}).get("code", 0), entry["requestURI"]
