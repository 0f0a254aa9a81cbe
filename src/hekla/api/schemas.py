"""Structural schemas of the built-in kinds, for `/openapi` and strategic merge.

tools/schemas generates data/kubernetes.json from Kubernetes' published OpenAPI document: OpenAPI v2
definitions with their original names and `$ref`s of the form `#/definitions/NAME`.

Note: a Quantity is declared `type: string`, yet objects may contain a number; IntOrString likewise.
`NUMBER_OR_STRING` names both. The returned dicts are shared; copy before changing one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
NUMBER_OR_STRING = frozenset({QUANTITY, INT_OR_STRING})
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

_REF = "#/definitions/"
_DATA = Path(__file__).parent / "data" / "kubernetes.json"


@cache
def definitions() -> Mapping[str, dict[str, Any]]:
    """Return all definitions by name, such as `io.k8s.api.core.v1.Pod`; read once."""
    loaded: dict[str, dict[str, Any]] = msgspec.json.decode(_DATA.read_bytes())
    return MappingProxyType(loaded)


@cache
def _names() -> Mapping[tuple[str, str], str]:
    names = {}
    for name, schema in definitions().items():
        for gvk in schema.get("x-kubernetes-group-version-kind", ()):
            group, version = gvk["group"], gvk["version"]
            names[f"{group}/{version}" if group else version, gvk["kind"]] = name
    return MappingProxyType(names)


def definition_name(api_version: str, kind: str) -> str | None:
    """Return the definition of a kind, or None if it is not built in."""
    return _names().get((api_version, kind))


def schema_for(api_version: str, kind: str) -> dict[str, Any]:
    """Return the schema of a built-in kind with unresolved references; raise KeyError if there is
    none.
    """
    name = definition_name(api_version, kind)
    if name is None:
        raise KeyError(f"{api_version} {kind} is not a built-in kind; custom kinds have a CRD")
    return definitions()[name]


def resolve(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema, or the definition that it refers to."""
    ref = schema.get("$ref")
    return definitions()[ref.removeprefix(_REF)] if isinstance(ref, str) else schema


def reference(schema: dict[str, Any]) -> str | None:
    """Return the name of the definition that a schema refers to, or None if it is inline."""
    ref = schema.get("$ref")
    return ref.removeprefix(_REF) if isinstance(ref, str) else None


def field(schema: dict[str, Any], *path: str) -> dict[str, Any] | None:
    """Return the schema of a field, through lists and references; None if there is none.

    >>> field(schema_for("v1", "Pod"), "spec", "containers", "image")["type"]
    'string'
    """
    here = resolve(schema)
    for name in path:
        while "items" in here:
            here = resolve(here["items"])
        properties = here.get("properties", {})
        if name in properties:
            here = resolve(properties[name])
        elif isinstance(here.get("additionalProperties"), dict):
            here = resolve(here["additionalProperties"])
        else:
            return None
    return here
