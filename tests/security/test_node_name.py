"""A tenant cannot choose its node past the scheduler: `spec.nodeName` and bindings need a right."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.both.conftest import Api
from tests.security.conftest import RBAC, bind

SPEC = {"containers": [{"name": "a", "image": "x"}], "nodeName": "n1"}
LABELS = {"matchLabels": {"a": "b"}}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": SPEC}
ONCE = {"template": {"spec": {**SPEC, "restartPolicy": "Never"}}}
TASKS = {"tasks": [{"name": "work", "replicas": 1, "template": {"spec": SPEC}}]}
VOLCANO = "batch.volcano.sh/v1alpha1"
FLOW = "flow.volcano.sh/v1alpha1"
WORKLOADS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "Deployment": ("apps/v1", "Deployment", "deployments",
                   {"selector": LABELS, "template": TEMPLATE}),
    "StatefulSet": ("apps/v1", "StatefulSet", "statefulsets",
                    {"selector": LABELS, "template": TEMPLATE, "serviceName": "s"}),
    "ReplicaSet": ("apps/v1", "ReplicaSet", "replicasets",
                   {"selector": LABELS, "template": TEMPLATE}),
    "Job": ("batch/v1", "Job", "jobs", ONCE),
    "CronJob": ("batch/v1", "CronJob", "cronjobs",
                {"schedule": "@daily", "jobTemplate": {"spec": ONCE}}),
    "Volcano Job": (VOLCANO, "Job", "jobs", TASKS),
    "Volcano CronJob": (VOLCANO, "CronJob", "cronjobs",
                        {"schedule": "@daily", "jobTemplate": {"spec": TASKS}}),
    "JobTemplate": (FLOW, "JobTemplate", "jobtemplates", TASKS),
}  # fmt: skip


# Kubernetes admits spec.nodeName; the chart's policy refuses it there.
embedded_only = pytest.mark.parametrize("server", ["embedded"], indirect=True)


def pod(name: str = "p") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": SPEC}


def test_tenant_cannot_bind_a_pod(tenant: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    plain = {"metadata": {"name": "p"}, "spec": {"containers": SPEC["containers"]}}
    tenant.post(path, plain).ok()
    target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    answer = tenant.post(f"{path}/p/binding", {"metadata": {"name": "p"}, "target": target})
    assert (answer.status, 'resource "pods/binding"' in answer.message) == (403, True)
    change = {"spec": {"nodeName": "n1"}}
    assert tenant.merge(f"{path}/p", change).status == 422
    assert tenant.merge(f"{path}/p/status", change).status == 403


@embedded_only
def test_tenant_cannot_create_a_pod_on_a_node(tenant: Api, namespace: str) -> None:
    answer = tenant.post(f"/api/v1/namespaces/{namespace}/pods", pod())
    assert answer.status == 403
    assert 'spec.nodeName is "n1"' in answer.message
    assert 'cannot create resource "pods/binding"' in answer.message


@embedded_only
@pytest.mark.parametrize("what", WORKLOADS)
def test_tenant_cannot_name_a_node_in_a_template(tenant: Api, namespace: str, what: str) -> None:
    version, kind, plural, spec = WORKLOADS[what]
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}
    answer = tenant.post(f"/apis/{version}/namespaces/{namespace}/{plural}", body)
    assert (answer.status, '"pods/binding"' in answer.message) == (403, True), answer.body


@embedded_only
def test_tenant_cannot_add_a_node_to_a_workload(tenant: Api, namespace: str) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": SPEC["containers"]}}
    body = {"metadata": {"name": "d"}, "spec": {"selector": LABELS, "template": template}}
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    tenant.post(path, body).ok()
    change = {"spec": {"template": {"spec": {"nodeName": "n1"}}}}
    assert tenant.merge(f"{path}/d", change).status == 403


@embedded_only
def test_holder_of_the_right_to_bind_may_name_a_node(api: Api, tenant: Api, namespace: str) -> None:
    rule = {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}
    body = {"metadata": {"name": f"{namespace}-binder"}, "rules": [rule]}
    api.post(f"{RBAC}/clusterroles", body).ok()
    bind(api, namespace, f"{namespace}-binder", namespace)
    tenant.post(f"/api/v1/namespaces/{namespace}/pods", pod()).ok()


@embedded_only
def test_workload_with_a_node_stays_editable_for_a_tenant(
    api: Api, tenant: Api, namespace: str
) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    body = {"metadata": {"name": "d"}, "spec": {"selector": LABELS, "template": TEMPLATE}}
    api.post(path, body).ok()
    tenant.merge(f"{path}/d", {"spec": {"replicas": 2}}).ok()
    other = {"spec": {"template": {"spec": {"nodeName": "n2"}}}}
    assert tenant.merge(f"{path}/d", other).status == 403
