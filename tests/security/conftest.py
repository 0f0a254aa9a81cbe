"""hekla's API server and kube-apiserver for the same attacks, and a node for those by pods."""

from __future__ import annotations

from typing import Any

import pytest
from tools.waiting import until

from tests.apiserver.both.conftest import Api, api, is_real, namespace, server, unique
from tests.security.shared_node import shared

__all__ = ["api", "is_real", "namespace", "server", "shared", "tenant", "unique"]

RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
# The roles that `edit` and `view` collect. On a bare kube-apiserver no controller collects them.
EDIT = {"real": ("system:aggregate-to-edit", "system:aggregate-to-view"), "embedded": ("edit",)}


def bind(api: Api, user: str, role: str, namespace: str = "") -> None:
    """Bind a ClusterRole to a user, in one namespace or everywhere, and wait until it counts.

    kube-apiserver authorizes by its caches, which follow a moment later.
    """
    where = f"/namespaces/{namespace}/rolebindings" if namespace else "/clusterrolebindings"
    body = {
        "metadata": {"name": f"{user}-{role.replace(':', '-')}"},
        "roleRef": {"apiGroup": RBAC.split("/")[2], "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user}],
    }
    api.post(f"{RBAC}{where}", body).ok()
    rules = api.get(f"{RBAC}/clusterroles/{role}").body.get("rules") or ()
    if review := next(
        (_review(user, rule, namespace) for rule in rules if "resources" in rule), None
    ):
        until(lambda: api.post(REVIEWS, review).ok()["status"]["allowed"])


def _review(user: str, rule: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Return a review of the first right that a rule gives."""
    resource, _, subresource = rule["resources"][0].partition("/")
    attributes = {
        "group": rule["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "verb": rule["verbs"][0],
        "name": (rule.get("resourceNames") or [""])[0],
        "namespace": namespace,
    }
    return {"spec": {"user": user, "resourceAttributes": attributes}}


@pytest.fixture
def tenant(api: Api, namespace: str, is_real: bool) -> Api:
    """A user with the role `edit` in the test's namespace, named after it."""
    for role in EDIT["real" if is_real else "embedded"]:
        bind(api, namespace, role, namespace)
    return api.acting_as(User=namespace)
