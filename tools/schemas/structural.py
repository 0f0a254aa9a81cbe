"""Builds the structural schemas of CRDs: small builders, and core types written out in place.

A CRD may not use `$ref`, so a pod template is expanded to its last field. The result is what Go's
controller-gen makes of the same types, because Volcano's clients were built against that.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)

# Keywords that mean something to strategic merge or to discovery, and nothing inside a CRD.
_DROPPED = {
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-group-version-kind",
    "x-kubernetes-unions",
    # The Go types mark no enums that controller-gen sees, and validation of pods is core's.
    "enum",
}

# Zero values that the Go types state as explicit defaults, so controller-gen writes them. An empty
# name, for one, makes the field valid as the key of a list map without being required.
_EXPLICIT_DEFAULTS: dict[str, dict[str, Any]] = {
    "AzureDiskVolumeSource": {"readOnly": False},
    "ConfigMapEnvSource": {"name": ""},
    "ConfigMapKeySelector": {"name": ""},
    "ConfigMapProjection": {"name": ""},
    "ConfigMapVolumeSource": {"name": ""},
    "FileKeySelector": {"optional": False},
    "GRPCAction": {"service": ""},
    "LocalObjectReference": {"name": ""},
    "SecretEnvSource": {"name": ""},
    "SecretKeySelector": {"name": ""},
    "SecretProjection": {"name": ""},
}

# Defaults that Go gives by reference to a constant, which controller-gen does not follow.
_UNSEEN_DEFAULTS = {"AzureDiskVolumeSource": ("cachingMode", "kind")}

# Go types that embed LocalObjectReference, and inherit that it is replaced as a whole.
_ATOMIC = {
    "ConfigMapEnvSource",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "SecretEnvSource",
    "SecretProjection",
}


# --- builders ---------------------------------------------------------------------------------


def string(description: str = "", **more: Any) -> Schema:
    return {"type": "string", **_described(description), **_keywords(more)}


def integer(description: str = "", **more: Any) -> Schema:
    return {"type": "integer", **_described(description), **_keywords(more)}


def int32(description: str = "", **more: Any) -> Schema:
    return integer(description, format="int32", **more)


def int64(description: str = "", **more: Any) -> Schema:
    return integer(description, format="int64", **more)


def count(description: str = "", **more: Any) -> Schema:
    """A 32-bit number that is never negative."""
    return int32(description, minimum=0, **more)


def boolean(description: str = "", **more: Any) -> Schema:
    return {"type": "boolean", **_described(description), **_keywords(more)}


def time(description: str = "") -> Schema:
    return string(description, format="date-time")


def one_of(description: str, *values: str, **more: Any) -> Schema:
    return string(description, enum=list(values), **more)


def list_of(items: Schema, description: str = "", **more: Any) -> Schema:
    return {"type": "array", "items": items, **_described(description), **_keywords(more)}


def strings(description: str = "", **more: Any) -> Schema:
    return list_of(string(), description, **more)


def map_of(values: Schema, description: str = "") -> Schema:
    return {"type": "object", "additionalProperties": values, **_described(description)}


def obj(
    description: str = "",
    fields: dict[str, Schema] | None = None,
    required: tuple[str, ...] = (),
    **more: Any,
) -> Schema:
    schema: Schema = {"type": "object", **_described(description)}
    if fields:
        schema["properties"] = dict(sorted(fields.items()))
    if required:
        schema["required"] = sorted(required)
    return {**schema, **_keywords(more)}


def quantity() -> Schema:
    return {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY_PATTERN,
        "x-kubernetes-int-or-string": True,
    }


def resource_list(description: str = "") -> Schema:
    return map_of(quantity(), description)


def condition() -> Schema:
    """metav1.Condition with the checks that its Go markers ask for."""
    return obj(
        "One observed fact about the object.",
        {
            "type": string(
                "Name of the fact, CamelCase.",
                max_length=316,
                pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
                r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
            ),
            "status": one_of("Whether it holds.", "True", "False", "Unknown"),
            "reason": string(
                "One CamelCase word for programs.",
                min_length=1,
                max_length=1024,
                pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            ),
            "message": string("A sentence for people.", max_length=32768),
            "lastTransitionTime": time("When the status last changed."),
            "observedGeneration": int64("The generation this was judged on.", minimum=0),
        },
        required=("lastTransitionTime", "message", "reason", "status", "type"),
    )


def described(schema: Schema, description: str) -> Schema:
    """The same schema under another description."""
    return {**schema, "description": description}


def _described(description: str) -> Schema:
    return {"description": description} if description else {}


_CAMEL = {
    "max_length": "maxLength",
    "min_length": "minLength",
    "min_items": "minItems",
    "list_type": "x-kubernetes-list-type",
    "list_map_keys": "x-kubernetes-list-map-keys",
    "map_type": "x-kubernetes-map-type",
    "validations": "x-kubernetes-validations",
}


def _keywords(more: dict[str, Any]) -> Schema:
    return {_CAMEL.get(name, name): value for name, value in more.items()}


# --- core types -------------------------------------------------------------------------------


def embedded_metadata() -> Schema:
    """The part of an object's metadata that a template may carry."""
    return obj(
        "Labels and annotations of what is made from this template.",
        {
            "name": string(),
            "namespace": string(),
            "labels": map_of(string()),
            "annotations": map_of(string()),
            "finalizers": strings(),
        },
    )


class CoreTypes:
    """Expands Kubernetes definitions in place."""

    def __init__(self, definitions: dict[str, Schema]) -> None:
        self._definitions = definitions

    def get(self, short_name: str, description: str = "") -> Schema:
        """`core.v1.PodTemplateSpec` or `meta.v1.LabelSelector`, with nothing left to refer to."""
        [name] = [n for n in self._definitions if n.endswith(f".{short_name}")]
        expanded = self._definition(name)
        return described(expanded, description) if description else expanded

    def _definition(self, name: str) -> Schema:
        short = name.rsplit(".", 1)[1]
        if short == "Quantity":
            return quantity()
        if short == "IntOrString":
            return {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": True,
            }
        if short == "ObjectMeta":
            return embedded_metadata()
        schema = self._expand(self._definitions[name])
        for field, default in _EXPLICIT_DEFAULTS.get(short, {}).items():
            schema["properties"][field]["default"] = default
        for field in _UNSEEN_DEFAULTS.get(short, ()):
            schema["properties"][field].pop("default")
        if short in _ATOMIC:
            schema["x-kubernetes-map-type"] = "atomic"
        return schema

    def _expand(self, schema: Schema) -> Schema:
        if "$ref" in schema:
            target = self._definition(schema["$ref"].rsplit("/", 1)[1])
            # A field's own sentence says more than that of its type.
            own = schema.get("description")
            return described(target, own) if own else target
        out: Schema = {}
        for key, value in schema.items():
            if key in _DROPPED:
                continue
            if key == "properties":
                out[key] = {name: self._expand(field) for name, field in value.items()}
            elif key in ("items", "additionalProperties") and isinstance(value, dict):
                out[key] = self._expand(value)
            else:
                out[key] = value
        return out
