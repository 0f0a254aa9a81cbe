"""The table of built-in kinds is complete and consistent, with lookups by URL and by object."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hekla.api import kinds

CRD = {
    "metadata": {"name": "queues.scheduling.volcano.sh"},
    "spec": {
        "group": "scheduling.volcano.sh",
        "scope": "Cluster",
        "names": {"kind": "Queue", "plural": "queues", "shortNames": ["q"]},
        "versions": [{"name": "v1beta1", "subresources": {"status": {}}}],
    },
}


def known(kind: kinds.Kind | None) -> kinds.Kind:
    assert kind is not None
    return kind


def test_no_two_kinds_share_a_resource_or_a_kind_name() -> None:
    resources = [(k.group, k.version, k.plural) for k in kinds.BUILTIN]
    names = [(k.api_version, k.kind) for k in kinds.BUILTIN]
    assert len(set(resources)) == len(resources)
    assert len(set(names)) == len(names)


def test_no_two_kinds_of_one_group_share_a_short_name() -> None:
    short = [(k.group, s) for k in kinds.BUILTIN for s in k.short_names]
    assert len(set(short)) == len(short)


def test_kind_is_found_by_resource_and_by_object() -> None:
    assert known(kinds.by_resource("apps", "v1", "deployments")).kind == "Deployment"
    assert known(kinds.by_kind("apps/v1", "Deployment")).plural == "deployments"
    assert kinds.by_resource("apps", "v1beta1", "deployments") is None
    assert kinds.by_kind("v1", "Deployment") is None


def test_event_kinds_of_two_groups_are_distinct() -> None:
    assert known(kinds.by_kind("v1", "Event")).group == ""
    assert known(kinds.by_kind("events.k8s.io/v1", "Event")).group == "events.k8s.io"


@pytest.mark.parametrize(
    ("want", "group", "plural", "parts"),
    [
        ("/api/v1/pods", "", "pods", ()),
        ("/api/v1/namespaces/ns/pods/a/log", "", "pods", ("ns", "a", "log")),
        ("/api/v1/nodes/n1/status", "", "nodes", ("", "n1", "status")),
        ("/apis/apps/v1/namespaces/ns/deployments", "apps", "deployments", ("ns",)),
        ("/api/v1/nodes/n1", "", "nodes", ("ignored-for-cluster-scope", "n1")),
    ],
)
def test_paths_are_those_of_kubernetes(
    want: str, group: str, plural: str, parts: tuple[str, ...]
) -> None:
    assert want == known(kinds.by_resource(group, "v1", plural)).path(*parts)


@pytest.mark.parametrize(
    ("plural", "name", "want_kind", "want_verbs"),
    [
        ("pods", "binding", ("v1", "Binding"), ("create",)),
        ("pods", "eviction", ("policy/v1", "Eviction"), ("create",)),
        ("pods", "log", ("v1", "Pod"), ("get",)),
        ("pods", "status", ("v1", "Pod"), ("get", "patch", "update")),
        ("serviceaccounts", "token", ("authentication.k8s.io/v1", "TokenRequest"), ("create",)),
        ("replicationcontrollers", "scale", ("autoscaling/v1", "Scale"), kinds.STATUS_VERBS),
    ],
)
def test_subresource_has_its_kind_and_verbs(
    plural: str, name: str, want_kind: tuple[str, str], want_verbs: tuple[str, ...]
) -> None:
    found = kinds.subresource(known(kinds.by_resource("", "v1", plural)), name)
    assert want_kind == (found.api_version, found.kind)
    assert want_verbs == found.verbs


def test_unknown_subresource_error_lists_known_ones() -> None:
    with pytest.raises(ValueError, match=r"namespaces has no subresource 'scale'; it has: status"):
        kinds.subresource(known(kinds.by_resource("", "v1", "namespaces")), "scale")


def test_reviews_are_create_only_and_virtual() -> None:
    virtual = {k.kind for k in kinds.BUILTIN if k.virtual}
    assert virtual == {k.kind for k in kinds.BUILTIN if k.verbs == kinds.CREATE_ONLY}
    assert "SelfSubjectAccessReview" in virtual
    assert "Pod" not in virtual


def test_crd_is_converted_to_a_kind() -> None:
    queue = kinds.from_crd(CRD, "v1beta1")
    assert (queue.api_version, queue.list_kind) == ("scheduling.volcano.sh/v1beta1", "QueueList")
    assert (
        queue.singular,
        queue.short_names,
        queue.namespaced,
        queue.subresources,
    ) == ("queue", ("q",), False, ("status",))


def test_unknown_crd_version_is_rejected_by_name() -> None:
    with pytest.raises(ValueError, match=r"has no version 'v2'; it has: v1beta1"):
        kinds.from_crd(CRD, "v2")


# Served by a kubelet or a proxy, which the embedded cluster does not have.
NOT_SERVED = {"proxy", "resize"}
PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>v1)(?:/namespaces/\{namespace\})?"
    r"/(?P<plural>[a-z]+)(?:/\{name\}(?:/(?P<sub>[a-z]+))?)?"
)
ACTIONS = {"post": {"create"}, "put": {"update"}, "list": {"list", "watch"}}


def test_verbs_and_subresources_match_kubernetes_openapi(kubernetes_module: Path) -> None:
    document = kubernetes_module / "api" / "openapi-spec" / "swagger.json"
    published: dict[tuple[str, str, str], set[str]] = {}
    for path, operations in json.loads(document.read_text())["paths"].items():
        match = PATH.fullmatch(path)
        if match is None:
            continue
        for operation in operations.values():
            action = operation.get("x-kubernetes-action") if isinstance(operation, dict) else None
            if action and action != "connect":  # exec and similar: GET and POST that never end
                key = match["group"] or "", match["plural"], match["sub"] or ""
                published.setdefault(key, set()).update(ACTIONS.get(action, {action}))
    for kind in kinds.BUILTIN:
        assert set(kind.verbs) == published[kind.group, kind.plural, ""], kind.kind
        names = {s for g, p, s in published if (g, p) == (kind.group, kind.plural) and s}
        streams = {"exec", "attach", "portforward"}
        assert names - NOT_SERVED == set(kind.subresources) - streams, kind.kind
        for name in names - NOT_SERVED:
            want = published[kind.group, kind.plural, name]
            assert set(kinds.subresource(kind, name).verbs) == want, f"{kind.kind}/{name}"
