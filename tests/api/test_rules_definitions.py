"""Rules of CustomResourceDefinitions."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from hekla.api import crds, defaults, rules
from hekla.units.objects import Object
from tests.api.rule_bodies import (
    FORBIDDEN,
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    found,
    obj,
)


def definition(schema: Any = None, name: str = "widgets.example.com", **changes: Any) -> Object:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", **(schema or {})}},
    }
    spec = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [{**version, **changes.pop("version", {})}, *changes.pop("more_versions", [])],
        **changes,
    }
    return obj("apiextensions.k8s.io/v1", "CustomResourceDefinition", name, spec=spec)


ROOT = "spec.versions[0].schema.openAPIV3Schema"
SECOND = {"name": "v2", "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}


def properties(**fields: Any) -> Object:
    return definition({"properties": fields})


DEFINITIONS = {
    "a small one": (definition(), []),
    "a name that does not fit": (
        definition(name="other.example.com"),
        [(INVALID, "metadata.name")],
    ),
    "a group without a dot": (
        definition(name="widgets.example", group="example"),
        [(INVALID, "spec.group")],
    ),
    "no scope": (definition(scope=""), [(NOT_SUPPORTED, "spec.scope")]),
    "no versions": (definition(versions=[]), [(REQUIRED, "spec.versions")]),
    "two stored versions": (definition(more_versions=[SECOND]), [(INVALID, "spec.versions")]),
    "no stored version": (definition(version={"storage": False}), [(INVALID, "spec.versions")]),
    "no schema": (definition(version={"schema": {}}), [(REQUIRED, ROOT)]),
    "a root that is no object": (definition({"type": "string"}), [(INVALID, f"{ROOT}.type")]),
    "a field without a type": (
        properties(a={"description": "?"}),
        [(REQUIRED, f"{ROOT}.properties[a].type")],
    ),
    "a field that is either": (properties(a={"x-kubernetes-int-or-string": True}), []),
    "a field of anything": (properties(a={"x-kubernetes-preserve-unknown-fields": True}), []),
    "a reference": (
        properties(a={"type": "object", "$ref": "#/x"}),
        [(FORBIDDEN, f"{ROOT}.properties[a].$ref")],
    ),
    "an array of nothing": (
        properties(a={"type": "array"}),
        [(REQUIRED, f"{ROOT}.properties[a].items")],
    ),
    "a type inside anyOf": (
        properties(a={"type": "string", "anyOf": [{"type": "string"}]}),
        [(FORBIDDEN, f"{ROOT}.properties[a].anyOf[0].type")],
    ),
    "values inside anyOf": (properties(a={"type": "string", "anyOf": [{"pattern": "x"}]}), []),
    "a list map without keys": (
        properties(
            a={"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}
        ),
        [(REQUIRED, f"{ROOT}.properties[a].x-kubernetes-list-map-keys")],
    ),
    "a list map with an optional key": (
        properties(
            a={
                "type": "array",
                "items": {"type": "object", "properties": {"n": {"type": "string"}}},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["n"],
            }
        ),
        [(REQUIRED, f"{ROOT}.properties[a].items.properties[n].default")],
    ),
    "a scale without paths": (
        definition(version={"subresources": {"scale": {"specReplicasPath": ".spec.n"}}}),
        [(REQUIRED, "spec.versions[0].subresources.scale.statusReplicasPath")],
    ),
    "a column of an unknown type": (
        definition(
            version={"additionalPrinterColumns": [{"name": "A", "type": "text", "jsonPath": ".a"}]}
        ),
        [(NOT_SUPPORTED, "spec.versions[0].additionalPrinterColumns[0].type")],
    ),
    "conversion by nobody": (
        definition(conversion={"strategy": "Webhook"}),
        [
            (REQUIRED, "spec.conversion.webhookClientConfig"),  # as Kubernetes names it inside
            (REQUIRED, "spec.conversion.conversionReviewVersions"),
        ],
    ),
}


@pytest.mark.parametrize("sentence", DEFINITIONS)
def test_definitions(sentence: str) -> None:
    body, want = DEFINITIONS[sentence]
    assert found(body) == sorted(want)


def test_shipped_crds_are_valid() -> None:
    for crd in crds.load():
        body = copy.deepcopy(crd)
        defaults.apply_defaults(body)
        assert [str(e) for e in rules.validate(body)] == []


def test_crd_scope_and_stored_versions_are_immutable() -> None:
    old = {**definition(), "status": {"storedVersions": ["v1"]}}
    assert found(definition(scope="Cluster"), old) == [(INVALID, "spec.scope")]
    renamed = definition(version={"name": "v2"})
    assert found(renamed, old) == [(INVALID, "status.storedVersions")]
