"""The structure of objects by their schema: merge keys of lists, atomic maps.

A `Shape` is a view of one node of an OpenAPI v2, OpenAPI v3 or CRD structural schema. It resolves
`$ref` on demand and caches the result, so recursive schemas work and a known path costs one lookup
per step.

Note: strategic merge patch reads `x-kubernetes-patch-strategy` and `-patch-merge-key`, server-side
apply reads `x-kubernetes-list-type`, `-list-map-keys` and `-map-type`. A list may have both, or
only one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

__all__ = ["ANY", "OBJECT_META", "Definitions", "Kind", "ListType", "Shape"]

Kind: TypeAlias = Literal["object", "map", "array", "scalar", "any"]
ListType: TypeAlias = Literal["atomic", "set", "map"]
Schema: TypeAlias = Mapping[str, Any]

_SCALARS: Final = frozenset({"string", "integer", "number", "boolean"})
_NO_SCHEMA: Final[Schema] = {}


class Definitions:
    """The named schemas of one API document; each name resolves to one shared `Shape`."""

    __slots__ = ("_named", "_schemas")

    def __init__(self, schemas: Mapping[str, Schema] | None = None) -> None:
        self._schemas = schemas or {}
        self._named: dict[str, Shape] = {}

    def shape(self, name: str) -> Shape:
        """Return the shape of a definition such as `io.k8s.api.core.v1.Pod`; ANY if unknown."""
        known = self._named.get(name)
        if known is None:
            schema = self._schemas.get(name)
            known = ANY if schema is None else Shape(schema, self)
            self._named[name] = known
        return known

    def resolve(self, schema: Schema) -> Schema:
        """Follow `$ref`, plain or inside a one-element `allOf`, keeping extensions next to it."""
        beside: Schema = _NO_SCHEMA
        for _ in range(32):  # bounds a reference to itself
            reference = schema.get("$ref")
            if reference is None:
                parts = schema.get("allOf")
                if not parts or len(parts) != 1 or "$ref" not in parts[0]:
                    break
                reference = parts[0]["$ref"]
            # OpenAPI v3 puts a field's default, description and extensions beside the allOf
            siblings = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
            beside = {**siblings, **beside}
            schema = self._schemas.get(reference.rsplit("/", 1)[-1], _NO_SCHEMA)
        return {**schema, **beside} if beside else schema


class Shape:
    """The structure at one path. Immutable; children are created on first use."""

    __slots__ = (
        "_children",
        "_defaults",
        "_definitions",
        "_items",
        "_names",
        "_rest",
        "_schema",
        "default",
        "has_default",
        "is_atomic_map",
        "kind",
        "list_keys",
        "list_type",
        "patch_merge_key",
        "patch_strategies",
    )

    kind: Kind
    list_type: ListType
    list_keys: tuple[str, ...]
    patch_merge_key: str | None
    patch_strategies: tuple[str, ...]
    is_atomic_map: bool
    has_default: bool
    default: Any

    def __init__(self, schema: Schema, definitions: Definitions) -> None:
        schema = definitions.resolve(schema)
        self._schema = schema
        self._definitions = definitions
        self._children: dict[str, Shape] = {}
        self._items: Shape | None = None
        self._rest: Shape | None = None
        self._defaults: dict[str, Any] | None = None
        self._names: frozenset[str] | None = None
        self.kind = _kind_of(schema)
        self.list_type = _list_type_of(schema)
        self.list_keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        self.patch_merge_key = schema.get("x-kubernetes-patch-merge-key") or None
        strategies = schema.get("x-kubernetes-patch-strategy") or ""
        self.patch_strategies = tuple(part for part in strategies.split(",") if part)
        self.is_atomic_map = schema.get("x-kubernetes-map-type") == "atomic"
        self.has_default = "default" in schema
        self.default = schema.get("default")

    @staticmethod
    def from_schema(
        schema: Schema, definitions: Mapping[str, Schema] | Definitions | None = None
    ) -> Shape:
        """Return the shape of `schema`; `$ref`s are looked up in `definitions` by their last
        segment.

        Pass one `Definitions` object for many shapes of one document: they share everything below
        common references.
        """
        if not isinstance(definitions, Definitions):
            definitions = Definitions(definitions)
        return Shape(schema, definitions)

    def field(self, name: str) -> Shape:
        """Return the shape of a field: a property, else additionalProperties, else ANY."""
        child = self._children.get(name)
        return child if child is not None else self._find_field(name)

    def _find_field(self, name: str) -> Shape:
        schema = (self._schema.get("properties") or _NO_SCHEMA).get(name)
        if schema is None:
            # Not cached by name: keys of a map are data and unbounded.
            return self.rest
        child = self._children[name] = self._child(schema)
        return child

    @property
    def rest(self) -> Shape:
        """The shape of all values that are not named properties."""
        if self._rest is None:
            schema = self._schema.get("additionalProperties")
            self._rest = self._child(schema) if isinstance(schema, Mapping) else ANY
        return self._rest

    @property
    def items(self) -> Shape:
        """The shape of the elements of a list."""
        if self._items is None:
            schema = self._schema.get("items")
            self._items = self._child(schema) if isinstance(schema, Mapping) else ANY
        return self._items

    @property
    def field_names(self) -> frozenset[str]:
        """The named properties."""
        if self._names is None:
            self._names = frozenset(self._schema.get("properties") or ())
        return self._names

    def default_of(self, name: str) -> Any:
        """Return the schema's default of a field, or None: "TCP" for a port's `protocol`."""
        if self._defaults is None:
            self._defaults = {}
        if name not in self._defaults:
            child = self.field(name)
            self._defaults[name] = child.default if child.has_default else None
        return self._defaults[name]

    def with_field(self, name: str, shape: Shape) -> Shape:
        """Return a copy with another shape for `name`, such as OBJECT_META for a CRD's metadata."""
        copy = Shape(self._schema, self._definitions)
        if copy.kind == "any":
            copy.kind = "object"
        copy._children[name] = shape
        return copy

    def _child(self, schema: Schema) -> Shape:
        if len(schema) == 1 and "$ref" in schema:  # nothing beside it: share the named shape
            return self._definitions.shape(schema["$ref"].rsplit("/", 1)[-1])
        return Shape(schema, self._definitions) if schema else ANY

    def __repr__(self) -> str:
        return f"<Shape {self.kind} {sorted(self.field_names) or self.list_type}>"


def _kind_of(schema: Schema) -> Kind:
    if schema.get("properties"):
        return "object"
    if isinstance(schema.get("additionalProperties"), Mapping):
        return "map"
    declared = schema.get("type")
    if declared == "array" or "items" in schema:
        return "array"
    if declared in _SCALARS or schema.get("x-kubernetes-int-or-string"):
        return "scalar"
    if schema.get("format") == "int-or-string" or (
        "oneOf" in schema and _all_scalar(schema["oneOf"])
    ):
        return "scalar"  # the form of IntOrString and Quantity in OpenAPI v3
    return "any"


def _all_scalar(choices: Any) -> bool:
    return bool(choices) and all(
        isinstance(choice, Mapping) and choice.get("type") in _SCALARS for choice in choices
    )


def _list_type_of(schema: Schema) -> ListType:
    declared = schema.get("x-kubernetes-list-type")
    return declared if declared in ("set", "map") else "atomic"


ANY: Final = Shape(_NO_SCHEMA, Definitions())
"""Unknown structure: maps are merged key by key, lists are replaced."""

_TEXT: Final[Schema] = {"type": "string"}
_TEXT_MAP: Final[Schema] = {"type": "object", "additionalProperties": _TEXT}

OBJECT_META: Final = Shape.from_schema(
    {
        "type": "object",
        "properties": {
            **dict.fromkeys(
                (
                    "name",
                    "generateName",
                    "namespace",
                    "selfLink",
                    "uid",
                    "resourceVersion",
                    "creationTimestamp",
                    "deletionTimestamp",
                ),
                _TEXT,
            ),
            "generation": {"type": "integer"},
            "deletionGracePeriodSeconds": {"type": "integer"},
            "labels": _TEXT_MAP,
            "annotations": _TEXT_MAP,
            "finalizers": {
                "type": "array",
                "items": _TEXT,
                "x-kubernetes-list-type": "set",
                "x-kubernetes-patch-strategy": "merge",
            },
            "ownerReferences": {
                "type": "array",
                "items": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "properties": {
                        **dict.fromkeys(("apiVersion", "kind", "name", "uid"), _TEXT),
                        "controller": {"type": "boolean"},
                        "blockOwnerDeletion": {"type": "boolean"},
                    },
                },
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uid"],
                "x-kubernetes-patch-merge-key": "uid",
                "x-kubernetes-patch-strategy": "merge",
            },
            "managedFields": {
                "type": "array",
                "items": {"type": "object"},
                "x-kubernetes-list-type": "atomic",
            },
        },
    }
)
"""The shape of every object's metadata. CRD schemas contain only `metadata: {type: object}`:
replace it with `shape.with_field("metadata", OBJECT_META)`.
"""
