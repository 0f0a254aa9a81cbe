"""Nobody grants rights that they do not hold: roles, bindings, aggregation and impersonation.

Every test runs on hekla's server and on kube-apiserver: both refuse alike.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.both.conftest import Api
from tests.security.conftest import RBAC, bind

GROUP = "rbac.authorization.k8s.io"
ALL = [
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
]
MAPS = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}
VERBS = ["create", "update", "patch", "get", "delete"]


@pytest.fixture
def manager(api: Api, unique: str) -> Api:
    """A user that may write every RBAC object, but holds only the right to read ConfigMaps."""
    rules = [{"apiGroups": [GROUP], "resources": ["*"], "verbs": VERBS}, MAPS]
    api.post(f"{RBAC}/clusterroles", {"metadata": {"name": unique}, "rules": rules}).ok()
    bind(api, unique, unique)
    return api.acting_as(User=unique)


def aggregating(name: str, **labels: str) -> dict[str, Any]:
    selector = {"clusterRoleSelectors": [{"matchLabels": labels}]}
    return {"metadata": {"name": name}, "aggregationRule": selector}


def binding(name: str, role: str, user: str, kind: str = "ClusterRole") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": [{"kind": "User", "name": user}],
    }


def test_role_with_only_an_aggregation_rule_is_refused(manager: Api, unique: str) -> None:
    body = aggregating(f"{unique}-up", **{"kubernetes.io/bootstrapping": "rbac-defaults"})
    answer = manager.post(f"{RBAC}/clusterroles", body)
    assert answer.status == 403
    assert "must have cluster-admin privileges to use the aggregationRule" in answer.message


def test_aggregation_rule_cannot_be_added_changed_or_removed(
    api: Api, manager: Api, unique: str
) -> None:
    name = f"{unique}-mine"
    path = f"{RBAC}/clusterroles/{name}"
    manager.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [MAPS]}).ok()
    selectors = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    assert manager.merge(path, {"aggregationRule": selectors}).status == 403
    api.merge(path, {"aggregationRule": selectors}).ok()
    other = {"clusterRoleSelectors": [{"matchLabels": {"kubernetes.io/bootstrapping": "x"}}]}
    assert manager.merge(path, {"aggregationRule": other}).status == 403
    assert manager.merge(path, {"aggregationRule": None}).status == 403


def test_holder_of_all_rights_may_aggregate(api: Api, unique: str) -> None:
    name = f"{unique}-root"
    api.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": ALL}).ok()
    bind(api, name, name)
    body = aggregating(f"{unique}-up", team=unique)
    api.acting_as(User=name).post(f"{RBAC}/clusterroles", body).ok()


def test_holder_of_escalate_may_aggregate(api: Api, unique: str) -> None:
    rule = {"apiGroups": [GROUP], "resources": ["clusterroles"], "verbs": ["create", "escalate"]}
    api.post(f"{RBAC}/clusterroles", {"metadata": {"name": unique}, "rules": [rule]}).ok()
    bind(api, unique, unique)
    body = aggregating(f"{unique}-up", team=unique)
    api.acting_as(User=unique).post(f"{RBAC}/clusterroles", body).ok()


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_binding_to_a_role_that_does_not_exist_is_refused(
    manager: Api, namespace: str, kind: str
) -> None:
    body = binding("later", "later", namespace, kind)
    answer = manager.post(f"{RBAC}/namespaces/{namespace}/rolebindings", body)
    assert answer.status == 404
    assert '"later" not found' in answer.message


def test_cluster_binding_to_a_role_that_does_not_exist_is_refused(
    manager: Api, unique: str
) -> None:
    body = binding(f"{unique}-later", f"{unique}-later", unique)
    answer = manager.post(f"{RBAC}/clusterrolebindings", body)
    assert answer.status == 404


def test_holder_of_bind_may_bind_a_role_that_does_not_exist(
    api: Api, manager: Api, namespace: str
) -> None:
    name = f"{namespace}-bind"
    rule = {"apiGroups": [GROUP], "resources": ["clusterroles"], "verbs": ["bind"]}
    body = {"metadata": {"name": name}, "rules": [{**rule, "resourceNames": ["later"]}]}
    api.post(f"{RBAC}/clusterroles", body).ok()
    bind(api, namespace, name, namespace)
    path = f"{RBAC}/namespaces/{namespace}/rolebindings"
    manager.post(path, binding("later", "later", namespace)).ok()
    assert manager.post(path, binding("other", "other", namespace)).status == 404


def test_subjects_of_a_binding_to_a_stronger_role_cannot_be_changed(
    api: Api, manager: Api, unique: str
) -> None:
    path = f"{RBAC}/clusterrolebindings"
    api.post(path, binding(f"{unique}-strong", "cluster-admin", "somebody")).ok()
    subjects = [{"kind": "User", "name": unique, "apiGroup": GROUP}]
    answer = manager.merge(f"{path}/{unique}-strong", {"subjects": subjects})
    assert answer.status == 403
    assert "not currently held" in answer.message


def test_role_reference_of_a_binding_cannot_be_changed(api: Api, unique: str) -> None:
    path = f"{RBAC}/clusterrolebindings"
    api.post(path, binding(unique, "view", unique)).ok()
    answer = api.merge(f"{path}/{unique}", {"roleRef": {"name": "cluster-admin"}})
    assert answer.status == 422
    assert "cannot change roleRef" in answer.message


def test_labels_of_a_stronger_role_cannot_be_changed(api: Api, manager: Api, unique: str) -> None:
    name = f"{unique}-strong"
    api.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": ALL}).ok()
    patch = {"metadata": {"labels": {f"{GROUP}/aggregate-to-view": "true"}}}
    assert manager.merge(f"{RBAC}/clusterroles/{name}", patch).status == 403
    api.delete(f"{RBAC}/clusterroles/{name}")


def test_bootstrap_roles_cannot_be_widened(manager: Api) -> None:
    for name in ("system:discovery", "system:basic-user"):
        answer = manager.merge(f"{RBAC}/clusterroles/{name}", {"rules": ALL})
        assert answer.status == 403


def test_garbage_collection_fields_of_a_stronger_role_may_change(
    api: Api, manager: Api, unique: str
) -> None:
    name = f"{unique}-strong"
    api.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": ALL}).ok()
    patch = {"metadata": {"finalizers": ["example.com/a"]}}
    manager.merge(f"{RBAC}/clusterroles/{name}", patch).ok()
    api.merge(f"{RBAC}/clusterroles/{name}", {"metadata": {"finalizers": None}}).ok()
    api.delete(f"{RBAC}/clusterroles/{name}")


SUBJECTS: dict[str, dict[str, Any]] = {
    "an unknown kind": {"kind": "Robot", "name": "x"},
    "a service account of another API group": {
        "kind": "ServiceAccount", "name": "x", "namespace": "default", "apiGroup": GROUP,
    },
    "a user of another API group": {"kind": "User", "name": "x", "apiGroup": "apps"},
    "no name": {"kind": "Group", "name": ""},
    "a service account with a forged name": {
        "kind": "ServiceAccount", "name": "x:kube-system:y", "namespace": "default",
    },
}  # fmt: skip


@pytest.mark.parametrize("what", SUBJECTS)
def test_invalid_subject_is_refused(api: Api, namespace: str, what: str) -> None:
    body = {**binding("b", "view", "x"), "subjects": [SUBJECTS[what]]}
    answer = api.post(f"{RBAC}/namespaces/{namespace}/rolebindings", body)
    assert answer.status == 422, answer.body


# Impersonation


def token_of(api: Api, namespace: str, account: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.post(path, {"metadata": {"name": account}})
    answer = api.post(f"{path}/{account}/token", {"spec": {}}).ok()
    return str(answer["status"]["token"])


WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def grant_account(api: Api, namespace: str, account: str, *rules: dict[str, Any]) -> None:
    name = f"{namespace}-{account}"
    api.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": list(rules)}).ok()
    body = binding(name, name, "")
    body["subjects"] = [{"kind": "ServiceAccount", "name": account, "namespace": namespace}]
    api.post(f"{RBAC}/clusterrolebindings", body).ok()


def test_each_impersonated_part_needs_its_own_right(api: Api, namespace: str) -> None:
    bot = api.with_token(token_of(api, namespace, "bot"))
    users = {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}
    grant_account(api, namespace, "bot", {**users, "resourceNames": ["jane"]})

    def status(**headers: str) -> int:
        return bot.acting_as(**headers).post(WHOAMI, {}).status

    assert status(User="jane") == 201
    assert status(User="admin") == 403
    assert status(User="jane", Group="system:masters") == 403
    assert status(User="jane", Extra_scopes="root") == 403
    assert status(User="jane", Uid="1") == 403
    assert status(User="system:serviceaccount:kube-system:x") == 403


def test_groups_and_extra_fields_without_a_user_are_refused(api: Api) -> None:
    for headers in ({"Group": "system:masters"}, {"Extra_scopes": "x"}, {"Uid": "1"}):
        assert api.acting_as(**headers).post(WHOAMI, {}).status == 400


def test_right_to_impersonate_users_does_not_cover_service_accounts(
    api: Api, namespace: str
) -> None:
    bot = api.with_token(token_of(api, namespace, "bot"))
    users = {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}
    grant_account(api, namespace, "bot", users)
    account = f"system:serviceaccount:{namespace}:bot"
    assert bot.acting_as(User=account).post(WHOAMI, {}).status == 403


def test_impersonated_service_account_has_its_groups(api: Api, namespace: str) -> None:
    account = f"system:serviceaccount:{namespace}:bot"
    answer = api.acting_as(User=account, Uid="7", Extra_scopes="a").post(WHOAMI, {}).ok()
    info = answer["status"]["userInfo"]
    assert set(info["groups"]) == {
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
        "system:authenticated",
    }
    assert (info["uid"], info["extra"]) == ("7", {"scopes": ["a"]})


# The built-in role `edit`


CORE_SUBRESOURCES = [
    ("", "pods", sub)
    for sub in ("", "binding", "eviction", "exec", "attach", "portforward", "proxy", "log",
                "status", "ephemeralcontainers", "resize")
]  # fmt: skip
RESOURCES = [
    *CORE_SUBRESOURCES,
    *(("", plural, "") for plural in (
        "bindings", "configmaps", "endpoints", "events", "limitranges", "namespaces", "nodes",
        "persistentvolumeclaims", "persistentvolumes", "podtemplates", "resourcequotas", "secrets",
        "serviceaccounts", "services")),
    ("", "serviceaccounts", "token"),
    ("", "services", "status"),
    ("", "namespaces", "finalize"),
    *(("apps", plural, sub) for plural in ("deployments", "daemonsets", "replicasets",
                                           "statefulsets") for sub in ("", "status", "scale")),
    ("apps", "controllerrevisions", ""),
    *(("batch", plural, sub) for plural in ("jobs", "cronjobs") for sub in ("", "status")),
    ("policy", "poddisruptionbudgets", ""),
    ("policy", "poddisruptionbudgets", "status"),
    ("networking.k8s.io", "networkpolicies", ""),
    ("networking.k8s.io", "ingresses", "status"),
    ("coordination.k8s.io", "leases", ""),
    ("discovery.k8s.io", "endpointslices", ""),
    ("rbac.authorization.k8s.io", "roles", ""),
    ("rbac.authorization.k8s.io", "rolebindings", ""),
    ("authorization.k8s.io", "localsubjectaccessreviews", ""),
    ("scheduling.k8s.io", "priorityclasses", ""),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", ""),
    ("resource.k8s.io", "resourceclaims", ""),
    ("storage.k8s.io", "storageclasses", ""),
]  # fmt: skip
REVIEW = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_VERDICTS: dict[str, dict[tuple[str, ...], bool]] = {}


def test_edit_has_the_rights_of_kubernetes(
    api: Api, tenant: Api, namespace: str, is_real: bool
) -> None:
    allowed: dict[tuple[str, ...], bool] = {}
    for group, plural, sub in RESOURCES:
        for verb in ("get", "list", "create", "update", "patch", "delete", "impersonate"):
            attributes = {
                "namespace": namespace, "group": group, "resource": plural, "subresource": sub,
                "verb": verb, "name": "x",
            }  # fmt: skip
            spec = {"user": namespace, "resourceAttributes": attributes}
            answer = api.post(REVIEW, {"spec": spec}).ok()
            allowed[group, plural, sub, verb] = answer["status"]["allowed"]
    _VERDICTS["real" if is_real else "embedded"] = allowed
    assert not allowed["", "pods", "binding", "create"]
    assert not allowed["", "pods", "ephemeralcontainers", "patch"]
    assert not allowed["", "pods", "status", "patch"]
    assert not allowed["batch", "jobs", "status", "update"]
    assert allowed["", "pods", "eviction", "create"]
    if len(_VERDICTS) == 2:
        real, ours = _VERDICTS["real"], _VERDICTS["embedded"]
        assert {k: v for k, v in ours.items() if v != real[k]} == {}


def test_edit_cannot_request_tokens_or_secrets_of_another_namespace(
    api: Api, tenant: Api, namespace: str
) -> None:
    path = "/api/v1/namespaces/kube-system"
    api.post(f"{path}/serviceaccounts", {"metadata": {"name": "strong"}})
    assert tenant.post(f"{path}/serviceaccounts/strong/token", {"spec": {}}).status == 403
    assert tenant.get(f"{path}/secrets").status == 403
    assert tenant.get("/api/v1/secrets").status == 403
    assert token_of(api, namespace, "mine")
    own = f"/api/v1/namespaces/{namespace}/serviceaccounts/mine/token"
    assert tenant.post(own, {"spec": {}}).status == 201
