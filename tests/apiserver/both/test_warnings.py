"""Warnings of both servers: which writes get how many. The wording is each server's own."""

from __future__ import annotations

from typing import Any

import pytest
from tools.waiting import until

from hekla.units.objects import Object
from tests.apiserver.both.conftest import Api
from tests.apiserver.both.test_rules import (
    DEFINITIONS,
    Define,
    define,
    definition,
    spec,
    thing,
)

__all__ = ["define"]


def _pod(container: Object | None = None, **more: Any) -> tuple[str, Object]:
    made = {"containers": [{"name": "c", "image": "i", **(container or {})}], **more}
    return "pods", {"spec": made}


def _annotated(name: str) -> tuple[str, Object]:
    return "pods", {"metadata": {"annotations": {name: "runtime/default"}}, **_pod()[1]}


def _affinity(**how: Any) -> tuple[str, Object]:
    return _pod(affinity={"nodeAffinity": how})


OLD_OS = "beta.kubernetes.io/os"
TERM = {"matchExpressions": [{"key": OLD_OS, "operator": "Exists"}]}
SPREAD = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}

WARNED: dict[str, tuple[tuple[str, Object], list[str]]] = {
    "nothing odd": (_pod(), []),
    "an old label in a selector": (_pod(nodeSelector={OLD_OS: "linux"}), ["nodeSelector"]),
    "an old label in a required affinity": (
        _affinity(requiredDuringSchedulingIgnoredDuringExecution={"nodeSelectorTerms": [TERM]}),
        ["matchExpressions[0].key"],
    ),
    "an old label in a preferred affinity": (
        _affinity(
            preferredDuringSchedulingIgnoredDuringExecution=[{"weight": 1, "preference": TERM}]
        ),
        ["matchExpressions[0].key"],
    ),
    "an old label in a spread constraint": (
        _pod(
            topologySpreadConstraints=[
                {**SPREAD, "topologyKey": "failure-domain.beta.kubernetes.io/zone"}
            ]
        ),
        ["topologyKey"],
    ),
    "the annotation of seccomp": (
        _annotated("seccomp.security.alpha.kubernetes.io/pod"),
        ["seccompProfile"],
    ),
    "the annotation of AppArmor": (
        _annotated("container.apparmor.security.beta.kubernetes.io/c"),
        ["appArmorProfile"],
    ),
    "a removed volume": (
        _pod(volumes=[{"name": "v", "rbd": {"image": "i", "monitors": ["m"]}}]),
        ["volumes[0].rbd"],
    ),
    "a variable twice": (
        _pod({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}),
        ["env[1]"],
    ),
    "a port twice": (
        _pod({"ports": [{"containerPort": 80}, {"containerPort": 80}]}),
        ["ports[1]"],
    ),
    "two protocols of a port": (
        _pod({"ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]}),
        [],
    ),
    "a name of a port twice": (
        _pod(
            containers=[
                {"name": "a", "image": "i", "ports": [{"containerPort": 80, "name": "web"}]},
                {"name": "b", "image": "i", "ports": [{"containerPort": 81, "name": "web"}]},
            ]
        ),
        ["containers[1].ports[0]"],
    ),
    "a pull secret twice": (
        _pod(imagePullSecrets=[{"name": "a"}, {"name": "a"}]),
        ["imagePullSecrets[1]"],
    ),
    "a fraction of a byte": (
        _pod({"resources": {"requests": {"memory": "0.5"}}}),
        ["resources.requests[memory]"],
    ),
    "an old field of a service": (
        ("services", {"spec": {"ports": [{"port": 1}], "externalIPs": ["1.2.3.4"]}}),
        ["spec.externalIPs"],
    ),
    "affinity of a headless service": (
        (
            "services",
            {
                "spec": {
                    "clusterIP": "None",
                    "sessionAffinity": "ClientIP",
                    "selector": {"a": "b"},
                    "ports": [{"port": 1}],
                }
            },
        ),
        ["ession"],
    ),
    "endpoints": (("endpoints", {}), ["EndpointSlice"]),
}


@pytest.mark.parametrize("case", WARNED)
def test_an_odd_object_is_accepted_with_a_warning(api: Api, namespace: str, case: str) -> None:
    (plural, body), want = WARNED[case]
    obj = {**body, "metadata": {"name": "w", **body.get("metadata", {})}}
    reply = api.post(f"/api/v1/namespaces/{namespace}/{plural}?dryRun=All", obj)
    reply.ok()
    assert len(reply.warnings) == len(want), reply.warnings
    for text, part in zip(reply.warnings, want, strict=True):
        assert part in text


def test_a_template_is_checked_as_a_pod(api: Api, namespace: str) -> None:
    body = {
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {**_pod()[1]["spec"], "nodeSelector": {OLD_OS: "linux"}},
            },
        },
    }
    root = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    reply = api.post(root, body)
    assert len(reply.warnings) == 1
    assert "spec.template.spec.nodeSelector" in reply.warnings[0]
    same = api.merge(f"{root}/d", {"metadata": {"labels": {"x": "y"}}})
    assert (same.status, same.warnings) == (200, [])


def test_a_definition_with_an_unknown_format_gives_a_warning(api: Api, unique: str) -> None:
    schema = spec({"a": {"type": "string", "format": "quantity"}, "b": {"type": "number"}})
    reply = api.post(f"{DEFINITIONS}?dryRun=All", definition(f"w{unique}.hekla.test", schema))
    assert len(reply.warnings) == 1
    assert "quantity" in reply.warnings[0]


def test_a_finalizer_without_a_domain_of_a_custom_kind(api: Api, define: Define) -> None:
    path = define(spec({}))
    body = thing(path)
    body["metadata"]["finalizers"] = ["mine"]
    reply = api.post(path, body)
    assert (reply.status, len(reply.warnings)) == (201, 1)
    assert "metadata.finalizers" in reply.warnings[0]
    again = api.merge(f"{path}/a", {"metadata": {"labels": {"x": "y"}}})
    assert (again.status, again.warnings) == (200, [])
    api.merge(f"{path}/a", {"metadata": {"finalizers": None}}).ok()


@pytest.mark.parametrize("text", ["", "leave it"])
def test_every_request_to_a_deprecated_version_gets_its_warning(
    api: Api, namespace: str, unique: str, text: str
) -> None:
    body = definition(f"{unique}.hekla.test", spec({}), subresources={"status": {}})
    old = {**body["spec"]["versions"][0], "name": "v1beta1", "storage": False, "deprecated": True}
    body["spec"]["versions"].append({**old, "deprecationWarning": text} if text else old)
    api.post(DEFINITIONS, body).ok()
    root = f"/apis/{unique}.hekla.test/v1beta1/namespaces/{namespace}/things"
    until(lambda: api.get(root).status == 200)
    group = f"{unique}.hekla.test"
    want = text or f"{group}/v1beta1 Thing is deprecated; use {group}/v1 Thing"
    made = {"apiVersion": f"{unique}.hekla.test/v1beta1", "kind": "Thing"}
    assert api.post(root, {**made, "metadata": {"name": "a"}}).warnings == [want]
    for path in (root, f"{root}/a", f"{root}/none", f"{root}/a/status"):
        assert api.get(path).warnings == [want], path
    assert api.merge(f"{root}/a/status", {"metadata": {}}).warnings == [want]
    assert api.delete(f"{root}/a").warnings == [want]
    assert api.get(root.replace("v1beta1", "v1")).warnings == []
    api.delete(f"{DEFINITIONS}/things.{unique}.hekla.test")
