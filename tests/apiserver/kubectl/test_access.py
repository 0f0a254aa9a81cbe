"""Access control: auth can-i, whoami, tokens and impersonation."""

from __future__ import annotations

import base64
import json

from tests.apiserver.kubectl.conftest import Kubectl
from tests.apiserver.kubectl.manifests import config_map


def test_an_administrator_may_do_everything(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "*", "*") == "yes\n"
    assert kubectl("auth", "can-i", "delete", "nodes") == "yes\n"
    rows = kubectl("auth", "can-i", "--list")
    assert "*.*" in rows


def test_whoami_shows_user_and_groups(kubectl: Kubectl) -> None:
    text = kubectl("auth", "whoami")
    assert "kubernetes-admin" in text
    assert "system:masters" in text
    found = kubectl.json("auth", "whoami", "--as=ann", "--as-group=devs")
    info = found["status"]["userInfo"]
    assert info["username"] == "ann"
    assert info["groups"] == ["devs", "system:authenticated"]


def test_user_has_only_the_rights_of_the_roles(kubectl: Kubectl) -> None:
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=configmaps")
    kubectl("create", "rolebinding", "ann", "--role=reader", "--user=ann")
    kubectl.create(config_map("c"))
    assert kubectl("auth", "can-i", "list", "configmaps", "--as=ann") == "yes\n"
    done = kubectl.run("auth", "can-i", "delete", "configmaps", "--as=ann")
    assert (done.returncode, done.stdout) == (1, "no\n")
    listed = kubectl("auth", "can-i", "--list", "--as=ann")
    assert "configmaps" in listed
    assert "[get list]" in listed
    assert "configmap/c\n" in kubectl("get", "cm", "--as=ann", "-o", "name")
    said = kubectl.fails("delete", "cm", "c", "--as=ann")
    assert (
        'configmaps "c" is forbidden: User "ann" cannot delete resource "configmaps" in API group '
        f'"" in the namespace "{kubectl.namespace}"'
    ) in said
    said = kubectl.fails("get", "nodes", "--as=ann")
    assert 'cannot list resource "nodes" in API group "" at the cluster scope' in said


def test_roles_bound_to_a_group_and_limited_to_a_name_apply(kubectl: Kubectl) -> None:
    kubectl("create", "role", "one", "--verb=get", "--resource=configmaps", "--resource-name=c")
    kubectl("create", "rolebinding", "devs", "--role=one", "--group=devs")
    as_dev = ("--as=bob", "--as-group=devs")
    assert kubectl("auth", "can-i", "get", "configmaps/c", *as_dev) == "yes\n"
    assert kubectl.run("auth", "can-i", "get", "configmaps/d", *as_dev).stdout == "no\n"
    assert kubectl.run("auth", "can-i", "get", "configmaps/c", "--as=bob").stdout == "no\n"


def test_service_account_token_has_the_rights_of_its_account(kubectl: Kubectl) -> None:
    kubectl("create", "serviceaccount", "bot")
    kubectl("create", "role", "reader", "--verb=list", "--resource=configmaps")
    account = f"--serviceaccount={kubectl.namespace}:bot"
    kubectl("create", "rolebinding", "bot", "--role=reader", account)
    kubectl.create(config_map("c"))
    token = kubectl("create", "token", "bot", "--duration=10m").strip()
    padded = token.split(".")[1] + "=="
    claims = json.loads(base64.urlsafe_b64decode(padded))
    assert claims["sub"] == f"system:serviceaccount:{kubectl.namespace}:bot"
    assert claims["exp"] - claims["iat"] == 600
    # An explicit empty user stops kubectl from sending the administrator's token.
    as_bot = (f"--token={token}", "--user=")
    assert "configmap/c\n" in kubectl("get", "cm", "-o", "name", *as_bot)
    assert "forbidden" in kubectl.fails("get", "secrets", *as_bot)
    whoami = kubectl.json("auth", "whoami", *as_bot)["status"]["userInfo"]
    assert f"system:serviceaccounts:{kubectl.namespace}" in whoami["groups"]


def test_invalid_token_is_refused(kubectl: Kubectl) -> None:
    said = kubectl.fails("get", "pods", "--token=nonsense", "--user=")
    assert "must be logged in to the server" in said or "Unauthorized" in said


def test_auth_reconcile_creates_roles(kubectl: Kubectl) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "r", "namespace": kubectl.namespace},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }
    said = kubectl("auth", "reconcile", "-f", "-", input=role)
    assert "role.rbac.authorization.k8s.io/r reconciled" in said
    assert kubectl.json("get", "role", "r")["rules"] == role["rules"]
