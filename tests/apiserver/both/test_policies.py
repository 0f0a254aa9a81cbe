"""ValidatingAdmissionPolicy on hekla's API server and kube-apiserver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tools.waiting import until

from hekla.units.objects import Object
from tests.apiserver.both.conftest import ADMISSION, Api, rule

Enact = Callable[..., Object]


def maps(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps" + (f"/{name}" if name else "")


def config_map(name: str, **data: str) -> Object:
    return {"metadata": {"name": name}, "data": data}


@pytest.fixture
def enact(api: Api, namespace: str, unique: str) -> Iterator[Enact]:
    """Create a policy on config maps and a binding to the namespace; wait until it is active."""
    made: list[str] = []

    def enact(
        validations: list[Object], binding: Object | None = None, probe: bool = True, **spec: Any
    ) -> Object:
        name = f"{unique}-{len(made)}"
        marker = {"expression": "object == null || object.metadata.name != 'probe'"}
        body = {
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {"resourceRules": [rule("configmaps")]},
                "validations": [{**marker, "message": f"{name} is in force"}, *validations],
                **spec,
            },
        }
        created = api.post(f"{ADMISSION}/validatingadmissionpolicies", body).ok()
        bound = {
            "metadata": {"name": name},
            "spec": {
                "policyName": name,
                "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": {"matchLabels": {"test": unique}}},
                **(binding or {}),
            },
        }
        api.post(f"{ADMISSION}/validatingadmissionpolicybindings", bound).ok()
        made.extend(
            [
                f"{ADMISSION}/validatingadmissionpolicybindings/{name}",
                f"{ADMISSION}/validatingadmissionpolicies/{name}",
            ]
        )
        path = f"{maps(namespace)}?dryRun=All"

        def is_obeyed() -> bool:
            reply = api.post(path, config_map("probe"))
            return f"{name} is in force" in str(reply.body) + str(reply.warnings)

        if probe:
            until(is_obeyed)
        return created

    yield enact
    for path in made:
        api.delete(path)


def test_policy_denies_with_its_message(api: Api, enact: Enact, namespace: str) -> None:
    policy = enact([{"expression": "object.data.x != 'bad'", "message": "x may not be bad"}])
    name = policy["metadata"]["name"]
    api.post(maps(namespace), config_map("a", x="good")).ok()
    denied = api.post(maps(namespace), config_map("b", x="bad"))
    said = (
        f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: x may not be bad"
    )
    assert denied.message == f'configmaps "b" is forbidden: {said}'
    assert (denied.status, denied.body["reason"]) == (422, "Invalid")
    assert denied.body["details"]["causes"] == [{"message": said}]
    refused = api.merge(maps(namespace, "a"), {"data": {"x": "bad"}})
    assert said in refused.message


def test_denial_without_message_quotes_the_expression(
    api: Api, enact: Enact, namespace: str
) -> None:
    enact([{"expression": "object.data.x == 'good'", "reason": "Forbidden"}])
    denied = api.post(maps(namespace), config_map("b", x="bad"))
    assert denied.message.endswith("denied request: failed expression: object.data.x == 'good'")
    assert (denied.status, denied.body["reason"]) == (403, "Forbidden")


def test_message_expression_is_evaluated(api: Api, enact: Enact, namespace: str) -> None:
    enact(
        [
            {
                "expression": "variables.x == 'good'",
                "messageExpression": "'x is ' + variables.x + ' in ' + variables.home",
                "message": "unused",
            }
        ],
        variables=[
            {"name": "home", "expression": "namespaceObject.metadata.name"},
            {"name": "data", "expression": "has(object.data) ? object.data : {}"},
            {"name": "x", "expression": "'x' in variables.data ? variables.data.x : 'missing'"},
        ],
    )
    denied = api.post(maps(namespace), config_map("b", x="bad"))
    assert denied.message.endswith(f"denied request: x is bad in {namespace}")
    denied = api.post(maps(namespace), {"metadata": {"name": "c"}})
    assert denied.message.endswith(f"denied request: x is missing in {namespace}")


def test_binding_with_warn_action_adds_a_warning(api: Api, enact: Enact, namespace: str) -> None:
    rules = [{"expression": "object.data.x != 'bad'", "message": "x is bad"}]
    name = enact(rules, {"validationActions": ["Warn", "Audit"]})["metadata"]["name"]
    made = api.post(maps(namespace), config_map("b", x="bad"))
    assert made.status == 201
    assert made.warnings == [
        f"Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{name}': x is bad"
    ]


def test_failing_expression_is_ignored_with_failure_policy_ignore(
    api: Api, enact: Enact, namespace: str
) -> None:
    enact([{"expression": "object.data.missing == 'x'"}], failurePolicy="Ignore")
    api.post(maps(namespace), config_map("a", x="1")).ok()


def test_failing_expression_denies_by_default(api: Api, enact: Enact, namespace: str) -> None:
    enact([{"expression": "object.data.missing == 'x'"}])
    denied = api.post(maps(namespace), config_map("b", x="1"))
    assert denied.status == 422
    assert "expression 'object.data.missing == 'x'' resulted in error: " in denied.message


def test_match_conditions_select_writes_for_a_policy(
    api: Api, enact: Enact, namespace: str
) -> None:
    enact(
        [{"expression": "false", "message": "never"}],
        matchConditions=[
            {"name": "marked", "expression": "object.metadata.name in ['probe', 'judged']"}
        ],
    )
    api.post(maps(namespace), config_map("free")).ok()
    assert api.post(maps(namespace), config_map("judged")).message.endswith("never")


def test_parameters_come_from_the_paramref_of_the_binding(
    api: Api, enact: Enact, namespace: str
) -> None:
    limits = {"metadata": {"name": "limits", "labels": {"is": "limit"}}, "data": {"most": "3"}}
    api.post(maps(namespace), limits).ok()
    rules = [
        {
            "expression": "!has(object.data) || size(object.data) <= int(params.data.most)",
            "messageExpression": "'at most ' + params.data.most",
        }
    ]
    enact(
        rules,
        {"paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"}},
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
    )
    api.post(maps(namespace), config_map("a", a="", b="", c="")).ok()
    denied = api.post(maps(namespace), config_map("b", a="", b="", c="", d=""))
    assert denied.message.endswith("denied request: at most 3")


def test_every_selected_parameter_must_be_satisfied(api: Api, enact: Enact, namespace: str) -> None:
    for name, most in (("wide", "5"), ("narrow", "1")):
        labels = {"is": "limit"}
        body = {"metadata": {"name": name, "labels": labels}, "data": {"most": most}}
        api.post(maps(namespace), body).ok()
    enact(
        [{"expression": "!has(object.data) || size(object.data) <= int(params.data.most)"}],
        {
            "paramRef": {
                "selector": {"matchLabels": {"is": "limit"}},
                "parameterNotFoundAction": "Allow",
            }
        },
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
    )
    api.post(maps(namespace), config_map("a", a="")).ok()
    assert api.post(maps(namespace), config_map("b", a="", b="")).status == 422


def test_missing_parameters_are_handled_by_parameter_not_found_action(
    api: Api, enact: Enact, namespace: str
) -> None:
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    enact(
        [],
        {"paramRef": {"name": "gone", "parameterNotFoundAction": "Allow"}},
        probe=False,
        paramKind=kind,
    )
    api.post(maps(namespace), config_map("a")).ok()
    enact(
        [],
        {"paramRef": {"name": "gone", "parameterNotFoundAction": "Deny"}},
        probe=False,
        paramKind=kind,
    )
    path = f"{maps(namespace)}?dryRun=All"
    until(lambda: api.post(path, config_map("b")).status == 422)
    assert "no params found" in api.post(path, config_map("b")).message


def test_a_deletion_has_only_an_old_object(api: Api, enact: Enact, namespace: str) -> None:
    enact(
        [
            {
                "expression": "request.operation != 'DELETE' || oldObject.data.keep != 'yes'",
                "message": "it is to be kept",
            }
        ]
    )
    api.post(maps(namespace), config_map("a", keep="yes")).ok()
    assert api.delete(maps(namespace, "a")).message.endswith("it is to be kept")


BAD: dict[str, tuple[Object, str]] = {
    "syntax": ({"validations": [{"expression": "object.x +"}]}, "spec.validations[0].expression"),
    "unknown variable": (
        {"validations": [{"expression": "foo"}]},
        "spec.validations[0].expression",
    ),
    "not a claim": ({"validations": [{"expression": "'x'"}]}, "spec.validations[0].expression"),
    "message": (
        {"validations": [{"expression": "true", "messageExpression": "1"}]},
        "spec.validations[0].messageExpression",
    ),
    "reason": (
        {"validations": [{"expression": "true", "reason": "Whim"}]},
        "spec.validations[0].reason",
    ),
    "parameters of no kind": (
        {"validations": [{"expression": "params.x == 1"}]},
        "spec.validations[0].expression",
    ),
    "no rules": (
        {"validations": [{"expression": "true"}], "matchConstraints": {}},
        "spec.matchConstraints.resourceRules",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_policy_that_does_not_compile_is_refused(api: Api, unique: str, case: str) -> None:
    spec, want = BAD[case]
    body = {
        "metadata": {"name": unique},
        "spec": {"matchConstraints": {"resourceRules": [rule("configmaps")]}, **spec},
    }
    refused = api.post(f"{ADMISSION}/validatingadmissionpolicies", body)
    assert refused.status == 422
    assert want in [cause["field"] for cause in refused.body["details"]["causes"]]


def test_binding_needs_validation_actions(api: Api, unique: str) -> None:
    path = f"{ADMISSION}/validatingadmissionpolicybindings"
    for actions in ([], ["Deny", "Warn"], ["Perhaps"]):
        body = {
            "metadata": {"name": unique},
            "spec": {"policyName": "x", "validationActions": actions},
        }
        refused = api.post(path, body)
        assert refused.status == 422
        (cause, *_) = refused.body["details"]["causes"]
        assert cause["field"].startswith("spec.validationActions")
