"""Structural schemas: prune, default, validate."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.api import schemas
from hekla.apiserver.schema.structural import StructuralSchema
from hekla.units.objects import Object

SCHEMA: Object = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
                "port": {"x-kubernetes-int-or-string": True},
                "note": {"type": "string", "nullable": True, "maxLength": 5},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string"},
                            "count": {"type": "integer", "format": "int32", "default": 1},
                        },
                    },
                },
                "tags": {
                    "type": "array",
                    "x-kubernetes-list-type": "set",
                    "items": {"type": "string"},
                },
            },
        }
    },
}


def widget(**spec: Any) -> Object:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {"size": 1, **spec},
    }


@pytest.fixture(scope="module")
def structural_schema() -> StructuralSchema:
    return StructuralSchema(SCHEMA, {}, custom=True)


def test_schema_defaults_apply_at_every_level(structural_schema: StructuralSchema) -> None:
    one = widget(parts=[{"name": "a"}, {"name": "b", "count": 3}])
    assert not structural_schema.check(one).errors
    assert one["spec"]["mode"] == "fast"
    assert one["spec"]["parts"] == [{"name": "a", "count": 1}, {"name": "b", "count": 3}]


def test_unknown_fields_are_dropped_and_reported(structural_schema: StructuralSchema) -> None:
    one = widget(sise=3, parts=[{"name": "a", "colour": "red"}], free={"any": {"thing": 1}})
    findings = structural_schema.check(one)
    assert not findings.errors
    assert sorted(findings.unknown) == [".spec.parts[0].colour", ".spec.sise"]
    assert "sise" not in one["spec"]
    assert one["spec"]["free"] == {"any": {"thing": 1}}


REFUSED: dict[str, tuple[Object, str, str]] = {
    "a missing field": ({"size": None}, "spec.size", "FieldValueRequired"),
    "a value too large": ({"size": 10}, "spec.size", "FieldValueInvalid"),
    "another type": ({"size": "big"}, "spec.size", "FieldValueTypeInvalid"),
    "a value outside the set": ({"mode": "medium"}, "spec.mode", "FieldValueNotSupported"),
    "a text too long": ({"note": "x" * 6}, "spec.note", "FieldValueTooLong"),
    "a number beyond 32 bits": (
        {"parts": [{"name": "a", "count": 2**31}]},
        "spec.parts[0].count",
        "FieldValueInvalid",
    ),
    "a label that is a number": ({"labels": {"a": 1}}, "spec.labels.a", "FieldValueTypeInvalid"),
    "two parts of one name": (
        {"parts": [{"name": "a"}, {"name": "a"}]},
        "spec.parts[1]",
        "FieldValueDuplicate",
    ),
    "a tag twice": ({"tags": ["x", "y", "x"]}, "spec.tags[2]", "FieldValueDuplicate"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_invalid_object_is_refused(structural_schema: StructuralSchema, what: str) -> None:
    spec, field, reason = REFUSED[what]
    (cause,) = structural_schema.check(widget(**spec)).errors
    assert (cause["field"], cause["reason"]) == (field, reason)


def test_missing_required_field_is_named(structural_schema: StructuralSchema) -> None:
    one = widget()
    del one["spec"]["size"]
    (cause,) = structural_schema.check(one).errors
    assert cause == {
        "reason": "FieldValueRequired",
        "message": "Required value",
        "field": "spec.size",
    }


def test_null_is_kept_in_nullable_fields(structural_schema: StructuralSchema) -> None:
    one = widget(note=None, mode=None)
    assert not structural_schema.check(one).errors
    assert one["spec"]["note"] is None
    assert one["spec"]["mode"] == "fast", "null in a non-nullable field means the default"


def test_int_or_string_accepts_both(structural_schema: StructuralSchema) -> None:
    for port in (80, "http"):
        assert not structural_schema.check(widget(port=port)).errors
    assert structural_schema.check(widget(port=[1])).errors


def test_metadata_is_validated_by_kubernetes_schema(structural_schema: StructuralSchema) -> None:
    one = widget()
    one["metadata"]["labels"] = {"a": 1}
    assert [cause["field"] for cause in structural_schema.check(one).type_errors] == [
        "metadata.labels.a"
    ]
    one["metadata"] = {"name": "w", "nonsense": True}
    assert structural_schema.check(one).unknown == [".metadata.nonsense"]


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(spec=st.dictionaries(st.sampled_from([*SCHEMA["properties"]["spec"]["properties"], "x"]),
                            values))  # fmt: skip
def test_accepted_object_is_accepted_again_unchanged(spec: Object) -> None:
    structural_schema = _shared()
    one = {**widget(), "spec": spec}
    if structural_schema.check(one).errors:
        return
    again = deepcopy(one)
    findings = structural_schema.check(again)
    assert not findings.errors
    assert not findings.unknown
    assert again == one


_made: list[StructuralSchema] = []


def _shared() -> StructuralSchema:
    if not _made:
        _made.append(StructuralSchema(SCHEMA, {}, custom=True))
    return _made[0]


@pytest.fixture(scope="module")
def pods() -> StructuralSchema:
    return StructuralSchema(schemas.schema_for("v1", "Pod"), schemas.definitions(), custom=False)


def test_built_in_kinds_are_checked_as_by_the_go_decoder(pods: StructuralSchema) -> None:
    pod: Object = {
        "metadata": {"name": "p", "creationTimestamp": None},
        "spec": {"containers": [{"name": "a", "image": "b", "colour": "red", "env": None,
                                 "resources": {"requests": {"cpu": 1, "memory": "1Gi"}}}]},
    }  # fmt: skip
    findings = pods.check(pod)
    assert findings.unknown == [".spec.containers[0].colour"]
    assert not findings.type_errors
    assert "creationTimestamp" not in pod["metadata"], "null means unset"
    pod["spec"]["containers"] = {}
    (error, *_) = pods.check(pod).type_errors
    assert error["field"] == "spec.containers"
