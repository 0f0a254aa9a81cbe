"""Structural schemas: prune, default and validate objects.

Most objects are valid. One compiled *closed* schema (jsonschema-rs) checks that in microseconds;
only an invalid object is examined further. Built-in kinds are checked as by Go's decoder: types are
checked, unknown fields are dropped, null means "unset", quantities, times and binary data get their
canonical form, and `required` is left to `hekla.api.rules`.
Custom kinds are checked as structural schemas: prune, default, then full validation. Only their
metadata is checked as by Go's decoder.

Note: `check` modifies its argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs

from hekla.api import schemas
from hekla.apiserver.schema import formats
from hekla.apiserver.schema.scalars import scalars_of

_REF = "#/definitions/"
_INT_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
# Keywords of a structural schema with the same meaning in JSON Schema (draft 4, OpenAPI v3.0).
_VALIDATIONS = (
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "required",
)
_JUNCTORS = ("allOf", "anyOf", "oneOf")
MAX_ERRORS = 50
# Rust's plain engine: linear time, without look-around and back-references, as Go's.
_LINEAR = jsonschema_rs.RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 20)

Json = Any
Cause = dict[str, str]


@dataclass
class Findings:
    """Result of `check`: dropped fields and errors."""

    unknown: list[str] = field(default_factory=list)
    type_errors: list[Cause] = field(default_factory=list)
    errors: list[Cause] = field(default_factory=list)


class StructuralSchema:
    """A compiled schema."""

    def __init__(
        self, schema: dict[str, Any], definitions: Mapping[str, Any], *, custom: bool
    ) -> None:
        self._custom = custom
        self._definitions = definitions
        if custom:
            self._definitions = schemas.definitions()
            schema = _with_object_meta(schema)
        self._schema = schema
        closed = _Closer(self._definitions, strict=custom).document(schema)
        self._validator = jsonschema_rs.Draft4Validator(
            closed, pattern_options=_LINEAR, formats=formats.CHECKS, validate_formats=True
        )
        self._plan = _plan(schema, self._definitions) if custom else None
        self._scalars = scalars_of(_METADATA if custom else schema)

    def check(self, obj: dict[str, Any]) -> Findings:
        """Prune and default `obj` in place; return its errors."""
        if self._plan is not None:
            self._plan.default(obj)
        if self._validator.is_valid(obj):
            findings = Findings()
        else:
            unknown = self._prune(obj, self._schema, "", custom=self._custom)
            findings = Findings(unknown=[f".{path}" for path in unknown])
            if self._plan is not None:
                self._plan.default(obj)
            for error in self._validator.iter_errors(obj):
                is_validated = self._custom and not _is_in_metadata(error)
                target = findings.errors if is_validated else findings.type_errors
                target.append(_cause(error))
                if len(target) >= MAX_ERRORS:
                    break
        if self._scalars is not None and not findings.type_errors:
            findings.type_errors += self._scalars.canonicalize(obj)
        if self._plan is not None and not findings.errors:
            findings.errors.extend(self._plan.duplicates(obj, ""))
        return findings

    def _resolve(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in schema:
            schema = self._definitions[schema["$ref"].removeprefix(_REF)]
        return schema

    def _prune(
        self, value: Json, schema: Mapping[str, Any], path: str, *, custom: bool
    ) -> Iterator[str]:
        """Drop unknown fields and nulls; yield the paths of the former.

        Null means "unset" to Go's decoder, and in a custom kind unless the field is nullable. Go
        decodes a null in a map or list to the zero value.
        """
        if "$ref" in schema:
            custom = False
            schema = self._resolve(schema)
        if isinstance(value, list):
            items = schema.get("items")
            if isinstance(items, dict):
                for index, item in enumerate(value):
                    if item is None and not custom:
                        value[index] = self._zero(items)
                        continue
                    yield from self._prune(item, items, f"{path}[{index}]", custom=custom)
            return
        if not isinstance(value, dict):
            return
        properties = schema.get("properties") or {}
        if schema.get("x-kubernetes-embedded-resource"):
            properties = {**properties, **_EMBEDDED}
        extra = schema.get("additionalProperties")
        opaque = _is_opaque(schema)
        for name in list(value):
            inner = properties.get(name)
            where = f"{path}.{name}" if path else name
            if inner is None and isinstance(extra, dict):
                inner = extra
                if value[name] is None and not custom:
                    value[name] = self._zero(extra)
            if inner is not None:
                if value[name] is None:
                    if not (custom and inner.get("nullable")):
                        del value[name]
                    continue
                yield from self._prune(value[name], inner, where, custom=custom)
            elif not opaque and not extra:
                del value[name]
                yield where

    def _zero(self, schema: Mapping[str, Any]) -> Json:
        """Return what Go's decoder makes of a null in a map or list."""
        name = schema.get("$ref", "").removeprefix(_REF)
        if name == schemas.QUANTITY:
            return "0"
        kind = self._resolve(schema).get("type", "object")
        return {"string": "", "integer": 0, "number": 0, "boolean": False, "array": []}.get(
            kind, {}
        )


_EMBEDDED = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {"$ref": _REF + schemas.OBJECT_META},
}
_METADATA = {"properties": {"metadata": _EMBEDDED["metadata"]}}


def _with_object_meta(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a custom kind's root schema with the server's apiVersion, kind and metadata."""
    metadata = (schema.get("properties") or {}).get("metadata") or {}
    restricted = metadata.get("properties") or {}
    properties = {**(schema.get("properties") or {}), **_EMBEDDED}
    if restricted:  # restrictions are allowed on metadata.name and generateName
        properties["metadata"] = {**_EMBEDDED["metadata"], "also": restricted}
    return {**schema, "type": "object", "properties": properties}


def _is_opaque(schema: Mapping[str, Any]) -> bool:
    """Return whether unknown fields are preserved here."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return True
    return not schema.get("properties") and "additionalProperties" not in schema


class _Closer:
    """Converts a schema into a closed JSON Schema, which unknown fields violate."""

    def __init__(self, definitions: Mapping[str, Any], *, strict: bool) -> None:
        self._source = definitions
        self._strict = strict
        self._made: dict[str, Any] = {}

    def document(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        root = self.close(schema)
        return {**root, "definitions": self._made}

    def _reference(self, ref: str) -> dict[str, Any]:
        name = ref.removeprefix(_REF)
        if name in schemas.NUMBER_OR_STRING:
            return {"type": ["string", "number"]}
        if name not in self._made:
            self._made[name] = {}  # a placeholder ends the recursion
            # Kubernetes' definitions are checked by type only, also inside custom kinds.
            outer, self._strict = self._strict, False
            self._made[name] = self.close(self._source[name])
            self._strict = outer
        return {"$ref": ref}

    def close(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        if "$ref" in schema:
            closed = self._reference(schema["$ref"])
            if "also" in schema:
                also = {name: self.close(inner) for name, inner in schema["also"].items()}
                closed = {"allOf": [closed, {"properties": also}]}
            return closed
        made: dict[str, Any] = {}
        if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
            made["type"] = ["integer", "string"]
        elif schema.get("type"):
            made["type"] = schema["type"]
        if self._strict:
            made.update(_validations(schema))
            for junctor in _JUNCTORS:
                if junctor in schema:
                    made[junctor] = [_only_validations(inner) for inner in schema[junctor]]
            if "not" in schema:
                made["not"] = _only_validations(schema["not"])
            if schema.get("nullable"):
                made = _nullable(made)
        if schema.get("format") in _INT_RANGES and schema.get("type") == "integer":
            low, high = _INT_RANGES[schema["format"]]
            made["minimum"] = max(low, made.get("minimum", low))
            made["maximum"] = min(high, made.get("maximum", high))
        self._close_object(schema, made)
        if isinstance(schema.get("items"), dict):
            made["items"] = self.close(schema["items"])
        return made

    def _close_object(self, schema: Mapping[str, Any], made: dict[str, Any]) -> None:
        properties = dict(schema.get("properties") or {})
        if schema.get("x-kubernetes-embedded-resource"):
            properties.update(_EMBEDDED)
        if properties:
            made["properties"] = {name: self.close(inner) for name, inner in properties.items()}
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            made["additionalProperties"] = self.close(extra)
        elif not extra and not _is_opaque(schema) and schema.get("type", "object") == "object":
            made["additionalProperties"] = False


def _validations(schema: Mapping[str, Any]) -> dict[str, Any]:
    made = {key: schema[key] for key in _VALIDATIONS if key in schema}
    if (checked := formats.marked(schema.get("format"))) is not None:
        made["format"] = checked
    return made


def _only_validations(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema inside anyOf, allOf, oneOf or not: it validates only."""
    made = _validations(schema)
    if "type" in schema:
        made["type"] = schema["type"]
    for name, inner in (schema.get("properties") or {}).items():
        made.setdefault("properties", {})[name] = _only_validations(inner)
    if isinstance(schema.get("items"), dict):
        made["items"] = _only_validations(schema["items"])
    for junctor in _JUNCTORS:
        if junctor in schema:
            made[junctor] = [_only_validations(inner) for inner in schema[junctor]]
    if "not" in schema:
        made["not"] = _only_validations(schema["not"])
    return made


def _nullable(made: dict[str, Any]) -> dict[str, Any]:
    kind = made.get("type")
    if kind is None:
        return made
    kinds = kind if isinstance(kind, list) else [kind]
    if "enum" in made:
        made["enum"] = [*made["enum"], None]
    return {**made, "type": [*kinds, "null"]}


@dataclass
class _Plan:
    """The parts of a schema with defaults or list keys, for a fast walk."""

    defaults: dict[str, Json] = field(default_factory=dict)
    children: dict[str, _Plan] = field(default_factory=dict)
    items: _Plan | None = None
    values: _Plan | None = None
    unique_by: tuple[str, ...] | None = None
    """Keys of a list map; the empty tuple for a set."""

    @property
    def is_empty(self) -> bool:
        return not (
            self.defaults
            or self.children
            or self.items
            or self.values
            or self.unique_by is not None
        )

    def default(self, value: Json) -> None:
        if isinstance(value, dict):
            for name, default in self.defaults.items():
                if value.get(name) is None and (name not in value or default is not None):
                    value[name] = deepcopy(default)
            for name, child in self.children.items():
                if name in value:
                    child.default(value[name])
            if self.values is not None:
                for inner in value.values():
                    self.values.default(inner)
        elif isinstance(value, list) and self.items is not None:
            for inner in value:
                self.items.default(inner)

    def duplicates(self, value: Json, path: str) -> Iterator[Cause]:
        if isinstance(value, dict):
            for name, child in self.children.items():
                if name in value:
                    yield from child.duplicates(value[name], f"{path}.{name}" if path else name)
            if self.values is not None:
                for name, inner in value.items():
                    yield from self.values.duplicates(inner, f"{path}[{name}]")
        elif isinstance(value, list):
            if self.unique_by is not None:
                yield from self._repeated(value, path)
            if self.items is not None:
                for index, inner in enumerate(value):
                    yield from self.items.duplicates(inner, f"{path}[{index}]")

    def _repeated(self, value: list[Json], path: str) -> Iterator[Cause]:
        assert self.unique_by is not None
        seen = set()
        for index, item in enumerate(value):
            if self.unique_by:
                if not isinstance(item, dict):
                    continue
                mark = repr([item.get(key) for key in self.unique_by])
                shown = ", ".join(f"{key}={item.get(key)!r}" for key in self.unique_by)
            else:
                mark = shown = repr(item)
            if mark in seen:
                yield {
                    "reason": "FieldValueDuplicate",
                    "message": f"Duplicate value: {shown}",
                    "field": f"{path}[{index}]",
                }
            seen.add(mark)


def _plan(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> _Plan:
    plan = _Plan()
    if "$ref" in schema:
        return plan
    for name, inner in (schema.get("properties") or {}).items():
        if "default" in inner:
            plan.defaults[name] = inner["default"]
        child = _plan(inner, definitions)
        if not child.is_empty:
            plan.children[name] = child
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        child = _plan(extra, definitions)
        plan.values = None if child.is_empty else child
    if isinstance(schema.get("items"), dict):
        child = _plan(schema["items"], definitions)
        plan.items = None if child.is_empty else child
    list_type = schema.get("x-kubernetes-list-type")
    if list_type == "map":
        plan.unique_by = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    elif list_type == "set":
        plan.unique_by = ()
    return plan


_REASONS = {
    "type": "FieldValueTypeInvalid",
    "format": "FieldValueTypeInvalid",
    "required": "FieldValueRequired",
    "enum": "FieldValueNotSupported",
    "maxLength": "FieldValueTooLong",
    "maxItems": "FieldValueTooMany",
}


def _is_in_metadata(error: jsonschema_rs.ValidationError) -> bool:
    """Whether metadata cannot be decoded. A restriction of its name is a validation error."""
    path = error.instance_path
    return bool(path) and path[0] == "metadata" and error.kind.name == "type"


def _cause(error: jsonschema_rs.ValidationError) -> Cause:
    """Return a Kubernetes field error for an error of the validator."""
    path = ""
    for part in error.instance_path:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    kind = error.kind.name
    value = error.instance
    shown = f'"{value}"' if isinstance(value, str) else repr(value)
    if len(shown) > 120:
        shown = shown[:117] + "..."
    if kind == "required":
        name = getattr(error.kind, "property", "")
        where = f"{path}.{name}" if path else str(name)
        return {"reason": "FieldValueRequired", "message": "Required value", "field": where}
    if kind == "enum":
        options = ", ".join(f'"{option}"' for option in getattr(error.kind, "options", []))
        message = f"Unsupported value: {shown}: supported values: {options}"
    elif kind == "type":
        message = (
            f"Invalid value: {shown}: {path} in body must be of the declared type: {error.message}"
        )
    elif kind == "format":
        name = getattr(error.kind, "format", "").removeprefix(formats.PREFIX)
        message = f"Invalid value: {shown}: {path} in body must have the format {name}"
    else:
        message = f"Invalid value: {shown}: {error.message}"
    return {
        "reason": _REASONS.get(kind, "FieldValueInvalid"),
        "message": message,
        "field": path or "<root>",
    }
