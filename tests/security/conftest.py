"""hekla's API server and kube-apiserver for the same attacks, and a node for those by pods."""

from __future__ import annotations

import pytest

from tests.apiserver.both.conftest import Api, api, is_real, namespace, server, unique
from tests.security.shared_node import shared

__all__ = ["api", "is_real", "namespace", "server", "shared", "tenant", "unique"]

RBAC = "/apis/rbac.authorization.k8s.io/v1"
# The roles that `edit` and `view` collect. On a bare kube-apiserver no controller collects them.
EDIT = {"real": ("system:aggregate-to-edit", "system:aggregate-to-view"), "embedded": ("edit",)}


def bind(api: Api, user: str, role: str, namespace: str = "") -> None:
    """Bind a ClusterRole to a user, in one namespace or everywhere."""
    where = f"/namespaces/{namespace}/rolebindings" if namespace else "/clusterrolebindings"
    body = {
        "metadata": {"name": f"{user}-{role.replace(':', '-')}"},
        "roleRef": {"apiGroup": RBAC.split("/")[2], "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user}],
    }
    api.post(f"{RBAC}{where}", body).ok()


@pytest.fixture
def tenant(api: Api, namespace: str, is_real: bool) -> Api:
    """A user with the role `edit` in the test's namespace, named after it."""
    for role in EDIT["real" if is_real else "embedded"]:
        bind(api, namespace, role, namespace)
    return api.acting_as(User=namespace)
