"""Field validation of manifests: Strict, Warn and Ignore."""

from __future__ import annotations

from tests.apiserver.kubectl.conftest import Kubectl
from tests.apiserver.kubectl.manifests import config_map, deployment, pod, vcjob


def test_strict_validation_refuses_unknown_fields(kubectl: Kubectl) -> None:
    wrong = pod("p", hostNames="x")
    wrong["spec"]["containers"][0]["imge"] = "x"
    said = kubectl.fails("create", "-f", "-", "--validate=strict", input=wrong)
    assert "strict decoding error" in said
    assert 'unknown field "spec.hostNames"' in said
    assert 'unknown field "spec.containers[0].imge"' in said


def test_kubectl_requests_strict_validation_by_default(kubectl: Kubectl) -> None:
    said = kubectl.fails("apply", "-f", "-", input={**config_map("c"), "dta": {}})
    assert 'unknown field "dta"' in said


def test_warn_validation_shows_warnings_and_creates_the_object(kubectl: Kubectl) -> None:
    done = kubectl.run("create", "-f", "-", "--validate=warn", input=pod("p", hostNames="x"))
    assert done.returncode == 0
    assert done.stderr == 'Warning: unknown field "spec.hostNames"\n'
    assert "hostNames" not in kubectl.json("get", "pod", "p")["spec"]


def test_validation_can_be_turned_off(kubectl: Kubectl) -> None:
    done = kubectl.run("create", "-f", "-", "--validate=false", input=pod("p", hostNames="x"))
    assert (done.returncode, done.stderr) == (0, "")


def test_custom_kinds_are_validated_alike(kubectl: Kubectl) -> None:
    said = kubectl.fails("create", "-f", "-", input=vcjob("train", minAvailble=1))
    assert 'unknown field "spec.minAvailble"' in said


def test_duplicate_fields_are_found(kubectl: Kubectl) -> None:
    text = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1","a":"2"}}'
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps?fieldValidation="
    said = kubectl.fails("create", "--raw", path + "Strict", "-f", "-", input=text)
    assert 'duplicate field "data.a"' in said
    done = kubectl.run("create", "--raw", path + "Warn", "-f", "-", input=text)
    assert done.stderr == 'Warning: duplicate field "data.a"\n'
    assert kubectl.json("get", "cm", "c")["data"] == {"a": "2"}


def test_wrong_type_names_the_field(kubectl: Kubectl) -> None:
    wrong = deployment("d", replicas="three")
    said = kubectl.fails("create", "-f", "-", input=wrong)
    assert "Error from server (BadRequest)" in said
    assert "Deployment in version" in said
    assert "replicas" in said


def test_validation_error_names_the_field(kubectl: Kubectl) -> None:
    said = kubectl.fails("create", "-f", "-", input=pod("p", containers=[]))
    assert said.startswith('The Pod "p" is invalid: ')
    assert "spec.containers: Required value" in said
    said = kubectl.fails("create", "-f", "-", input=config_map("No_Good"))
    assert 'metadata.name: Invalid value: "No_Good"' in said


def test_immutable_field_cannot_be_changed(kubectl: Kubectl) -> None:
    kubectl.create(pod("p"))
    body = '{"spec":{"containers":[{"name":"main","image":"other"}],"hostname":"x"}}'
    said = kubectl.fails("patch", "pod", "p", "-p", body)
    assert "spec: Forbidden" in said
    assert "hostname" in said
    kubectl.create(deployment("d"))
    body = '{"spec":{"selector":{"matchLabels":{"app":"other"}}}}'
    said = kubectl.fails("patch", "deploy", "d", "-p", body)
    assert "spec.selector" in said
