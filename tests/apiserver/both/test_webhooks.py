"""Admission webhooks on hekla's API server and kube-apiserver."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from tools.waiting import until

from hekla.units.objects import Object
from tests.apiserver.both.conftest import ADMISSION, Api, Hook, rule

Configure = Callable[..., Object]


def maps(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps" + (f"/{name}" if name else "")


def config_map(name: str, **data: str) -> Object:
    return {"metadata": {"name": name}, "data": data}


def patch(*operations: Object) -> Object:
    text = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": text}


def put(key: str, value: str) -> Object:
    return patch({"op": "add", "path": f"/data/{key}", "value": value})


def allow(_: Object) -> Object:
    return {"allowed": True}


def test_webhook_denies_with_its_message(
    api: Api, hook: Hook, configure: Configure, namespace: str
) -> None:
    hook.on("/deny", lambda _: {"allowed": False, "status": {"message": "no, not this"}})
    configure("validating", ("/deny", {}))
    denied = api.post(maps(namespace), config_map("a"))
    assert denied.message == 'admission webhook "deny.hekla.test" denied the request: no, not this'
    assert denied.status == denied.body["code"] == 400
    assert api.get(maps(namespace, "a")).status == 404


def test_status_of_a_denial_is_returned_to_the_client(
    api: Api, hook: Hook, configure: Configure, namespace: str
) -> None:
    status = {"code": 409, "reason": "Conflict", "details": {"retryAfterSeconds": 3}}
    hook.on("/deny", lambda _: {"allowed": False, "status": status})
    configure("validating", ("/deny", {}))
    denied = api.post(maps(namespace), config_map("a"))
    assert denied.message == 'admission webhook "deny.hekla.test" denied the request: Conflict'
    assert (denied.status, denied.body["reason"]) == (409, "Conflict")
    assert denied.body["details"]["retryAfterSeconds"] == 3


def test_denial_without_message_is_reported_as_such(
    api: Api, hook: Hook, configure: Configure, namespace: str
) -> None:
    hook.on("/deny", lambda _: {"allowed": False})
    configure("validating", ("/deny", {}))
    denied = api.post(maps(namespace), config_map("a"))
    want = 'admission webhook "deny.hekla.test" denied the request without explanation'
    assert denied.message == want


def test_mutating_webhooks_are_called_in_order_of_their_names(
    api: Api, hook: Hook, configure: Configure, namespace: str, unique: str
) -> None:
    hook.on("/first", lambda r: put("second", str("first" in r["object"]["data"])))
    hook.on("/second", lambda r: put("first", "yes"))
    configure("mutating", ("/first", {}), name=f"{unique}-z")
    configure("mutating", ("/second", {}), name=f"{unique}-a")
    made = api.post(maps(namespace), config_map("a", own="1")).ok()
    assert made["data"] == {"own": "1", "first": "yes", "second": "True"}
    assert api.get(maps(namespace, "a")).ok()["data"] == made["data"]


def test_webhook_with_reinvocation_policy_is_called_again_after_a_later_change(
    api: Api, hook: Hook, configure: Configure, namespace: str
) -> None:
    def count(request: Object) -> Object:
        before = request["object"]["data"].get("count", "0")
        return put("count", str(int(before) + 1))

    hook.on("/count", count)
    hook.on("/late", lambda _: put("late", "yes"))
    configure("mutating", ("/count", {"reinvocationPolicy": "IfNeeded"}), ("/late", {}))
    made = api.post(maps(namespace), config_map("a", own="1")).ok()
    assert made["data"]["count"] == "2"
    assert len(hook.seen("/late")) == 1


def test_webhook_request_has_user_operation_and_object(
    api: Api, hook: Hook, configure: Configure, namespace: str
) -> None:
    hook.on("/watch", allow)
    configure("validating", ("/watch", {}))
    api.post(maps(namespace), config_map("a", x="1")).ok()
    api.merge(maps(namespace, "a"), {"data": {"x": "2"}}).ok()
    api.delete(maps(namespace, "a")).ok()
    create, update, delete = hook.seen("/watch")
    told = [(r["operation"], r["name"], r["namespace"]) for r in (create, update, delete)]
    assert told == [(o, "a", namespace) for o in ("CREATE", "UPDATE", "DELETE")]
    assert create["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert create["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert create["requestKind"] == create["kind"]
    assert create["oldObject"] is None
    assert create["object"]["data"] == {"x": "1"}
    assert create["object"]["metadata"]["uid"]
    assert "system:masters" in create["userInfo"]["groups"]
    assert create["options"]["kind"] == "CreateOptions"
    assert (update["oldObject"]["data"], update["object"]["data"]) == ({"x": "1"}, {"x": "2"})
    assert delete["object"] is None
    assert delete["oldObject"]["data"] == {"x": "2"}
    assert delete["options"]["kind"] == "DeleteOptions"


def test_mutating_webhook_gets_a_new_object_before_its_name_is_generated(
    api: Api, hook: Hook, configure: Configure, namespace: str
) -> None:
    hook.on("/watch", allow)
    configure("mutating", ("/watch", {}))
    made = api.post(maps(namespace), {"metadata": {"generateName": "made-"}}).ok()
    (request,) = hook.seen("/watch")
    assert "uid" not in request["object"]["metadata"]
    assert "name" not in request["object"]["metadata"]
    assert not request.get("name")
    assert made["metadata"]["name"].startswith("made-")


CASES: dict[str, tuple[Object, bool]] = {
    "by resource": ({"rules": [rule("configmaps")]}, True),
    "every resource": ({"rules": [rule("*")]}, True),
    "everything with subresources": ({"rules": [rule("*/*")]}, True),
    "a resource and its subresources": ({"rules": [rule("configmaps/*")]}, True),
    "another resource": ({"rules": [rule("secrets")]}, False),
    "only a subresource": ({"rules": [rule("configmaps/status")]}, False),
    "by operation": ({"rules": [rule("configmaps", operations=("CREATE",))]}, True),
    "another operation": ({"rules": [rule("configmaps", operations=("DELETE",))]}, False),
    "another group": ({"rules": [{**rule("configmaps"), "apiGroups": ["apps"]}]}, False),
    "another version": ({"rules": [{**rule("configmaps"), "apiVersions": ["v2"]}]}, False),
    "what has a namespace": ({"rules": [rule("configmaps", scope="Namespaced")]}, True),
    "what has none": ({"rules": [rule("configmaps", scope="Cluster")]}, False),
    "another namespace": ({"namespaceSelector": {"matchLabels": {"test": "other"}}}, False),
    "what is not labelled so": (
        {"objectSelector": {"matchExpressions": [{"key": "color", "operator": "DoesNotExist"}]}},
        False,
    ),
    "a label it has": ({"objectSelector": {"matchLabels": {"color": "red"}}}, True),
    "a label it lacks": ({"objectSelector": {"matchLabels": {"color": "blue"}}}, False),
    "a condition that holds": (
        {"matchConditions": [{"name": "a", "expression": "object.data.x == '1'"}]},
        True,
    ),
    "a condition that does not": (
        {"matchConditions": [{"name": "a", "expression": "request.userInfo.username == 'me'"}]},
        False,
    ),
}


def test_rules_selectors_and_match_conditions_select_writes(
    api: Api, hook: Hook, configure: Configure, namespace: str
) -> None:
    hooks = []
    for number, (more, _) in enumerate(CASES.values()):
        hooks.append((hook.on(f"/case{number}", allow), more))
    configure("validating", *hooks)
    body = config_map("a", x="1")
    body["metadata"]["labels"] = {"color": "red"}
    api.post(maps(namespace), body).ok()
    found = {name: bool(hook.seen(f"/case{n}")) for n, name in enumerate(CASES)}
    assert found == {name: want for name, (_, want) in CASES.items()}


def test_failing_match_condition_is_handled_by_failure_policy(
    api: Api, hook: Hook, configure: Configure, namespace: str
) -> None:
    hook.on("/never", allow)
    broken = {"matchConditions": [{"name": "broken", "expression": "object.nope.x == '1'"}]}
    configure("validating", ("/never", {**broken, "failurePolicy": "Ignore"}))
    api.post(maps(namespace), config_map("a")).ok()
    configure("validating", ("/never", broken))
    refused = api.post(maps(namespace), config_map("b"))
    assert refused.status == 403
    assert 'configmaps "b" is forbidden: ' in refused.message
    assert not hook.seen("/never")


def test_match_condition_that_does_not_compile_is_refused(api: Api) -> None:
    body = {
        "metadata": {"name": "broken.hekla.test"},
        "webhooks": [
            {
                "name": "broken.hekla.test",
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "rules": [rule("configmaps")],
                "matchConditions": [{"name": "a", "expression": "object.x +"}],
            }
        ],
    }
    refused = api.post(f"{ADMISSION}/validatingwebhookconfigurations", body)
    assert refused.status == 422
    (cause,) = refused.body["details"]["causes"]
    assert cause["field"] == "webhooks[0].matchConditions[0].expression"
    assert "object.x +" in cause["message"]
    assert "Syntax error" in cause["message"]


def test_failing_webhook_is_handled_by_failure_policy(
    api: Api, hook: Hook, configure: Configure, namespace: str
) -> None:
    hook.on("/broken", lambda _: {"http": 500})
    configure("validating", ("/broken", {"failurePolicy": "Ignore"}))
    api.post(maps(namespace), config_map("a")).ok()
    configure("mutating", ("/broken", {"failurePolicy": "Fail"}))
    refused = api.post(maps(namespace), config_map("b"))
    assert refused.status == 500
    assert refused.message.startswith(
        'Internal error occurred: failed calling webhook "broken.hekla.test": failed to call '
        "webhook: "
    )
    assert api.get(maps(namespace, "b")).status == 404


@pytest.mark.parametrize(
    ("config", "want"),
    [
        ({"url": "https://127.0.0.1:1/x"}, "connect"),
        ({"service": {"name": "gone", "namespace": "default"}}, 'service "gone" not found'),
    ],
)
def test_unreachable_webhook_is_named_in_the_error(
    api: Api, configure: Configure, namespace: str, config: Object, want: str
) -> None:
    configure("validating", ("/gone", {"clientConfig": config}))
    refused = api.post(maps(namespace), config_map("a"))
    assert refused.status == 500
    assert 'failed calling webhook "gone.hekla.test"' in refused.message
    assert want in refused.message.lower()


def test_webhook_with_an_untrusted_certificate_is_refused(
    api: Api, hook: Hook, configure: Configure, namespace: str
) -> None:
    other = Hook()
    hook.on("/x", allow)
    config = {**hook.client_config("/x"), "caBundle": other.ca}
    other.close()
    configure("validating", ("/x", {"clientConfig": config}))
    refused = api.post(maps(namespace), config_map("a"))
    assert refused.status == 500
    assert "tls: failed to verify certificate" in refused.message
    assert not hook.seen("/x")


def test_webhook_call_ends_after_its_timeout(
    api: Api, hook: Hook, configure: Configure, namespace: str
) -> None:
    import threading

    wait = threading.Event()
    hook.on("/slow", lambda _: {"allowed": wait.wait(20)})
    configure("validating", ("/slow", {"timeoutSeconds": 1}))
    refused = api.post(maps(namespace), config_map("a"))
    wait.set()
    assert refused.status == 500
    assert "context deadline exceeded" in refused.message


ANSWERS: dict[str, tuple[Object, str]] = {
    "another uid": ({"allowed": True, "uid": "x"}, "expected response.uid="),
    "a patch of a validating hook": (
        {"allowed": True, "patch": "W10=", "patchType": "JSONPatch"},
        "validating webhook may not return response.patch",
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_invalid_webhook_response_is_a_failure(
    api: Api, hook: Hook, configure: Configure, namespace: str, case: str
) -> None:
    answer, want = ANSWERS[case]
    hook.on("/odd", lambda _: dict(answer))
    configure("validating", ("/odd", {}))
    refused = api.post(maps(namespace), config_map("a"))
    assert refused.status == 500
    assert "received invalid webhook response" in refused.message
    assert want in refused.message


def test_unknown_fields_added_by_a_webhook_are_dropped(
    api: Api, hook: Hook, configure: Configure, namespace: str
) -> None:
    hook.on("/add", lambda _: patch({"op": "add", "path": "/nonsense", "value": 1}))
    configure("mutating", ("/add", {}))
    assert "nonsense" not in api.post(maps(namespace), config_map("a")).ok()


def test_warnings_of_webhooks_are_returned_to_the_client(
    api: Api, hook: Hook, configure: Configure, namespace: str
) -> None:
    hook.on("/warn", lambda _: {"allowed": True, "warnings": ["mind the gap"]})
    configure("validating", ("/warn", {}))
    assert api.post(maps(namespace), config_map("a")).warnings == ["mind the gap"]


def test_webhook_request_of_a_dry_run_says_dry_run(
    api: Api, hook: Hook, configure: Configure, namespace: str
) -> None:
    hook.on("/watch", allow)
    configure("validating", ("/watch", {"sideEffects": "NoneOnDryRun"}))
    api.post(maps(namespace) + "?dryRun=All", config_map("a")).ok()
    (request,) = hook.seen("/watch")
    assert request["dryRun"] is True
    assert request["options"]["dryRun"] == ["All"]


def test_webhook_gets_the_kind_of_the_subresource(
    api: Api, hook: Hook, configure: Configure, namespace: str
) -> None:
    hook.on("/watch", allow)
    rules = [rule("pods/*", "replicationcontrollers/*")]
    configure("validating", ("/watch", {"rules": rules}))
    pod = {
        "metadata": {"name": "a"},
        "spec": {
            "containers": [{"name": "main", "image": "busybox"}],
            "automountServiceAccountToken": False,
        },
    }
    pods = f"/api/v1/namespaces/{namespace}/pods"
    until(lambda: _is_there(api, namespace))
    api.post(pods, pod).ok()
    api.merge(f"{pods}/a/status", {"status": {"message": "hello"}}).ok()
    binding = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}
    api.post(f"{pods}/a/binding", binding).ok()
    controllers = f"/api/v1/namespaces/{namespace}/replicationcontrollers"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod["spec"]}
    body = {"metadata": {"name": "a"}, "spec": {"replicas": 0, "template": template}}
    api.post(controllers, body).ok()
    api.merge(f"{controllers}/a/scale", {"spec": {"replicas": 2}}).ok()
    api.post(f"{pods}/a/eviction", {"metadata": {"name": "a"}}).ok()
    # The embedded server deletes the pod soon: its node does not exist.
    ours = [r for r in hook.seen("/watch") if r["userInfo"]["username"] != "system:apiserver"]
    found = [(r["operation"], r.get("subResource"), r["kind"]["kind"]) for r in ours]
    assert found == [
        ("CREATE", None, "Pod"),
        ("UPDATE", "status", "Pod"),
        ("CREATE", "binding", "Binding"),
        ("CREATE", None, "ReplicationController"),
        ("UPDATE", "scale", "Scale"),
        ("CREATE", "eviction", "Eviction"),
    ]


def _is_there(api: Api, namespace: str) -> bool:
    """Create the namespace's service account, which kube-apiserver requires for a pod."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    if api.get(f"{path}/default").status == 200:
        return True
    return api.post(path, {"metadata": {"name": "default"}}).status == 201


def test_webhook_can_deny_exec(api: Api, hook: Hook, configure: Configure, namespace: str) -> None:
    hook.on("/deny", lambda _: {"allowed": False, "status": {"message": "no commands here"}})
    rules = [rule("pods/exec", operations=("CONNECT",))]
    configure("validating", ("/deny", {"rules": rules, "objectSelector": {}}))
    path = f"/api/v1/namespaces/{namespace}/pods/any/exec?command=ls&stdout=true"
    denied = api.post(path, None)
    want = 'admission webhook "deny.hekla.test" denied the request: no commands here'
    assert denied.message == want
    (request,) = hook.seen("/deny")
    assert request["kind"]["kind"] == "PodExecOptions"
    assert request["object"]["command"] == ["ls"]


def test_webhook_configurations_are_exempt_from_webhooks(
    api: Api, hook: Hook, configure: Configure, unique: str
) -> None:
    hook.on("/deny", lambda _: {"allowed": False})
    everything = {
        "rules": [{**rule("*/*"), "apiGroups": ["admissionregistration.k8s.io"]}],
        "namespaceSelector": {},
    }
    made = configure("validating", ("/deny", everything))
    name = made["metadata"]["name"]
    path = f"{ADMISSION}/validatingwebhookconfigurations/{name}"
    api.merge(path, {"metadata": {"labels": {"a": "b"}}}).ok()
    api.delete(path).ok()
    assert not hook.seen("/deny")


def test_webhooks_are_called_for_each_object_of_a_deleted_collection(
    api: Api, hook: Hook, configure: Configure, namespace: str
) -> None:
    hook.on("/keep", lambda r: {"allowed": r["oldObject"]["metadata"]["name"] != "kept"})
    configure("validating", ("/keep", {"rules": [rule("configmaps", operations=("DELETE",))]}))
    for name in ("gone", "kept"):
        body = config_map(name)
        body["metadata"]["labels"] = {"group": "x"}
        api.post(maps(namespace), body).ok()
    api.delete(f"{maps(namespace)}?labelSelector=group%3Dx")
    assert api.get(maps(namespace, "kept")).status == 200


def test_webhook_configuration_is_defaulted(api: Api, hook: Hook, configure: Configure) -> None:
    made: Any = configure("mutating", ("/x", {"rules": [rule("configmaps")]}))
    webhook = made["webhooks"][0]
    found = {k: webhook[k] for k in ("failurePolicy", "matchPolicy", "timeoutSeconds")}
    assert found == {"failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10}
    assert webhook["reinvocationPolicy"] == "Never"
    assert webhook["rules"][0]["scope"] == "*"


BAD: dict[str, tuple[Object, str]] = {
    "no scheme": ({"clientConfig": {"url": "http://x/"}}, "webhooks[0].clientConfig.url"),
    "both ways": (
        {"clientConfig": {"url": "https://x/", "service": {"name": "a", "namespace": "b"}}},
        "webhooks[0].clientConfig",
    ),
    "side effects": ({"sideEffects": "Some"}, "webhooks[0].sideEffects"),
    "time": ({"timeoutSeconds": 31}, "webhooks[0].timeoutSeconds"),
    "versions": ({"admissionReviewVersions": ["v7"]}, "webhooks[0].admissionReviewVersions"),
    "name": ({"name": "short"}, "webhooks[0].name"),
    "operations": (
        {"rules": [rule("x", operations=("*", "CREATE"))]},
        "webhooks[0].rules[0].operations",
    ),
    "policy": ({"failurePolicy": "Perhaps"}, "webhooks[0].failurePolicy"),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_webhook_configuration_is_refused(api: Api, case: str) -> None:
    more, want = BAD[case]
    webhook = {
        "name": "a.hekla.test",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "rules": [rule("configmaps")],
        **more,
    }
    body = {"metadata": {"name": "bad.hekla.test"}, "webhooks": [webhook]}
    refused = api.post(f"{ADMISSION}/validatingwebhookconfigurations", body)
    assert refused.status == 422
    assert [cause["field"] for cause in refused.body["details"]["causes"]] == [want]
