"""Rules of metadata, and the format of errors."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.api import kinds, rules
from tests.api.rule_bodies import (
    FORBIDDEN,
    INVALID,
    PORT,
    RBAC,
    REQUIRED,
    TOO_LONG,
    config_map,
    found,
    obj,
    service,
    volume,
)

METADATA = {
    "a subdomain for a name": (config_map("web.v1-2"), []),
    "upper case in a name": (config_map("Web"), [(INVALID, "metadata.name")]),
    "a name that is too long": (config_map("a" * 254), [(INVALID, "metadata.name")]),
    "no name at all": (config_map(""), [(REQUIRED, "metadata.name")]),
    "a generated name": (config_map("", generateName="web-"), []),
    "a bad prefix": (config_map("", generateName="Web-"), [(INVALID, "metadata.generateName")]),
    "a namespace with a dot": (obj("v1", "Namespace", "a.b"), [(INVALID, "metadata.name")]),
    "a service with a dot": (
        obj("v1", "Service", "a.b", spec={"clusterIP": "None"}),
        [(INVALID, "metadata.name")],
    ),
    "a role with colons": (obj(RBAC, "ClusterRole", "system:Node"), []),
    "a role with a slash": (obj(RBAC, "Role", "a/b"), [(INVALID, "metadata.name")]),
    "a custom resource": (obj("example.com/v1", "Widget", "A"), [(INVALID, "metadata.name")]),
    "good labels": (config_map(labels={"app.kubernetes.io/name": "x", "empty": ""}), []),
    "a label value with spaces": (config_map(labels={"a": "b c"}), [(INVALID, "metadata.labels")]),
    "a label that is a number": (config_map(labels={"a": 1}), [(INVALID, "metadata.labels[a]")]),
    "an annotation key with spaces": (
        config_map(annotations={"a b": "c"}),
        [(INVALID, "metadata.annotations")],
    ),
    "annotations of any text": (config_map(annotations={"a": "any text {}!\n" * 100}), []),
    "annotation keys in capitals": (config_map(annotations={"Example.COM/Key": ""}), []),
    "annotations beyond 256 kB": (
        config_map(annotations={"a": "x" * 262_144}),
        [(TOO_LONG, "metadata.annotations")],
    ),
    "an owner without a uid": (
        config_map(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "p"}]),
        [(INVALID, "metadata.ownerReferences.uid")],
    ),
    "two controllers": (
        config_map(
            ownerReferences=[
                {"apiVersion": "v1", "kind": "Pod", "name": n, "uid": n, "controller": True}
                for n in "ab"
            ]
        ),
        [(INVALID, "metadata.ownerReferences")],
    ),
    "a finalizer of a custom resource without a domain": (
        obj("example.com/v1", "Widget", meta={"finalizers": ["mine"]}),
        [],
    ),
    "a finalizer without a domain": (
        config_map(finalizers=["mine", "orphan"]),
        [(INVALID, "metadata.finalizers[0]")],
    ),
    "a finalizer with spaces": (
        config_map(finalizers=["not ok"]),
        [(INVALID, "metadata.finalizers[0]")],
    ),
}


@pytest.mark.parametrize("sentence", METADATA)
def test_metadata(sentence: str) -> None:
    body, want = METADATA[sentence]
    assert found(body) == want


def test_a_name_cannot_be_changed() -> None:
    assert found(config_map("b"), config_map("a")) == [(INVALID, "metadata.name")]


def test_finalizers_can_be_removed_but_not_added_during_deletion() -> None:
    old = config_map(finalizers=["a.b/c"], deletionTimestamp="2026-01-01T00:00:00Z")
    assert found(config_map(finalizers=["a.b/c"]), old) == []
    new = config_map(finalizers=["a.b/c", "x.y/z"])
    assert found(new, old) == [(FORBIDDEN, "metadata.finalizers")]


# --- the form of errors -----------------------------------------------------------------------

BODIES = {
    'metadata.name: Invalid value: "A": must be a DNS subdomain': config_map("A"),
    "spec.ports: Required value: only headless services": service(),
    'spec.type: Unsupported value: "Best": supported values: "ClusterIP", ': service(
        type="Best", ports=[PORT]
    ),
    'spec.ports[1].name: Duplicate value: "a"': service(
        ports=[{"name": "a", "port": 1}, {"name": "a", "port": 2}]
    ),
    "spec.nfs: Forbidden: may not specify more than 1 volume type": volume(nfs={"server": "s"}),
    "metadata.annotations: Too long: may not be more than 262144 bytes": config_map(
        annotations={"a": "x" * 262_144}
    ),
    "spec.hard[pods]: Invalid value: -1: must be": obj(
        "v1", "ResourceQuota", spec={"hard": {"pods": -1}}
    ),
}


@pytest.mark.parametrize("want", BODIES)
def test_errors_have_kubernetes_format(want: str) -> None:
    [error] = rules.validate(BODIES[want])
    assert str(error).startswith(want)


def test_causes_are_those_of_a_status() -> None:
    assert rules.causes(rules.validate(config_map(""))) == [
        {
            "reason": "FieldValueRequired",
            "message": "Required value: name or generateName is required",
            "field": "metadata.name",
        }
    ]


def test_a_summary_lists_all_errors_and_a_single_one_without_brackets() -> None:
    one = rules.validate(service())
    two = rules.validate(service(type="Best"))
    assert rules.summary("Service", "a", one).startswith('Service "a" is invalid: spec.ports: ')
    assert rules.summary("Service", "a", two).startswith('Service "a" is invalid: [spec.type: ')


def test_long_invalid_value_is_truncated() -> None:
    [error] = rules.validate(config_map("x" * 10_000))
    assert len(str(error)) < 500


def test_second_registration_of_rules_is_rejected() -> None:
    with pytest.raises(ValueError, match="v1 Pod already has rules"):
        rules.register([("v1", "Pod", lambda obj, old: iter(()))])


@pytest.mark.parametrize("kind", kinds.BUILTIN, ids=lambda k: f"{k.api_version}-{k.kind}")
def test_empty_object_of_any_kind_is_validated_without_error(kind: Any) -> None:
    empty = obj(kind.api_version, kind.kind)
    assert all(str(e) for e in rules.validate(empty))
    assert all(str(e) for e in rules.validate(empty, empty))
