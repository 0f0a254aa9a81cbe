"""What the components may do, by their roles, and what they did, by the audit log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from hekla.units.objects import Object

COMPONENTS = ("scheduler", "controllers", "admission")


class Right(NamedTuple):
    """One verb on one resource of a group; `resource` has the subresource, too."""

    component: str
    group: str
    resource: str
    verb: str


def granted(objects: Iterable[Object]) -> set[Right]:
    """Every right that a Role or ClusterRole of a component gives."""
    found = set()
    for obj in objects:
        component = obj["metadata"]["name"].removeprefix("hekla-")
        if obj["kind"] not in ("Role", "ClusterRole") or component not in COMPONENTS:
            continue
        for rule in obj["rules"]:
            found |= {
                Right(component, group, resource, verb)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return found


def requests(audit_log: Path, namespace: str) -> Iterator[tuple[Right, int, str]]:
    """All that the components asked the server for: the right it took, the answer, the address."""
    users = {f"system:serviceaccount:{namespace}:hekla-{name}": name for name in COMPONENTS}
    with audit_log.open() as lines:
        for line in lines:
            entry = json.loads(line)
            component = users.get(entry["user"]["username"])
            about = entry.get("objectRef")
            if component is None or about is None:
                continue
            resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
            right = Right(component, about.get("apiGroup", ""), resource, entry["verb"])
            yield right, (entry.get("responseStatus") or {}).get("code", 0), entry["requestURI"]
