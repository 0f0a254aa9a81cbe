"""The shipped schemas: complete, closed under references, with descriptions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hekla.api import kinds, schemas
from hekla.units.objects import Object
from tests.api.steps import steps


def field(schema: Object, *path: str) -> Object:
    found = schemas.field(schema, *path)
    assert found is not None, path
    return found


def walk(schema: Any) -> Iterator[Any]:
    """Yield every sub-schema, distinguishing schemas from fields named `items`."""
    yield schema
    for child in schema.get("properties", {}).values():
        yield from walk(child)
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from walk(schema[keyword])


@pytest.mark.parametrize("kind", kinds.BUILTIN, ids=lambda k: f"{k.api_version}-{k.kind}")
def test_every_built_in_kind_has_a_schema_with_its_own_kind_in_it(kind: Any) -> None:
    schema = schemas.schema_for(kind.api_version, kind.kind)
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    assert gvk in schema["x-kubernetes-group-version-kind"]
    assert {"apiVersion", "kind", "metadata"} <= schema["properties"].keys()


def test_every_stored_kind_has_a_list_schema() -> None:
    for kind in kinds.BUILTIN:
        if not kind.virtual:
            assert schemas.definition_name(kind.api_version, kind.list_kind), kind


def test_bodies_of_subresources_have_schemas() -> None:
    for kind in kinds.BUILTIN:
        for name in kind.subresources:
            exchanged = kinds.subresource(kind, name)
            if not exchanged.kind.endswith("Options"):  # these are query parameters
                assert schemas.definition_name(exchanged.api_version, exchanged.kind), exchanged


def test_every_reference_resolves() -> None:
    known = schemas.definitions()
    for name, definition in known.items():
        for schema in walk(definition):
            ref = schemas.reference(schema)
            assert ref is None or ref in known, f"{name} refers to {ref}"


def test_list_semantics_that_strategic_merge_needs_are_present() -> None:
    containers = field(schemas.schema_for("v1", "Pod"), "spec", "containers")
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-patch-strategy"] == "merge"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    volumes = field(schemas.schema_for("v1", "Pod"), "spec", "volumes")
    assert volumes["x-kubernetes-patch-strategy"] == "merge,retainKeys"


def test_defaults_and_enums_are_carried() -> None:
    protocol = field(schemas.schema_for("v1", "Pod"), "spec", "containers", "ports", "protocol")
    assert (protocol["default"], protocol["enum"]) == ("TCP", ["SCTP", "TCP", "UDP"])


def test_zero_values_are_not_schema_defaults() -> None:
    for name, definition in schemas.definitions().items():
        for schema in walk(definition):
            assert schema.get("default", True), name


def test_int_or_string_is_marked_and_quantity_is_named() -> None:
    assert schemas.definitions()[schemas.INT_OR_STRING]["x-kubernetes-int-or-string"] is True
    limits = field(schemas.schema_for("v1", "Pod"), "spec", "containers", "resources")
    assert (
        schemas.reference(limits["properties"]["limits"]["additionalProperties"])
        == schemas.QUANTITY
    )


def test_unknown_field_or_kind_has_no_schema() -> None:
    pod = schemas.schema_for("v1", "Pod")
    assert field(pod, "spec", "nodeName") == {
        "type": "string",
        "description": pod_description("nodeName"),
    }
    assert schemas.field(pod, "spec", "nodename") is None
    assert schemas.definition_name("batch.volcano.sh/v1alpha1", "Job") is None
    with pytest.raises(KeyError, match="not a built-in kind; custom kinds have a CRD"):
        schemas.schema_for("batch.volcano.sh/v1alpha1", "Job")


def pod_description(name: str) -> str:
    spec = schemas.definitions()["io.k8s.api.core.v1.PodSpec"]
    text: str = spec["properties"][name]["description"]
    return text


def test_most_used_fields_have_descriptions() -> None:
    for path in (
        ("v1", "Pod"),
        ("v1", "Pod", "spec"),
        ("v1", "Pod", "spec", "containers", "image"),
        ("v1", "Pod", "spec", "containers", "resources", "limits"),
        ("v1", "Pod", "spec", "tolerations", "effect"),
        ("v1", "Node", "spec", "unschedulable"),
        ("v1", "Service", "spec", "clusterIP"),
        ("apps/v1", "Deployment", "spec", "replicas"),
        ("rbac.authorization.k8s.io/v1", "Role", "rules", "verbs"),
        ("coordination.k8s.io/v1", "Lease", "spec", "holderIdentity"),
    ):
        api_version, kind, *fields = path
        found = field(schemas.schema_for(api_version, kind), *fields)
        assert found["description"], path


def test_every_built_in_kind_is_described() -> None:
    for kind in kinds.BUILTIN:
        assert schemas.schema_for(kind.api_version, kind.kind).get("description"), kind.kind


def test_descriptions_are_short() -> None:
    for name, definition in schemas.definitions().items():
        for schema in walk(definition):
            assert len(schema.get("description", "")) <= 240, name


def test_the_data_is_small_and_loads_fast_enough_for_a_one_second_start() -> None:
    data = schemas._DATA.read_bytes()
    assert len(data) < 1_000_000
    assert steps(schemas.definitions.__wrapped__) < 100, "read as one piece (2 ms)"
    assert json.loads(data).keys() == schemas.definitions().keys()
