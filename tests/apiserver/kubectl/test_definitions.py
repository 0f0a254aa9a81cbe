"""CustomResourceDefinitions installed at run time."""

from __future__ import annotations

from typing import Any

from tests.apiserver.kubectl.conftest import Kubectl
from tests.apiserver.kubectl.manifests import custom, definition

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
                "ports": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "port": {"type": "integer"}},
                    },
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "phase": {"type": "string"},
                "since": {"type": "string", "format": "date-time"},
                "conditions": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
                    },
                },
            },
        },
    },
}
COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {
        "name": "Ready",
        "type": "string",
        "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
    },
    {"name": "Since", "type": "date", "jsonPath": ".status.since"},
    {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1},
]


def install(kubectl: Kubectl, unique: str, **more: Any) -> str:
    """An established CRD; returns its plural."""
    plural = f"{unique}widgets"
    version = {"subresources": {"status": {}}, "additionalPrinterColumns": COLUMNS, **more}
    kubectl.create(definition(plural, SCHEMA, **version))
    name = f"crd/{plural}.{plural}.example.com"
    said = kubectl("wait", name, "--for=condition=Established", "--timeout=120s")
    assert said.endswith("condition met\n")
    return plural


def test_a_new_kind_is_served_at_once_with_its_columns(kubectl: Kubectl, unique: str) -> None:
    plural = install(kubectl, unique, shortNames=[f"{unique}w"])
    kubectl.create(custom(plural, "a", spec={"size": 3}))
    status = (
        '{"status":{"since":"2026-01-01T00:00:00Z","conditions":['
        '{"type":"Other","status":"x"},{"type":"Ready","status":"True"}]}}'
    )
    kubectl("patch", plural, "a", "--subresource=status", "--type=merge", "-p", status)
    (row,) = kubectl.rows("get", f"{unique}w", "-o", "wide")
    assert list(row) == ["NAME", "SIZE", "READY", "SINCE", "COLOUR"]
    assert (row["NAME"], row["SIZE"], row["READY"], row["COLOUR"]) == ("a", "3", "True", "red")
    assert row["SINCE"][-1] in "smhdy"


def test_defaults_are_filled_in_and_unknown_fields_pruned(kubectl: Kubectl, unique: str) -> None:
    plural = install(kubectl, unique)
    manifest = custom(plural, "a", spec={"size": 1, "free": {"any": [1]}, "more": 1})
    kubectl("create", "-f", "-", "--validate=false", input=manifest)
    spec = kubectl.json("get", plural, "a")["spec"]
    assert spec == {"size": 1, "colour": "red", "free": {"any": [1]}}


def test_schema_violation_names_the_field(kubectl: Kubectl, unique: str) -> None:
    plural = install(kubectl, unique)
    bad = {"size": 12, "colour": "green", "name": "TOO-LONG", "ports": [{"name": "a"}] * 2}
    said = kubectl.fails("create", "-f", "-", input=custom(plural, "a", spec=bad))
    assert f'The {plural.removesuffix("s").title()} "a" is invalid' in said
    assert "spec.size: Invalid value: 12" in said
    assert 'spec.colour: Unsupported value: "green": supported values: "red", "blue"' in said
    assert 'spec.name: Invalid value: "TOO-LONG"' in said or "spec.name: Too long" in said
    said = kubectl.fails("create", "-f", "-", input=custom(plural, "a", spec={}))
    assert "spec.size: Required value" in said
    said = kubectl.fails("create", "-f", "-", input=custom(plural, "a"))
    assert "spec: Required value" in said
    repeated = {"size": 1, "ports": [{"name": "a"}, {"name": "a"}]}
    said = kubectl.fails("create", "-f", "-", input=custom(plural, "a", spec=repeated))
    assert "spec.ports[1]: Duplicate value" in said


def test_status_and_spec_are_written_through_separate_endpoints(
    kubectl: Kubectl, unique: str
) -> None:
    plural = install(kubectl, unique)
    kubectl.create(custom(plural, "a", spec={"size": 1}, status={"phase": "Forged"}))
    assert "status" not in kubectl.json("get", plural, "a")
    both = '{"spec":{"size":9},"status":{"phase":"Done"}}'
    kubectl("patch", plural, "a", "--type=merge", "-p", both)
    found = kubectl.json("get", plural, "a")
    assert found["spec"]["size"] == 9
    assert found["metadata"]["generation"] == 2
    assert "status" not in found
    kubectl("patch", plural, "a", "--type=merge", "--subresource=status", "-p", both)
    found = kubectl.json("get", plural, "a")
    assert found["status"] == {"phase": "Done"}
    assert found["metadata"]["generation"] == 2


def test_lists_with_keys_are_merged_by_server_side_apply(kubectl: Kubectl, unique: str) -> None:
    plural = install(kubectl, unique)
    for manager, name in (("alice", "http"), ("bob", "ssh")):
        manifest = custom(plural, "a", spec={"size": 1, "ports": [{"name": name, "port": 1}]})
        args = ("--server-side", f"--field-manager={manager}")
        kubectl("apply", "-f", "-", *args, input=manifest)
    ports = kubectl.json("get", plural, "a")["spec"]["ports"]
    assert sorted(port["name"] for port in ports) == ["http", "ssh"]


def test_explain_shows_the_new_kind(kubectl: Kubectl, unique: str) -> None:
    plural = install(kubectl, unique)
    text = kubectl("explain", f"{plural}.spec")
    assert "size\t<integer> -required-" in text
    assert "enum: red, blue" in text


def test_deleting_a_definition_deletes_its_instances(kubectl: Kubectl, unique: str) -> None:
    plural = install(kubectl, unique)
    kubectl.create(custom(plural, "a", spec={"size": 1}), custom(plural, "b", spec={"size": 2}))
    kubectl("delete", "crd", f"{plural}.{plural}.example.com")
    assert "could not find the requested resource" in kubectl.fails("get", plural)
    kubectl.create(definition(plural, SCHEMA))
    done = kubectl.run("get", plural)
    assert "No resources found" in done.stderr


def test_a_cluster_wide_kind(kubectl: Kubectl, unique: str) -> None:
    plural = install(kubectl, unique, scope="Cluster")
    kubectl.create(custom(plural, "a", spec={"size": 1}))
    assert "namespace" not in kubectl.json("get", plural, "a")["metadata"]


def test_second_version_serves_the_same_objects(kubectl: Kubectl, unique: str) -> None:
    plural = f"{unique}widgets"
    made = definition(plural)
    versions = made["spec"]["versions"]
    versions.append({**versions[0], "name": "v2", "storage": False})
    kubectl.create(made)
    kubectl.create(custom(plural, "a", spec={"x": 1}))
    group = f"{plural}.example.com"
    assert kubectl.json("get", f"{plural}.v1.{group}", "a")["apiVersion"] == f"{group}/v1"
    assert kubectl.json("get", f"{plural}.v2.{group}", "a")["apiVersion"] == f"{group}/v2"


def test_invalid_crd_is_refused(kubectl: Kubectl, unique: str) -> None:
    wrong = definition(f"{unique}widgets")
    wrong["metadata"]["name"] = "something-else"
    said = kubectl.fails("create", "-f", "-", input=wrong)
    assert "metadata.name" in said
    schemaless = definition(f"{unique}widgets")
    del schemaless["spec"]["versions"][0]["schema"]
    said = kubectl.fails("create", "-f", "-", input=schemaless)
    assert "schema" in said
