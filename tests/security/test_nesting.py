"""Deep requests: refused at the door, or walked to the end; never a crash or an internal error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tools.waiting import until

from hekla.units.documents import MAX_DEPTH
from hekla.units.objects import Object
from tests.apiserver.both.conftest import Api

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
YAML = "application/yaml"
APPLY = "application/apply-patch+yaml"
NEAR_LIMIT = 190
embedded_only = pytest.mark.parametrize("server", ["embedded"], indirect=True)

DEEP = {
    "60,000 brackets of YAML": (b"[" * 60_000, YAML),
    "a million block lists of YAML": (b"- " * 1_000_000, YAML),
    "explicit keys of YAML": (b"? " * 60_000, YAML),
    "3 MB of brackets of JSON": (b"[" * 3_000_000, "application/json"),
    "closed brackets of JSON": (b"[" * 100_000 + b"]" * 100_000, "application/json"),
    "braces of JSON sent as YAML": (b'{"a":' * 200_000, YAML),
}


def maps(depth: int, inner: Any = "x") -> Any:
    for _ in range(depth):
        inner = {"a": inner}
    return inner


def lists(depth: int, inner: Any = "x") -> Any:
    for _ in range(depth):
        inner = [inner]
    return inner


def definition(name: str, schema: Object) -> Object:
    names = {"plural": f"{name}s", "singular": name, "kind": name.title()}
    names["listKind"] = f"{name.title()}List"
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}s.deep.example.com"},
        "spec": {
            "group": "deep.example.com",
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        },
    }


def install(api: Api, name: str, schema: Object, namespace: str) -> str:
    api.post(CRDS, definition(name, schema)).ok()
    path = f"/apis/deep.example.com/v1/namespaces/{namespace}/{name}s"
    until(lambda: api.get(path).status == 200)
    return path


@pytest.mark.parametrize(("body", "media"), DEEP.values(), ids=DEEP)
def test_deep_body_of_a_tenant_is_refused_and_the_server_lives(
    tenant: Api, body: bytes, media: str
) -> None:
    assert tenant("POST", REVIEWS, body, media).status == 400
    assert tenant.get("/api").status == 200


@embedded_only  # kube-apiserver reads them: Go needs less time for each
def test_200_000_flat_keys_of_yaml_are_refused(tenant: Api) -> None:
    body = "\n".join(f"k{number}: 1" for number in range(200_000)).encode()
    reply = tenant("POST", REVIEWS, body, YAML)
    assert reply.status == 400
    assert "more than 50000 values" in reply.message


def test_config_map_of_a_megabyte_is_accepted_as_yaml(tenant: Api, namespace: str) -> None:
    data = "\n".join(f"  key-{number}: {'v' * 80}" for number in range(10_000))
    body = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: large}}\ndata:\n{data}\n"
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    assert tenant("POST", path, body.encode(), YAML).status == 201


@pytest.mark.parametrize("nest", [maps, lists], ids=["maps", "lists"])
def test_object_near_the_depth_limit_passes_every_walk(
    api: Api, namespace: str, unique: str, nest: Any, is_real: bool
) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    name = f"free{unique}"
    path = install(api, name, schema, namespace)
    obj = {
        "apiVersion": "deep.example.com/v1",
        "kind": name.title(),
        "metadata": {"name": "a"},
        "spec": nest(NEAR_LIMIT),
    }
    api.post(f"{path}?fieldValidation=Strict", obj).ok()
    api.merge(f"{path}/a", {"spec2": nest(NEAR_LIMIT)}).ok()
    add = [{"op": "add", "path": "/spec3", "value": nest(NEAR_LIMIT)}]
    test = [{"op": "test", "path": "/spec3", "value": nest(NEAR_LIMIT)}]
    for operations in (add, test):
        api("PATCH", f"{path}/a", operations, "application/json-patch+json").ok()
    applied = {**obj, "spec4": nest(NEAR_LIMIT)}
    for intent in (applied, {**applied, "spec5": nest(NEAR_LIMIT)}, obj):
        api("PATCH", f"{path}/a?fieldManager=me&force=true", intent, APPLY).ok()
    live = api.get(f"{path}/a").ok()
    api.put(f"{path}/a", {**live, "spec6": nest(NEAR_LIMIT)}).ok()
    if not is_real:
        deeper = {**obj, "spec": nest(MAX_DEPTH)}
        reply = api("PATCH", f"{path}/a?fieldManager=me", deeper, APPLY)
        assert (reply.status, "nested deeper than 200 levels" in reply.message) == (400, True)
        nested = [{"op": "add", "path": "/spec3" + "/a" * NEAR_LIMIT, "value": maps(100)}]
        if nest is maps:
            reply = api("PATCH", f"{path}/a", nested, "application/json-patch+json")
            assert (reply.status, "nested deeper" in reply.message) == (422, True)
    api.delete(f"{CRDS}/{name}s.deep.example.com").ok()


def test_deep_schema_is_served_and_its_objects_are_walked(
    api: Api, namespace: str, unique: str
) -> None:
    depth = 90
    schema: Object = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    name = f"typed{unique}"
    path = install(api, name, schema, namespace)
    obj = {"apiVersion": "deep.example.com/v1", "kind": name.title(), "metadata": {"name": "a"}}
    obj |= maps(depth)
    api.post(f"{path}?fieldValidation=Strict", obj).ok()
    api("PATCH", f"{path}/b?fieldManager=me", {**obj, "metadata": {"name": "b"}}, APPLY).ok()
    wrong = api.post(path, {**obj, "metadata": {"name": "c"}, **maps(depth, 3)})
    assert wrong.status == 422
    assert api.get("/openapi/v3/apis/deep.example.com/v1").status == 200
    api.delete(f"{CRDS}/{name}s.deep.example.com").ok()


def test_deep_managed_fields_do_no_harm(tenant: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    entry = {
        "manager": "me",
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": json.loads('{"f:data":' * NEAR_LIMIT + "{}" + "}" * NEAR_LIMIT),
    }
    body = {"metadata": {"name": "deep", "managedFields": [entry]}, "data": {"a": "b"}}
    assert tenant.post(path, body).status in (201, 400)
    intent = {**body, "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "deep"}}
    assert tenant("PATCH", f"{path}/deep?fieldManager=other&force=true", intent, APPLY).status < 300


EXPRESSIONS = {
    "parentheses": "(" * 5_000 + "true" + ")" * 5_000,
    "negations": "!" * 10_000 + "true",
    "lists": "[" * 5_000 + "]" * 5_000 + " == []",
    "conditions": "true ? " * 1_000 + "true" + " : false" * 1_000,
    "fields": "self" + ".a" * 5_000 + " == 1",
}


@pytest.mark.parametrize("rule", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_deep_cel_expression_is_refused_or_evaluated(api: Api, unique: str, rule: str) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": rule}],
    }
    reply = api.post(f"{CRDS}?dryRun=All", definition(f"cel{unique}", schema))
    assert reply.status in (201, 422), reply.body
    assert api.get("/api").status == 200
