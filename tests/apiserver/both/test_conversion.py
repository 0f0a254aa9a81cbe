"""Conversion webhooks of custom kinds, on hekla's API server and kube-apiserver.

The kind stores `spec.hostPort` in v1 and serves `spec.host` and `spec.port` in v2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tools.waiting import until

from hekla.units.objects import Object
from tests.apiserver.both.conftest import Api, Hook
from tests.apiserver.both.test_rules import DEFINITIONS

TEXT = {"type": "string"}


def convert(request: Object) -> Object:
    made = []
    for obj in request["objects"]:
        spec = dict(obj["spec"])
        if request["desiredAPIVersion"].endswith("/v2"):
            host, _, port = spec.pop("hostPort", ":").partition(":")
            spec |= {"host": host, "port": port}
        else:
            spec["hostPort"] = f"{spec.pop('host', '')}:{spec.pop('port', '')}"
        made.append({**obj, "apiVersion": request["desiredAPIVersion"], "spec": spec})
    return {"convertedObjects": made, "result": {"status": "Success"}}


def version(name: str, storage: bool, *fields: str, **more: Any) -> Object:
    spec = {"type": "object", "properties": {field: TEXT for field in fields}}
    schema = {"type": "object", "properties": {"spec": spec}}
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        **more,
    }


@dataclass
class Kind:
    api: Api
    group: str
    namespace: str

    def path(self, version: str, name: str = "") -> str:
        path = f"/apis/{self.group}/{version}/namespaces/{self.namespace}/doors"
        return f"{path}/{name}" if name else path

    @property
    def definition(self) -> str:
        return f"{DEFINITIONS}/doors.{self.group}"

    def door(self, version: str, name: str, **spec: str) -> Object:
        return {
            "apiVersion": f"{self.group}/{version}",
            "kind": "Door",
            "metadata": {"name": name},
            "spec": spec,
        }


@pytest.fixture
def kind(api: Api, hook: Hook, namespace: str, unique: str) -> Iterator[Kind]:
    group = f"{unique}.hekla.test"
    hook.on("/convert", convert)
    body = {
        "metadata": {"name": f"doors.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "doors", "singular": "door", "kind": "Door"},
            "versions": [
                version("v1", True, "hostPort"),
                version("v2", False, "host", "port"),
            ],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": hook.client_config("/convert"),
                    "conversionReviewVersions": ["v1"],
                },
            },
        },
    }
    api.post(DEFINITIONS, body).ok()
    made = Kind(api, group, namespace)
    until(lambda: all(api.get(made.path(name)).status == 200 for name in ("v1", "v2")))
    yield made
    hook.on("/convert", convert)
    for name in ("v1",):
        api.delete(made.path(name))
    api.delete(made.definition)


def test_object_written_in_one_version_is_read_in_another(api: Api, kind: Kind) -> None:
    api.post(kind.path("v1"), kind.door("v1", "a", hostPort="x:1")).ok()
    made = api.post(kind.path("v2"), kind.door("v2", "b", host="y", port="2")).ok()
    assert made["apiVersion"] == f"{kind.group}/v2"
    assert made["spec"] == {"host": "y", "port": "2"}
    assert api.get(kind.path("v1", "b")).ok()["spec"] == {"hostPort": "y:2"}
    found = api.get(kind.path("v2", "a")).ok()
    assert (found["apiVersion"], found["spec"]) == (f"{kind.group}/v2", {"host": "x", "port": "1"})
    assert api.get(kind.path("v1", "a")).ok()["metadata"]["uid"] == found["metadata"]["uid"]


def test_a_list_is_converted_in_one_call(api: Api, hook: Hook, kind: Kind, is_real: bool) -> None:
    for number in range(3):
        api.post(kind.path("v1"), kind.door("v1", f"a{number}", hostPort=f"x:{number}")).ok()
    hook.calls.clear()
    items = api.get(kind.path("v2")).ok()["items"]
    assert [item["spec"]["port"] for item in items] == ["0", "1", "2"]
    assert {item["apiVersion"] for item in items} == {f"{kind.group}/v2"}
    if not is_real:  # kube-apiserver also converts for the watch cache of each version
        assert [len(call["objects"]) for call in hook.seen("/convert")] == [3]


def test_updates_and_patches_apply_in_the_requested_version(api: Api, kind: Kind) -> None:
    api.post(kind.path("v1"), kind.door("v1", "a", hostPort="x:1")).ok()
    patched = api.merge(kind.path("v2", "a"), {"spec": {"port": "9"}}).ok()
    assert patched["spec"] == {"host": "x", "port": "9"}
    assert patched["metadata"]["generation"] == 2
    assert api.get(kind.path("v1", "a")).ok()["spec"] == {"hostPort": "x:9"}
    patched["spec"]["host"] = "z"
    assert api.put(kind.path("v2", "a"), patched).ok()["spec"] == {"host": "z", "port": "9"}
    again = api.merge(kind.path("v2", "a"), {"spec": {"port": "9"}}).ok()
    assert again["spec"] == {"host": "z", "port": "9"}
    assert api.delete(kind.path("v2", "a")).status == 200
    assert api.get(kind.path("v1", "a")).status == 404


def test_watch_sends_objects_in_the_requested_version(api: Api, kind: Kind) -> None:
    start = api.get(kind.path("v2")).ok()["metadata"]["resourceVersion"]
    api.post(kind.path("v1"), kind.door("v1", "a", hostPort="x:1")).ok()
    api.merge(kind.path("v1", "a"), {"spec": {"hostPort": "x:2"}}).ok()
    api.delete(kind.path("v1", "a")).ok()
    query = f"?watch=true&resourceVersion={start}&timeoutSeconds=120"
    lines = api.lines(kind.path("v2") + query, 3)
    told = [(line["type"], line["object"]["spec"]["port"]) for line in lines]
    assert told == [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]
    assert {line["object"]["apiVersion"] for line in lines} == {f"{kind.group}/v2"}


def test_object_is_validated_by_the_schema_of_the_requested_version(
    api: Api, hook: Hook, kind: Kind
) -> None:
    api.post(kind.path("v1"), kind.door("v1", "a", hostPort="x:1")).ok()

    def odd(request: Object) -> Object:
        answer = convert(request)
        for obj in answer["convertedObjects"]:
            obj["spec"]["nonsense"] = "1"
        return answer

    hook.on("/convert", odd)
    assert api.get(kind.path("v2", "a")).ok()["spec"] == {"host": "x", "port": "1"}


BROKEN: dict[str, tuple[Any, str]] = {
    "a failure": (
        lambda r: {"result": {"status": "Failure", "message": "no idea how"}},
        "failed: no idea how",
    ),
    "too few": (
        lambda r: {"convertedObjects": [], "result": {"status": "Success"}},
        "returned 0 objects, expected 1",
    ),
    "another name": (
        lambda r: {
            "convertedObjects": [
                {**o, "metadata": {**o["metadata"], "name": "other"}}
                for o in convert(r)["convertedObjects"]
            ],
            "result": {"status": "Success"},
        },
        "returned invalid object: must have the same name: a != other",
    ),
    "no answer": (lambda r: {"http": 500}, "failed"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_failed_conversion_is_reported(api: Api, hook: Hook, kind: Kind, case: str) -> None:
    api.post(kind.path("v1"), kind.door("v1", "a", hostPort="x:1")).ok()
    answer, want = BROKEN[case]
    hook.on("/convert", answer)
    refused = api.get(kind.path("v2", "a"))
    assert refused.status == 500
    assert refused.message.startswith(f"conversion webhook for {kind.group}/v1, Kind=Door ")
    assert want in refused.message
    api.get(kind.path("v1", "a")).ok()


def test_objects_stay_readable_after_the_storage_version_changed(api: Api, kind: Kind) -> None:
    api.post(kind.path("v1"), kind.door("v1", "a", hostPort="x:1")).ok()
    found = api.get(kind.definition).ok()
    for one in found["spec"]["versions"]:
        one["storage"] = one["name"] == "v2"
    changed = api.put(kind.definition, found).ok()
    assert changed["status"]["storedVersions"] == ["v1", "v2"]
    until(lambda: api.post(kind.path("v2"), kind.door("v2", "b", host="y", port="2")).status == 201)
    for name, want in (("a", "x:1"), ("b", "y:2")):
        assert api.get(kind.path("v1", name)).ok()["spec"] == {"hostPort": want}
    assert [i["spec"]["host"] for i in api.get(kind.path("v2")).ok()["items"]] == ["x", "y"]
    api.merge(kind.path("v1", "a"), {"spec": {"hostPort": "x:3"}}).ok()
    assert api.get(kind.path("v2", "a")).ok()["spec"] == {"host": "x", "port": "3"}


def test_webhooks_get_the_version_of_their_rules(
    api: Api, hook: Hook, kind: Kind, configure: Any
) -> None:
    rules = [
        {
            "operations": ["CREATE"],
            "apiGroups": [kind.group],
            "apiVersions": ["v1"],
            "resources": ["doors"],
        }
    ]
    hook.on("/old", lambda _: {"allowed": True})
    hook.on("/exact", lambda _: {"allowed": True})
    configure(
        "validating",
        ("/old", {"rules": rules}),
        ("/exact", {"rules": rules, "matchPolicy": "Exact"}),
    )
    api.post(kind.path("v2"), kind.door("v2", "a", host="x", port="1")).ok()
    (request,) = hook.seen("/old")
    assert request["kind"]["version"] == request["resource"]["version"] == "v1"
    assert request["requestKind"]["version"] == request["requestResource"]["version"] == "v2"
    assert request["object"]["spec"] == {"hostPort": "x:1"}
    assert not hook.seen("/exact")


def test_crd_with_webhook_conversion_needs_a_client_config(api: Api, unique: str) -> None:
    group = f"{unique}.hekla.test"
    body = {
        "metadata": {"name": f"doors.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "doors", "kind": "Door"},
            "versions": [version("v1", True, "x")],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": {"url": "http://x/"},
                    "conversionReviewVersions": ["v1"],
                },
            },
        },
    }
    refused = api.post(DEFINITIONS, body)
    assert refused.status == 422
    (cause,) = refused.body["details"]["causes"]
    assert cause["field"] == "spec.conversion.webhookClientConfig.url"
