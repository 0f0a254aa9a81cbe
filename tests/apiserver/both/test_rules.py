"""CEL rules of custom kinds on hekla's API server and kube-apiserver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tools.waiting import until

from hekla.units.objects import Object
from tests.apiserver.both.conftest import Api

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
Define = Callable[..., str]


def definition(group: str, schema: Object, **version: Any) -> Object:
    return {
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    **version,
                }
            ],
        },
    }


def spec(properties: Object, *rules: Object, **more: Any) -> Object:
    inner = {"type": "object", "properties": properties, "x-kubernetes-validations": list(rules)}
    return {"type": "object", "properties": {"spec": inner}, **more}


INT = {"type": "integer"}
TEXT = {"type": "string", "maxLength": 100}


@pytest.fixture
def define(api: Api, namespace: str, unique: str) -> Iterator[Define]:
    """Install a CRD; return the path of its objects when they are served."""
    made: list[str] = []

    def define(schema: Object, **version: Any) -> str:
        group = f"{unique}.hekla.test"
        api.post(DEFINITIONS, definition(group, schema, **version)).ok()
        made.append(f"{DEFINITIONS}/things.{group}")
        path = f"/apis/{group}/v1/namespaces/{namespace}/things"
        until(lambda: api.get(path).status == 200)
        return path

    yield define
    for path in made:
        api.delete(path)


def thing(path: str, name: str = "a", **content: Any) -> Object:
    group = path.split("/")[2]
    return {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": name}, **content}


def causes(reply: Any) -> list[tuple[str, str, str]]:
    assert reply.status == 422, reply.body
    return [(c["reason"], c["field"], c["message"]) for c in reply.body["details"]["causes"]]


def test_object_that_violates_a_rule_is_refused(api: Api, define: Define) -> None:
    schema = spec({"low": INT, "high": INT}, {"rule": "self.low <= self.high"})
    path = define(schema)
    api.post(path, thing(path, spec={"low": 1, "high": 2})).ok()
    refused = api.post(path, thing(path, "b", spec={"low": 3, "high": 2}))
    want = "Invalid value: failed rule: self.low <= self.high"
    assert causes(refused) == [("FieldValueInvalid", "spec", want)]
    group = path.split("/")[2]
    assert refused.message == f'Thing.{group} "b" is invalid: spec: {want}'


def test_error_has_message_reason_and_path_of_the_rule(api: Api, define: Define) -> None:
    path = define(
        spec(
            {"low": INT, "high": INT},
            {
                "rule": "self.low <= self.high",
                "messageExpression": "'%d is more than %d'.format([self.low, self.high])",
                "reason": "FieldValueForbidden",
                "fieldPath": ".low",
            },
            {"rule": "self.low >= 0", "message": "low may not be negative"},
        )
    )
    refused = api.post(path, thing(path, spec={"low": 3, "high": 2}))
    assert causes(refused) == [("FieldValueForbidden", "spec.low", "Forbidden: 3 is more than 2")]
    refused = api.post(path, thing(path, spec={"low": -1, "high": 2}))
    assert causes(refused)[0][2] == "Invalid value: low may not be negative"


def test_rules_apply_at_every_level(api: Api, define: Define) -> None:
    small = {**INT, "x-kubernetes-validations": [{"rule": "self < 10", "message": "too large"}]}
    path = define(
        spec(
            {
                "list": {"type": "array", "maxItems": 9, "items": small},
                "map": {"type": "object", "maxProperties": 9, "additionalProperties": small},
                "one": small,
            }
        )
    )
    content = {"list": [1, 11], "map": {"k": 12}, "one": 13}
    refused = api.post(path, thing(path, spec=content))
    assert sorted(causes(refused)) == [
        ("FieldValueInvalid", "spec.list[1]", "Invalid value: 11: too large"),
        ("FieldValueInvalid", "spec.map[k]", "Invalid value: 12: too large"),
        ("FieldValueInvalid", "spec.one", "Invalid value: 13: too large"),
    ]


def test_root_rule_can_use_metadata_name(api: Api, define: Define) -> None:
    schema = spec(
        {}, **{"x-kubernetes-validations": [{"rule": "self.metadata.name.startsWith('x')"}]}
    )
    path = define(schema)
    api.post(path, thing(path, "x-1", spec={})).ok()
    refused = api.post(path, thing(path, "y-1", spec={}))
    want = "Invalid value: failed rule: self.metadata.name.startsWith('x')"
    assert causes(refused) == [("FieldValueInvalid", "<nil>", want)]


def test_transition_rule_can_use_old_self(api: Api, define: Define) -> None:
    path = define(spec({"size": INT}, {"rule": "self.size >= oldSelf.size", "message": "shrinks"}))
    api.post(path, thing(path, spec={"size": 2})).ok()
    api.merge(f"{path}/a", {"spec": {"size": 3}}).ok()
    refused = api.merge(f"{path}/a", {"spec": {"size": 1}})
    assert causes(refused) == [("FieldValueInvalid", "spec", "Invalid value: shrinks")]


def test_optional_old_self_has_no_value_on_create(api: Api, define: Define) -> None:
    text = "oldSelf.hasValue() ? self >= oldSelf.value() : self == 1"
    size = {
        **INT,
        "x-kubernetes-validations": [{"rule": text, "optionalOldSelf": True, "message": "no"}],
    }
    path = define(spec({"size": size}))
    assert api.post(path, thing(path, spec={"size": 2})).status == 422
    api.post(path, thing(path, spec={"size": 1})).ok()
    api.merge(f"{path}/a", {"spec": {"size": 2}}).ok()
    assert api.merge(f"{path}/a", {"spec": {"size": 1}}).status == 422


def test_items_of_a_list_map_are_compared_by_their_keys(api: Api, define: Define) -> None:
    item = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": TEXT, "size": INT},
        "x-kubernetes-validations": [{"rule": "self.size >= oldSelf.size", "message": "shrinks"}],
    }
    items = {
        "type": "array",
        "maxItems": 9,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": item,
    }
    path = define(spec({"items": items}))
    one, two = {"name": "one", "size": 1}, {"name": "two", "size": 2}
    api.post(path, thing(path, spec={"items": [one, two]})).ok()
    api.merge(f"{path}/a", {"spec": {"items": [two, one]}}).ok()
    refused = api.merge(f"{path}/a", {"spec": {"items": [one, {**two, "size": 1}]}})
    assert causes(refused) == [("FieldValueInvalid", "spec.items[1]", "Invalid value: shrinks")]


def test_rules_apply_to_status_writes(api: Api, define: Define) -> None:
    status = {
        "type": "object",
        "properties": {"count": INT},
        "x-kubernetes-validations": [{"rule": "self.count >= 0"}],
    }
    schema = {"type": "object", "properties": {"status": status}}
    path = define(schema, subresources={"status": {}})
    api.post(path, thing(path)).ok()
    api.merge(f"{path}/a/status", {"status": {"count": 1}}).ok()
    assert api.merge(f"{path}/a/status", {"status": {"count": -1}}).status == 422


def test_field_names_are_escaped_and_numbers_are_floats(api: Api, define: Define) -> None:
    path = define(
        spec(
            {"a-b": INT, "namespace": INT, "ratio": {"type": "number"}},
            {"rule": "self.a__dash__b == self.__namespace__"},
            {"rule": "self.ratio + 0.5 > 1.0"},
        )
    )
    api.post(path, thing(path, spec={"a-b": 1, "namespace": 1, "ratio": 1})).ok()
    bad = thing(path, "b", spec={"a-b": 1, "namespace": 2, "ratio": 0})
    assert len(causes(api.post(path, bad))) == 2


def test_kubernetes_cel_functions_are_available(api: Api, define: Define) -> None:
    numbers = {"type": "array", "maxItems": 9, "items": INT}
    rules = (
        "quantity(self.size).isGreaterThan(quantity('1Mi'))",
        "self.list.isSorted() && self.list.sum() == 6 && self.list.max() == 3",
        "self.text.find('[0-9]+') == '42'",
        "url(self.url).getHost() == 'example.com:80'",
        "cidr('10.0.0.0/8').containsIP(ip(self.ip))",
        "self.list.indexOf(2) == 1",
        "isURL(self.url) && !isQuantity(self.url)",
    )
    path = define(
        spec(
            {"size": TEXT, "list": numbers, "text": TEXT, "url": TEXT, "ip": TEXT},
            *({"rule": text} for text in rules),
        )
    )
    good = {
        "size": "1Gi",
        "list": [1, 2, 3],
        "text": "answer 42",
        "url": "https://example.com:80/x",
        "ip": "10.2.3.4",
    }
    api.post(path, thing(path, spec=good)).ok()
    bad = {"size": "1k", "list": [4, 2], "text": "7", "url": "https://x/", "ip": "127.0.0.1"}
    assert len(causes(api.post(path, thing(path, "b", spec=bad)))) == 5


BAD: dict[str, tuple[str, str]] = {
    "a syntax error": ("self.size +", "Syntax error"),
    "a field that is not there": ("self.nope == 1", "undefined field 'nope'"),
    "an unknown function": ("self.size.frobnicate()", "undeclared reference to 'frobnicate'"),
    "no claim": ("'x'", "must evaluate to"),
}


@pytest.mark.parametrize("case", BAD)
def test_crd_with_an_invalid_rule_is_refused(api: Api, unique: str, case: str) -> None:
    text, want = BAD[case]
    body = definition(f"{unique}.hekla.test", spec({"size": INT}, {"rule": text}))
    (cause,) = causes(api.post(DEFINITIONS, body))
    at = "spec.validation" if "validation." in cause[1] else "spec.versions[0].schema"
    assert cause[1] == (f"{at}.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule")
    assert want.lower() in cause[2].lower()


def test_update_that_does_not_change_an_invalid_value_passes(api: Api, define: Define) -> None:
    path = define(spec({"size": INT, "note": TEXT}))
    api.post(path, thing(path, spec={"size": 11, "note": "old"})).ok()
    group = path.split("/")[2]
    small = {**INT, "x-kubernetes-validations": [{"rule": "self < 10", "message": "too large"}]}
    found = api.get(f"{DEFINITIONS}/things.{group}").ok()
    properties = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    properties["spec"]["properties"]["size"] = small
    api.put(f"{DEFINITIONS}/things.{group}", found).ok()
    until(lambda: api.post(f"{path}?dryRun=All", thing(path, "b", spec={"size": 12})).status == 422)
    api.merge(f"{path}/a", {"spec": {"note": "new"}}).ok()
    assert api.merge(f"{path}/a", {"spec": {"size": 12}}).status == 422
