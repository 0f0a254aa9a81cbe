"""Rules of CustomResourceDefinitions: matching names, one stored version, structural schemas.

A schema is *structural* if every field's type is explicit: no `$ref`, a type at every node, only
value constraints inside `anyOf` and similar keywords. Pruning and defaulting depend on it.
"""

from __future__ import annotations

from typing import Any, Final

from hekla.api.rules import names
from hekla.api.rules.admission import client_config
from hekla.api.rules.fields import (
    FieldErrors,
    duplicate,
    forbidden,
    invalid,
    one_of,
    required,
    unchanged,
)
from hekla.units.objects import Object
from hekla.units.patterns import PatternError, compile_pattern

TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
# Inside these a schema may only constrain values, not declare fields.
_LOGIC: Final = ("allOf", "anyOf", "oneOf", "not")
_NOT_IN_LOGIC: Final = ("default", "description", "nullable", "title", "type", "x-kubernetes-")
_REVIEWS: Final = "must include v1, the one version of ConversionReview that is spoken here"
_UNSUPPORTED: Final = ("$ref", "definitions", "dependencies", "patternProperties", "id")


def definition(obj: Object, old: Object | None) -> FieldErrors:
    spec = obj.get("spec") or {}
    group, crd_names = spec.get("group") or "", spec.get("names") or {}
    yield from names.checked("spec.group", group, names.dns_subdomain)
    if group and "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")
    yield from one_of("spec.scope", spec.get("scope"), ("Cluster", "Namespaced"))
    yield from _names(crd_names)
    want = f"{crd_names.get('plural')}.{group}"
    name = (obj.get("metadata") or {}).get("name")
    if name != want:
        yield invalid("metadata.name", name, f"must be spec.names.plural+'.'+spec.group: {want}")
    if spec.get("preserveUnknownFields"):
        yield invalid("spec.preserveUnknownFields", True, "must be false; mark parts of the schema")
    yield from _versions(spec.get("versions") or [])
    strategy = (spec.get("conversion") or {}).get("strategy")
    yield from one_of("spec.conversion.strategy", strategy, ("None", "Webhook"))
    if strategy == "Webhook":
        webhook = (spec["conversion"].get("webhook")) or {}
        if not webhook.get("clientConfig"):
            yield required("spec.conversion.webhookClientConfig")
        else:
            yield from client_config("spec.conversion.webhookClientConfig", webhook["clientConfig"])
        reviews = webhook.get("conversionReviewVersions")
        if not reviews:
            yield required("spec.conversion.conversionReviewVersions")
        elif "v1" not in reviews:
            yield invalid("spec.conversion.conversionReviewVersions", reviews, _REVIEWS)
    if old is not None:
        before = old.get("spec") or {}
        yield from unchanged("spec.group", group, before.get("group"))
        yield from unchanged("spec.scope", spec.get("scope"), before.get("scope"))
        plural = (before.get("names") or {}).get("plural")
        yield from unchanged("spec.names.plural", crd_names.get("plural"), plural)
        yield from _stored_versions(spec, old)


def _stored_versions(spec: Object, old: Object) -> FieldErrors:
    served = {version.get("name") for version in spec.get("versions") or ()}
    for stored in (old.get("status") or {}).get("storedVersions") or ():
        if stored not in served:
            yield invalid(
                "status.storedVersions", stored, "objects are stored in it; it cannot be removed"
            )


def _names(crd_names: Object) -> FieldErrors:
    for field in ("plural", "singular"):
        yield from names.checked(f"spec.names.{field}", crd_names.get(field), names.dns_1035_label)
    for field in ("kind", "listKind"):
        value = crd_names.get(field)
        if not value:
            yield required(f"spec.names.{field}")
        elif why := names.dns_1035_label(value.lower()):
            yield invalid(f"spec.names.{field}", value, f"in lower case, it {why}")
    if crd_names.get("kind") and crd_names.get("kind") == crd_names.get("listKind"):
        yield invalid("spec.names.listKind", crd_names["listKind"], "may not be the same as kind")
    for field in ("shortNames", "categories"):
        for index, value in enumerate(crd_names.get(field) or ()):
            yield from names.checked(f"spec.names.{field}[{index}]", value, names.dns_1035_label)


def _versions(versions: list[Object]) -> FieldErrors:
    if not versions:
        yield required("spec.versions", "must have at least one version")
        return
    seen: set[str] = set()
    for index, version in enumerate(versions):
        at = f"spec.versions[{index}]"
        name = version.get("name") or ""
        yield from names.checked(f"{at}.name", name, names.dns_1035_label)
        if name in seen:
            yield duplicate(f"{at}.name", name)
        seen.add(name)
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            yield required(f"{at}.schema.openAPIV3Schema", "schemas are required")
        else:
            yield from _root(f"{at}.schema.openAPIV3Schema", schema)
        yield from _subresources(f"{at}.subresources", version.get("subresources") or {})
        for number, column in enumerate(version.get("additionalPrinterColumns") or ()):
            yield from _column(f"{at}.additionalPrinterColumns[{number}]", column)
    stored = [version.get("name") for version in versions if version.get("storage")]
    if len(stored) != 1:
        yield invalid(
            "spec.versions", stored, "must have exactly one version marked as storage version"
        )


def _subresources(at: str, subresources: Object) -> FieldErrors:
    scale = subresources.get("scale")
    if scale is not None:
        for field, prefix in (
            ("specReplicasPath", ".spec."),
            ("statusReplicasPath", ".status."),
        ):
            path = scale.get(field) or ""
            if not path:
                yield required(f"{at}.scale.{field}")
            elif not path.startswith(prefix):
                yield invalid(f"{at}.scale.{field}", path, f"must be a path below {prefix[:-1]}")


def _column(at: str, column: Object) -> FieldErrors:
    if not column.get("name"):
        yield required(f"{at}.name")
    yield from one_of(f"{at}.type", column.get("type"), COLUMN_TYPES)
    if not column.get("jsonPath"):
        yield required(f"{at}.jsonPath")


# --- structural schemas -----------------------------------------------------------------------


def _root(path: str, schema: Object) -> FieldErrors:
    if schema.get("type") != "object":
        yield invalid(f"{path}.type", schema.get("type"), "must be object at the root")
    metadata = (schema.get("properties") or {}).get("metadata") or {}
    inner = metadata.get("properties") or {}
    if inner.keys() - {"name", "generateName"}:
        yield forbidden(f"{path}.properties[metadata]", "may only restrict name and generateName")
    yield from structural(path, schema)


def structural(path: str, schema: Object) -> FieldErrors:
    """Yield all reasons why a schema is not structural."""
    free = schema.get("x-kubernetes-int-or-string") or schema.get(
        "x-kubernetes-preserve-unknown-fields"
    )
    kind = schema.get("type")
    if kind:
        yield from one_of(f"{path}.type", kind, TYPES)
    elif not free:
        yield required(f"{path}.type", "must not be empty for specified object fields")
    if schema.get("pattern"):
        try:
            compile_pattern(schema["pattern"])
        except PatternError as error:
            yield invalid(f"{path}.pattern", schema["pattern"], f"does not compile: {error}")
    for keyword in _UNSUPPORTED:
        if schema.get(keyword):
            yield forbidden(f"{path}.{keyword}", f"{keyword} is not supported")
    if schema.get("properties") and schema.get("additionalProperties"):
        yield forbidden(
            f"{path}.additionalProperties",
            "additionalProperties and properties are mutually exclusive",
        )
    for keyword in _LOGIC:
        # The exception: an int-or-string lists its two types in anyOf.
        if schema.get(keyword) and not schema.get("x-kubernetes-int-or-string"):
            yield from _logic(f"{path}.{keyword}", schema[keyword])
    for name, child in (schema.get("properties") or {}).items():
        yield from structural(f"{path}.properties[{name}]", child)
    items = schema.get("items")
    if kind == "array" and not items:
        yield required(f"{path}.items", "must be specified for an array")
    if isinstance(items, dict):
        yield from structural(f"{path}.items", items)
    elif isinstance(items, list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        yield from structural(f"{path}.additionalProperties", extra)
    yield from _list_map(path, schema)


def _logic(path: str, part: Any) -> FieldErrors:
    for index, schema in enumerate(part if isinstance(part, list) else [part]):
        at = f"{path}[{index}]" if isinstance(part, list) else path
        for keyword in schema:
            if keyword in _NOT_IN_LOGIC or keyword.startswith("x-kubernetes-"):
                yield forbidden(f"{at}.{keyword}", "must be outside of allOf, anyOf, oneOf and not")
        for child in (schema.get("properties") or {}).values():
            yield from _logic(f"{at}.properties", child)


def _list_map(path: str, schema: Object) -> FieldErrors:
    keys = schema.get("x-kubernetes-list-map-keys")
    if schema.get("x-kubernetes-list-type") != "map":
        if keys:
            yield forbidden(f"{path}.x-kubernetes-list-map-keys", "only list maps have keys")
        return
    if not keys:
        yield required(f"{path}.x-kubernetes-list-map-keys", "a list of type map needs keys")
    items = schema.get("items")
    items = items if isinstance(items, dict) else {}
    for key in keys or ():
        field = (items.get("properties") or {}).get(key)
        at = f"{path}.items.properties[{key}]"
        if field is None:
            yield required(at, "the key of a list map must be a field of its items")
        elif key not in (items.get("required") or ()) and "default" not in field:
            yield required(f"{at}.default", "the key of a list map must be required or defaulted")


TABLE = (("apiextensions.k8s.io/v1", "CustomResourceDefinition", definition),)
