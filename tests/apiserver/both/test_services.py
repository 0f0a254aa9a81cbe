"""Cluster IPs of Services on hekla's API server and kube-apiserver."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from hekla.units.objects import Object
from tests.apiserver.both.conftest import Api

FIELDS = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
SELECTOR = {"selector": {"a": "b"}}


@pytest.fixture
def root(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/services"


def service(name: str, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


def addresses(obj: Object) -> list[Any]:
    return [obj["spec"].get(name) for name in FIELDS]


def test_each_service_gets_its_own_address(api: Api, root: str) -> None:
    made = [api.post(root, service(f"s{n}")).ok() for n in range(5)]
    found = [obj["spec"]["clusterIP"] for obj in made]
    assert len(set(found)) == 5
    for obj, address in zip(made, found, strict=True):
        assert ipaddress.ip_address(address) in ipaddress.ip_network("10.96.0.0/16")
        assert addresses(obj) == [address, [address], ["IPv4"], "SingleStack"]


def test_an_address_is_free_again_after_deletion(api: Api, root: str) -> None:
    taken = api.post(root, service("one")).ok()["spec"]["clusterIP"]
    reply = api.post(root, service("two", clusterIP=taken))
    assert reply.status == 422
    assert [c["field"] for c in reply.body["details"]["causes"]] == ["spec.clusterIPs"]
    assert taken in reply.message
    api.delete(f"{root}/one").ok()
    assert api.post(root, service("two", clusterIP=taken)).ok()["spec"]["clusterIP"] == taken


def test_a_refused_create_does_not_keep_its_address_from_itself(api: Api, root: str) -> None:
    taken = api.post(root, service("one")).ok()["spec"]["clusterIP"]
    api.delete(f"{root}/one").ok()
    bad = service("two", clusterIP=taken, sessionAffinity="Sometimes")
    assert api.post(root, bad).status == 422
    assert api.post(root, service("two", clusterIP=taken)).ok()["spec"]["clusterIP"] == taken


def test_a_dry_run_takes_no_address(api: Api, root: str) -> None:
    free = api.post(root, service("one")).ok()["spec"]["clusterIP"]
    api.delete(f"{root}/one").ok()
    api.post(f"{root}?dryRun=All", service("dry", clusterIP=free)).ok()
    assert api.post(root, service("wet", clusterIP=free)).ok()["spec"]["clusterIP"] == free


KEPT: dict[str, tuple[Object, list[Any]]] = {
    "headless": (
        {"clusterIP": "None", **SELECTOR},
        ["None", ["None"], ["IPv4"], "SingleStack"],
    ),
    "headless without selector": (
        {"clusterIP": "None"},
        ["None", ["None"], ["IPv4", "IPv6"], "RequireDualStack"],
    ),
    "headless of one family": (
        {"clusterIP": "None", "ipFamilyPolicy": "SingleStack"},
        ["None", ["None"], ["IPv4"], "SingleStack"],
    ),
    "external name": ({"type": "ExternalName", "externalName": "a.b"}, [None] * 4),
}


@pytest.mark.parametrize("case", KEPT)
def test_some_services_have_no_address(api: Api, root: str, case: str) -> None:
    spec, want = KEPT[case]
    assert addresses(api.post(f"{root}?dryRun=All", service("s", **spec)).ok()) == want


REFUSED: dict[str, tuple[Object, str, str]] = {
    "out of range": ({"clusterIP": "1.2.3.4"}, "FieldValueInvalid", "spec.clusterIPs"),
    "no address": ({"clusterIP": "x"}, "FieldValueInvalid", "spec.clusterIPs[0]"),
    "IPv6": ({"ipFamilies": ["IPv6"]}, "FieldValueInvalid", "spec.ipFamilies[0]"),
    "two families": (
        {"ipFamilies": ["IPv4", "IPv6"]}, "FieldValueInvalid", "spec.ipFamilyPolicy",
    ),
    "both required": (
        {"ipFamilyPolicy": "RequireDualStack"}, "FieldValueInvalid", "spec.ipFamilyPolicy",
    ),
    "unknown policy": (
        {"ipFamilyPolicy": "X"}, "FieldValueNotSupported", "spec.ipFamilyPolicy",
    ),
    "unknown family": ({"ipFamilies": ["X"]}, "FieldValueNotSupported", "spec.ipFamilies[0]"),
    "a list alone": ({"clusterIPs": ["None"], **SELECTOR}, "FieldValueInvalid", "spec.clusterIPs"),
    "another list": (
        {"clusterIP": "10.96.9.1", "clusterIPs": ["10.96.9.2"]}, "FieldValueInvalid",
        "spec.clusterIPs",
    ),
    "a headless node port": (
        {"type": "NodePort", "clusterIP": "None"}, "FieldValueInvalid", "spec.clusterIPs[0]",
    ),
    "an external name with address": (
        {"type": "ExternalName", "externalName": "a.b", "clusterIP": "10.96.9.1"},
        "FieldValueForbidden", "spec.clusterIPs",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_an_impossible_address_is_refused(api: Api, root: str, case: str) -> None:
    spec, reason, field = REFUSED[case]
    reply = api.post(f"{root}?dryRun=All", service("s", **spec))
    assert reply.status == 422, reply.body
    assert [(c["reason"], c["field"]) for c in reply.body["details"]["causes"]] == [(reason, field)]


def test_an_update_keeps_the_address(api: Api, root: str) -> None:
    made = api.post(root, service("s")).ok()
    cleared = api.merge(f"{root}/s", {"spec": {"clusterIP": None, "clusterIPs": None}}).ok()
    assert addresses(cleared) == addresses(made)
    body = service("s")
    body["metadata"]["resourceVersion"] = cleared["metadata"]["resourceVersion"]
    assert addresses(api.put(f"{root}/s", body).ok()) == addresses(made)
    reply = api.merge(f"{root}/s", {"spec": {"clusterIP": "None", "clusterIPs": ["None"]}})
    assert [c["field"] for c in reply.body["details"]["causes"]] == ["spec.clusterIPs[0]"]


def test_an_external_name_gives_its_address_back(api: Api, root: str) -> None:
    taken = api.post(root, service("s")).ok()["spec"]["clusterIP"]
    to_name = {"spec": {"type": "ExternalName", "externalName": "a.b"}}
    assert addresses(api.merge(f"{root}/s", to_name).ok()) == [None] * 4
    api.post(root, service("other", clusterIP=taken)).ok()
    back = api.merge(f"{root}/s", {"spec": {"type": "ClusterIP", "externalName": None}}).ok()
    assert back["spec"]["clusterIP"] not in (None, "", "None", taken)
