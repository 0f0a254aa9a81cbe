"""Tenants cannot take the priority of the system."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.both.conftest import Api

CRITICAL = "system-node-critical"
SPEC = {"containers": [{"name": "a", "image": "x"}]}
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
BATCH, GROUPS = "batch.volcano.sh/v1alpha1", "scheduling.volcano.sh/v1beta1"
# Kubernetes admits critical pods everywhere, unless an administrator configures limited resources.
embedded_only = pytest.mark.parametrize("server", ["embedded"], indirect=True)


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {**SPEC, **spec}}


@embedded_only
def test_critical_pod_is_refused_outside_the_system(api: Api, tenant: Api, namespace: str) -> None:
    body = pod(priorityClassName=CRITICAL)
    answer = tenant.post(f"/api/v1/namespaces/{namespace}/pods", body)
    assert answer.status == 403
    assert f"{CRITICAL} is for the system" in answer.message
    # What a controller creates is refused, too: the namespace counts, not the user.
    assert api.post(f"/api/v1/namespaces/{namespace}/pods", body).status == 403
    api.post("/api/v1/namespaces/kube-system/pods?dryRun=All", body).ok()


@embedded_only
@pytest.mark.parametrize(
    ("version", "kind", "plural", "spec"),
    [
        (BATCH, "Job", "jobs", {"tasks": [{"name": "w", "replicas": 1,
                                            "template": {"spec": SPEC}}]}),
        (GROUPS, "PodGroup", "podgroups", {"minMember": 1}),
    ],
)  # fmt: skip
def test_critical_job_and_group_are_refused(
    tenant: Api, namespace: str, version: str, kind: str, plural: str, spec: dict[str, Any]
) -> None:
    path = f"/apis/{version}/namespaces/{namespace}/{plural}"
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}
    refused = {**body, "spec": {**spec, "priorityClassName": CRITICAL}}
    assert tenant.post(path, refused).status == 403
    tenant.post(path, body).ok()
    change = {"spec": {"priorityClassName": CRITICAL}}
    assert tenant.merge(f"{path}/w", change).status in (403, 422)


@embedded_only
def test_quota_for_the_class_admits_critical_pods(api: Api, tenant: Api, namespace: str) -> None:
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": [CRITICAL]}
    quota = {
        "metadata": {"name": "critical"},
        "spec": {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [scope]}},
    }
    path = f"/api/v1/namespaces/{namespace}"
    assert tenant.post(f"{path}/resourcequotas", quota).status == 403
    api.post(f"{path}/resourcequotas", quota).ok()
    tenant.post(f"{path}/pods", pod(priorityClassName=CRITICAL)).ok()


def test_tenant_cannot_set_a_priority_of_its_own(tenant: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    for value in (1, -1, 2_000_001_000, 2**31 - 1):
        assert tenant.post(path, pod(priority=value)).status == 403, value
    tenant.post(path, pod()).ok()
    assert tenant.merge(f"{path}/p", {"spec": {"priority": 5}}).status in (403, 422)
    assert tenant.post(CLASSES, {"metadata": {"name": "mine"}, "value": 1}).status == 403


def test_class_above_the_highest_user_priority_is_refused(api: Api, unique: str) -> None:
    for name, value in ((unique, 10**9 + 1), (f"system-{unique}", 1)):
        answer = api.post(CLASSES, {"metadata": {"name": name}, "value": value})
        assert answer.status in (403, 422), name
    api.post(CLASSES, {"metadata": {"name": unique}, "value": -(10**9)}).ok()
