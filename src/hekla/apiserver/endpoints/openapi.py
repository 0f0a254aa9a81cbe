"""OpenAPI documents v2 and v3, built from the registry.

kubectl reads them for `explain`, for field validation (it looks for the `fieldValidation` parameter
of a kind's PATCH) and to merge custom kinds in `apply` and `diff`. v3 has one document per
group-version, addressed by a content hash so that clients can cache it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from hekla.api import schemas
from hekla.apiserver.endpoints import openapi_protobuf
from hekla.apiserver.endpoints.messages import Response
from hekla.apiserver.schema.kinds import Registry, Served
from hekla.units.objects import Object

_V2, _V3 = "#/definitions/", "#/components/schemas/"
_INFO = {"title": "Kubernetes", "version": "v1.36.0"}
_LIST_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
_STATUS = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"
_DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
# Keywords of OpenAPI v3 only.
_V3_ONLY = ("nullable", "anyOf", "oneOf", "not")

_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_LIST = ("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "watch",
         "resourceVersionMatch", "sendInitialEvents", "allowWatchBookmarks",
         "timeoutSeconds")  # fmt: skip
_OPERATIONS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    # verb: (method, action, parameters)
    "list": ("get", "list", _LIST),
    "create": ("post", "post", _WRITE),
    "deletecollection": ("delete", "deletecollection", _LIST),
    "get": ("get", "get", ()),
    "update": ("put", "put", _WRITE),
    "patch": ("patch", "patch", (*_WRITE, "force")),
    "delete": ("delete", "delete", ("dryRun", "gracePeriodSeconds", "propagationPolicy")),
}
_BOOLEANS = ("watch", "force", "sendInitialEvents", "allowWatchBookmarks")
_NUMBERS = ("limit", "timeoutSeconds", "gracePeriodSeconds")


class OpenApi:
    """Serves paths below /openapi."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def answer(self, path: str, media: str = "") -> Response | None:
        """Return the document at `path`; `media` is an accepted binary format."""
        parts = path.strip("/").split("/")
        match parts:
            case ["openapi", "v2"] if media:
                return Response(200, openapi_protobuf.encode(self._v2()), media)
            case ["openapi", "v2"]:
                return Response.of(self._v2())
            case ["openapi", "v3"]:
                return Response.of({"paths": self._index()})
            case ["openapi", "v3", "api", version]:
                return self._document("", version)
            case ["openapi", "v3", "apis", group, version]:
                return self._document(group, version)
        return None

    def _group_versions(self) -> dict[tuple[str, str], list[Served]]:
        by_version: dict[tuple[str, str], list[Served]] = {}
        for served in self._registry.all():
            by_version.setdefault((served.kind.group, served.kind.version), []).append(served)
        return by_version

    def _index(self) -> Object:
        index = {}
        for (group, version), served in sorted(self._group_versions().items()):
            name = f"apis/{group}/{version}" if group else f"api/{version}"
            # The hash of the document's inputs stands for the hash of its bytes.
            made_of = msgspec.json.encode([[s.kind.plural, s.kind.verbs, s.schema] for s in served])
            digest = hashlib.sha256(made_of).hexdigest().upper()
            index[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"}
        return index

    def _document(self, group: str, version: str) -> Response | None:
        served = self._group_versions().get((group, version))
        if served is None:
            return None
        components: Object = {}
        for one in served:
            _collect(components, _schemas_of(one))
        document = {
            "openapi": "3.0.0",
            "info": _INFO,
            "paths": _paths(served, _v3_operation),
            "components": {"schemas": {n: _rewrite(c, _V3) for n, c in components.items()}},
        }
        return Response.of(document)

    def _v2(self) -> Object:
        definitions: Object = {}
        paths: Object = {}
        for served in self._group_versions().values():
            for one in served:
                _collect(definitions, _v2_schemas_of(one))
            paths |= _paths(served, _v2_operation)
        return {
            "swagger": "2.0",
            "info": _INFO,
            "paths": paths,
            "definitions": {n: _rewrite(d, _V2, _V3_ONLY) for n, d in definitions.items()},
        }


def schema_name(served: Served) -> str:
    """Return `io.k8s.api.core.v1.Pod`, or for custom kinds `sh.volcano.batch.…` (reversed)."""
    kind = served.kind
    known = schemas.definition_name(kind.api_version, kind.kind)
    if known is not None and not served.custom:
        return known
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def _schemas_of(served: Served) -> Object:
    """Return the schemas of a kind: the object and its list."""
    kind, name = served.kind, schema_name(served)
    if not served.custom:
        definitions = schemas.definitions()
        listed = f"{name}List"
        return {n: definitions[n] for n in (name, listed) if n in definitions}
    mark = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    properties = dict(served.schema.get("properties") or {})
    properties["metadata"] = {
        "$ref": _V2 + schemas.OBJECT_META,
        "description": "Standard object's metadata: its name and what every object carries.",
    }
    properties["apiVersion"] = {
        "type": "string",
        "description": "APIVersion defines the group and version that the object is written in.",
    }
    properties["kind"] = {
        "type": "string",
        "description": "Kind names the type of the object in that group and version.",
    }
    schema = {
        **served.schema,
        "properties": properties,
        "x-kubernetes-group-version-kind": [mark],
    }
    items = {
        "type": "object",
        "description": f"A list of {kind.kind} objects.",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"$ref": _V2 + _LIST_META},
            "items": {"type": "array", "items": {"$ref": _V2 + name}},
        },
        "x-kubernetes-group-version-kind": [{**mark, "kind": kind.list_kind}],
    }
    return {name: schema, f"{name}List": items}


def _v2_schemas_of(served: Served) -> Object:
    """Return v3 schemas without what v2 cannot express."""
    schemas = _schemas_of(served)
    if served.custom and served.schema.get("x-kubernetes-preserve-unknown-fields"):
        mark = "x-kubernetes-group-version-kind"
        name = schema_name(served)
        schemas[name] = {"type": "object", mark: schemas[name][mark]}
    return schemas


def _collect(collected: Object, wanted: Object) -> None:
    """Add schemas and everything that they refer to."""
    waiting = [*wanted.items(), *_shared()]
    definitions = schemas.definitions()
    while waiting:
        name, schema = waiting.pop()
        if name in collected:
            continue
        collected[name] = schema
        waiting += [(ref, definitions[ref]) for ref in _references(schema) if ref in definitions]


def _shared() -> Iterable[tuple[str, Object]]:
    definitions = schemas.definitions()
    return [(name, definitions[name]) for name in (_STATUS, _DELETE_OPTIONS) if name in definitions]


def _references(schema: Any) -> Iterable[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield value.removeprefix(_V2)
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from _references(item)


def _rewrite(schema: Any, prefix: str, without: tuple[str, ...] = ()) -> Any:
    """Return a schema with references rewritten and some keywords removed."""
    if not isinstance(schema, dict):
        return schema
    made: Object = {}
    for key, value in schema.items():
        if key in without:
            continue
        if key == "$ref":
            made[key] = value.replace(_V2, prefix)
        elif key == "properties":  # field names, which may equal keywords
            made[key] = {name: _rewrite(inner, prefix, without) for name, inner in value.items()}
        elif key in ("items", "additionalProperties", "not"):
            made[key] = _rewrite(value, prefix, without)
        elif key in ("allOf", "anyOf", "oneOf"):
            made[key] = [_rewrite(inner, prefix, without) for inner in value]
        else:
            made[key] = value
    if prefix == _V3 and "$ref" in made and len(made) > 1:
        # v3 ignores siblings of a $ref: wrap it, as upstream.
        made["allOf"] = [{"$ref": made.pop("$ref")}]
    return made


Operation = Callable[[Served, str, tuple[str, ...], str], Object]


def _paths(served: Iterable[Served], operation: Operation) -> Object:
    paths: Object = {}
    for one in served:
        kind = one.kind
        where = kind.path_prefix + ("/namespaces/{namespace}" if kind.namespaced else "")
        collection, single = f"{where}/{kind.plural}", f"{where}/{kind.plural}/{{name}}"
        for verb, (method, action, parameters) in _OPERATIONS.items():
            if verb not in kind.verbs:
                continue
            path = collection if verb in ("list", "create", "deletecollection") else single
            paths.setdefault(path, {})[method] = operation(one, action, parameters, path)
        for name in ("status", "scale"):
            if name in kind.subresources:
                for verb in ("get", "update", "patch"):
                    method, action, parameters = _OPERATIONS[verb]
                    path = f"{single}/{name}"
                    paths.setdefault(path, {})[method] = operation(one, action, parameters, path)
    return paths


def _common(served: Served, action: str, path: str) -> Object:
    kind = served.kind
    return {
        "operationId": f"{action}{_operation_name(served, path)}",
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {
            "group": kind.group,
            "version": kind.version,
            "kind": kind.kind,
        },
    }


def _operation_name(served: Served, path: str) -> str:
    kind = served.kind
    group = "".join(part.title() for part in (kind.group or "core").split("."))
    scope = "Namespaced" if kind.namespaced else ""
    tail = path.rsplit("/", 1)[-1]
    suffix = tail.title() if tail in ("status", "scale") else ""
    return f"{group}{kind.version.title()}{scope}{kind.kind}{suffix}"


def _names_in(path: str) -> list[str]:
    return [name for name in ("namespace", "name") if f"{{{name}}}" in path]


def _type_of(parameter: str) -> str:
    if parameter in _BOOLEANS:
        return "boolean"
    return "integer" if parameter in _NUMBERS else "string"


def _v3_operation(served: Served, action: str, parameters: tuple[str, ...], path: str) -> Object:
    schema = {"$ref": _V3 + schema_name(served) + ("List" if action == "list" else "")}
    made = _common(served, action, path)
    made["parameters"] = [
        {"name": n, "in": "path", "required": True, "schema": {"type": "string"}}
        for n in _names_in(path)
    ] + [{"name": p, "in": "query", "schema": {"type": _type_of(p)}} for p in parameters]
    if action in ("post", "put"):
        made["requestBody"] = {"content": {"*/*": {"schema": schema}}, "required": True}
    elif action == "patch":
        kinds = ["json-patch+json", "merge-patch+json", "apply-patch+yaml"]
        if not served.custom:
            kinds.append("strategic-merge-patch+json")
        made["requestBody"] = {
            "content": {f"application/{k}": {"schema": {"type": "object"}} for k in kinds},
            "required": True,
        }
    made["responses"] = {
        "200": {"description": "OK", "content": {"application/json": {"schema": schema}}}
    }
    return made


def _v2_operation(served: Served, action: str, parameters: tuple[str, ...], path: str) -> Object:
    schema = {"$ref": _V2 + schema_name(served) + ("List" if action == "list" else "")}
    made = _common(served, action, path)
    made["parameters"] = [
        {"name": n, "in": "path", "required": True, "type": "string"} for n in _names_in(path)
    ] + [{"name": p, "in": "query", "type": _type_of(p)} for p in parameters]
    if action in ("post", "put", "patch"):
        body = {"type": "object"} if action == "patch" else schema
        made["parameters"].append({"name": "body", "in": "body", "required": True, "schema": body})
    made["responses"] = {"200": {"description": "OK", "schema": schema}}
    return made
