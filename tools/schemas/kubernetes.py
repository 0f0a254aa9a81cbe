"""Turns Kubernetes' published OpenAPI document into the compact definitions that hekla ships.

Only types, formats, required fields, defaults, list and map semantics. Upstream's descriptions
are replaced by ours (descriptions.yaml).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from hekla.api import kinds

HERE = Path(__file__).parent
MODULE = "k8s.io/kubernetes"
VERSION = "v1.36.1"

# Not resources of their own, but exchanged with clients: subresource bodies, options, discovery.
EXTRA_ROOTS = (
    "io.k8s.api.authentication.v1.TokenRequest",
    "io.k8s.api.autoscaling.v1.Scale",
    "io.k8s.api.core.v1.Binding",
    "io.k8s.api.policy.v1.Eviction",
    "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroup",
    "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroupList",
    "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList",
    "io.k8s.apimachinery.pkg.apis.meta.v1.APIVersions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
    "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent",
    "io.k8s.apimachinery.pkg.version.Info",
)

# Where a live server serves a more useful schema than the published file: an int-or-string field
# is marked as such, so that a validator need not know the definition by name.
OVERRIDES: dict[str, dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
        "type": "string",
        "format": "int-or-string",
        "x-kubernetes-int-or-string": True,
    },
}


def compact_definitions(spec_dir: Path) -> dict[str, dict[str, Any]]:
    """The definitions reachable from our kinds, stripped and annotated, sorted by name."""
    published = json.loads((spec_dir / "swagger.json").read_text())["definitions"]
    defaults = _v3_schemas(spec_dir)
    kept = _reachable(published, _roots(published))
    definitions = {
        name: OVERRIDES.get(name) or _compact(published[name], defaults.get(name, {}))
        for name in sorted(kept)
    }
    _apply(definitions, "enums.yaml", "enum")
    _apply(definitions, "descriptions.yaml", "description")
    return definitions


def _v3_schemas(spec_dir: Path) -> dict[str, dict[str, Any]]:
    """Defaults exist only in the v3 documents; the v2 one carries everything else."""
    schemas: dict[str, dict[str, Any]] = {}
    for path in sorted((spec_dir / "v3").glob("*.json")):
        document = json.loads(path.read_text())
        schemas.update(document.get("components", {}).get("schemas", {}))
    return schemas


def _roots(published: dict[str, Any]) -> list[str]:
    wanted = {(k.group, k.version, k.kind) for k in kinds.BUILTIN}
    wanted |= {(k.group, k.version, k.list_kind) for k in kinds.BUILTIN if not k.virtual}
    found = {
        (gvk["group"], gvk["version"], gvk["kind"]): name
        for name, schema in published.items()
        for gvk in schema.get("x-kubernetes-group-version-kind", ())
    }
    missing = wanted - found.keys()
    if missing:
        raise SystemExit(f"{MODULE} {VERSION} has no schema for {sorted(missing)}; see kinds.py")
    return sorted({found[key] for key in wanted} | set(EXTRA_ROOTS))


def _reachable(published: dict[str, Any], roots: list[str]) -> set[str]:
    seen: set[str] = set()
    todo = list(roots)
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(_references(published[name]))
    return seen


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for item in schema for name in _references(item)]
    if not isinstance(schema, dict):
        return []
    found = [ref.rsplit("/", 1)[1]] if isinstance(ref := schema.get("$ref"), str) else []
    return found + [name for value in schema.values() for name in _references(value)]


def _compact(schema: dict[str, Any], v3: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "description":
            continue
        if key == "properties":
            of = v3.get("properties", {})
            out[key] = {n: _compact(p, of.get(n, {})) for n, p in sorted(value.items())}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            out[key] = _compact(value, {})
        elif key == "x-kubernetes-group-version-kind":
            out[key] = [gvk for gvk in value if _is_served(gvk)]
        elif key == "required":
            out[key] = sorted(value)
        else:
            out[key] = value
    # Zero values are an artefact of the Go generator and equal to absence.
    if v3.get("default"):
        out["default"] = v3["default"]
    return dict(sorted(out.items()))


_SERVED = {(k.group, k.version) for k in kinds.BUILTIN} | {("autoscaling", "v1")}


def _is_served(gvk: dict[str, str]) -> bool:
    return (gvk["group"], gvk["version"]) in _SERVED


def _apply(definitions: dict[str, dict[str, Any]], table: str, keyword: str) -> None:
    """Puts our own table of `Definition` or `Definition.field` -> value into the definitions."""
    short: dict[str, list[str]] = {}
    for name in definitions:
        parts = name.split(".")
        short.setdefault(parts[-1], []).append(name)
        short.setdefault(".".join(parts[-3:]), []).append(name)  # core.v1.Event
    rows = yaml.safe_load((HERE / table).read_text())
    for key, value in rows.items():
        definition, field = _resolve(key, short, table)
        target = definitions[definition]
        if field:
            if field not in target.get("properties", {}):
                raise SystemExit(f"{table}: {key!r}: {definition} has no field {field!r}")
            target = target["properties"][field]
        target[keyword] = value


def _resolve(key: str, short: dict[str, list[str]], table: str) -> tuple[str, str]:
    head, _, tail = key.rpartition(".")
    for name, field in ((key, ""), (head, tail)):
        match short.get(name, []):
            case [one]:
                return one, field
            case [_, *_] as many:
                raise SystemExit(f"{table}: {key!r} could be any of {many}; write core.v1.Name")
    raise SystemExit(f"{table}: {key!r} names no definition that we ship")
