"""Fields of an object that its schema does not have, with the closest known name. Pure functions.

Servers drop unknown fields without an error, which is how `minAvaliable: 4` becomes a job without a
gang. The schemas are those of hekla's server: Kubernetes' kinds and Volcano's. Other kinds are not
checked.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from hekla.api import crds, schemas
from hekla.units.objects import Object

MAX_FOUND: Final = 20
_META: Final = {"$ref": f"#/definitions/{schemas.OBJECT_META}"}


def unknown_fields(obj: Object) -> Iterator[str]:
    """Yield a message for each unknown field, such as `spec.queu: unknown field, …`."""
    schema = _schema_of(str(obj.get("apiVersion") or ""), str(obj.get("kind") or ""))
    if schema is not None:
        yield from islice(_below("", obj, schema), MAX_FOUND)


def _schema_of(api_version: str, kind: str) -> Mapping[str, Any] | None:
    if schemas.definition_name(api_version, kind) is not None:
        return schemas.schema_for(api_version, kind)
    group, _, version = api_version.rpartition("/")
    crd = crds.find(group, kind)
    for one in crd["spec"]["versions"] if crd is not None else ():
        if one["name"] == version:
            found: Mapping[str, Any] = one["schema"]["openAPIV3Schema"]
            return found
    return None


def _below(path: str, value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    here = schemas.resolve(dict(schema)) if "$ref" in schema else schema
    if here.get("x-kubernetes-preserve-unknown-fields"):
        return
    if isinstance(value, list) and isinstance(here.get("items"), dict):
        for index, item in enumerate(value):
            yield from _below(f"{path}[{index}]", item, here["items"])
    if isinstance(value, dict):
        yield from _below_map(path, value, here)


def _below_map(path: str, value: Object, schema: Mapping[str, Any]) -> Iterator[str]:
    known, others = _properties(schema), schema.get("additionalProperties")
    if not known and not isinstance(others, dict):
        return  # any object
    for key, inner in value.items():
        at = f"{path}.{key}" if path else str(key)
        if key in known:
            yield from _below(at, inner, known[key])
        elif isinstance(others, dict):
            yield from _below(at, inner, others)
        elif not others:
            close = difflib.get_close_matches(str(key), known, 1, 0.6)
            suggestion = f"; did you mean {close[0]!r}?" if close else ""
            yield f"{at}: unknown field, without effect{suggestion}"


def _properties(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schemas of the fields; a CRD leaves out most of metadata."""
    known: dict[str, Any] = schema.get("properties") or {}
    return {**known, "metadata": _META} if "metadata" in known else known
