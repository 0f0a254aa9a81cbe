"""kubectl create: from files and by generators, which send protobuf."""

from __future__ import annotations

import base64
import re

from tests.apiserver.kubectl.conftest import Kubectl
from tests.apiserver.kubectl.manifests import config_map, pod, vcjob


def test_create_from_a_file_once(kubectl: Kubectl) -> None:
    assert kubectl("create", "-f", "-", input=config_map("c", a="1")) == "configmap/c created\n"
    said = kubectl.fails("create", "-f", "-", input=config_map("c"))
    assert 'Error from server (AlreadyExists): error when creating "STDIN": configmaps "c"' in said


def test_create_yaml_with_several_documents(kubectl: Kubectl) -> None:
    text = """
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data: {mode: "yes", when: "2026-01-01"}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: b}
"""
    said = kubectl("create", "-f", "-", input=text)
    assert said.splitlines() == ["configmap/a created", "configmap/b created"]
    assert kubectl.json("get", "cm", "a")["data"] == {"mode": "yes", "when": "2026-01-01"}


def test_what_get_prints_can_be_created_again(kubectl: Kubectl) -> None:
    """kubectl validates a list itself, by the schemas that the server publishes."""
    kubectl.create(config_map("c", a="1"), pod("p"), vcjob("train"))
    printed = kubectl("get", "cm/c", "pod/p", "vcjob/train", "-o", "yaml")
    assert "kind: List" in printed
    kubectl("delete", "cm/c", "pod/p", "vcjob/train")
    said = kubectl(
        "create", "-f", "-", input=re.sub(r"(?m)^ +(uid|resourceVersion): .*$", "", printed)
    )
    assert said.splitlines() == [
        "configmap/c created",
        "pod/p created",
        "job.batch.volcano.sh/train created",
    ]
    listed = {"apiVersion": "v1", "kind": "List", "items": [{**config_map("d"), "dta": {}}]}
    assert 'unknown field "dta"' in kubectl.fails("create", "-f", "-", input=listed)


def test_generate_name_makes_a_fresh_name_each_time(kubectl: Kubectl) -> None:
    manifest = config_map("x")
    manifest["metadata"] = {"generateName": "run-"}
    names = {kubectl("create", "-f", "-", "-o", "name", input=manifest) for _ in range(2)}
    assert len(names) == 2
    assert all(name.startswith("configmap/run-") for name in names)


def test_the_namespace_generator(kubectl: Kubectl, unique: str) -> None:
    name = f"{unique}-more"
    assert kubectl("create", "namespace", name) == f"namespace/{name} created\n"
    found = kubectl.json("get", "ns", name)
    assert found["status"] == {"phase": "Active"}
    assert found["spec"]["finalizers"] == ["kubernetes"]
    assert found["metadata"]["labels"]["kubernetes.io/metadata.name"] == name


def test_the_configmap_and_secret_generators(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "c", "--from-literal=a=1", "--from-literal=b=two words")
    assert kubectl.json("get", "cm", "c")["data"] == {"a": "1", "b": "two words"}
    kubectl("create", "secret", "generic", "s", "--from-literal=password=geheim")
    secret = kubectl.json("get", "secret", "s")
    assert secret["type"] == "Opaque"
    assert base64.b64decode(secret["data"]["password"]) == b"geheim"
    (row,) = kubectl.rows("get", "secret")
    assert (row["TYPE"], row["DATA"]) == ("Opaque", "1")


def test_the_quota_generator(kubectl: Kubectl) -> None:
    kubectl("create", "quota", "q", "--hard=pods=2,requests.cpu=1,limits.memory=1Gi")
    kubectl("wait", "quota/q", "--for=jsonpath={.status.hard.pods}=2", "--timeout=120s")
    (row,) = kubectl.rows("get", "quota")
    assert row["REQUEST"] == "pods: 0/2, requests.cpu: 0/1"
    assert row["LIMIT"] == "limits.memory: 0/1Gi"


def test_the_role_and_binding_generators(kubectl: Kubectl, unique: str) -> None:
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods,jobs.batch.volcano.sh")
    rules = kubectl.json("get", "role", "reader")["rules"]
    assert {"apiGroups": ["batch.volcano.sh"], "resources": ["jobs"], "verbs": ["get", "list"]} in (
        rules
    )
    kubectl("create", "rolebinding", "readers", "--role=reader", "--user=ann", "--group=devs")
    (row,) = kubectl.rows("get", "rolebinding", "-o", "wide")
    assert (row["ROLE"], row["USERS"], row["GROUPS"]) == ("Role/reader", "ann", "devs")
    kubectl("create", "clusterrole", unique, "--verb=get", "--non-resource-url=/metrics")
    binding = ("--clusterrole", unique, f"--serviceaccount={kubectl.namespace}:bot")
    kubectl("create", "clusterrolebinding", unique, *binding)
    (row,) = kubectl.rows("get", "clusterrolebinding", unique, "-o", "wide")
    assert row["SERVICEACCOUNTS"] == f"{kubectl.namespace}/bot"


def test_the_service_account_generator(kubectl: Kubectl) -> None:
    assert kubectl("create", "serviceaccount", "bot") == "serviceaccount/bot created\n"
    kubectl("wait", "sa/default", "--for=create", "--timeout=120s")
    assert kubectl("get", "sa", "-o", "name").split() == [
        "serviceaccount/bot",
        "serviceaccount/default",
    ]


def test_the_job_and_cronjob_generators(kubectl: Kubectl) -> None:
    kubectl("create", "job", "once", "--image=busybox", "--", "sleep", "1")
    container = kubectl.json("get", "jobs.batch", "once")["spec"]["template"]["spec"]["containers"]
    assert container[0]["command"] == ["sleep", "1"]
    (row,) = kubectl.rows("get", "jobs.batch")
    assert (row["STATUS"], row["COMPLETIONS"]) == ("Running", "0/1")
    kubectl("create", "cronjob", "nightly", "--image=busybox", "--schedule=0 3 * * *")
    (row,) = kubectl.rows("get", "cronjobs.batch")
    assert (row["SCHEDULE"], row["SUSPEND"], row["ACTIVE"]) == ("0 3 * * *", "False", "0")
    said = kubectl("create", "job", "now", "--from=cronjob/nightly")
    assert said == "job.batch/now created\n"


def test_the_deployment_and_service_generators(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=nginx", "--replicas=3", "--port=80")
    (row,) = kubectl.rows("get", "deploy", "-o", "wide")
    assert (row["READY"], row["CONTAINERS"], row["SELECTOR"]) == ("0/3", "nginx", "app=web")
    assert kubectl("expose", "deployment", "web") == "service/web exposed\n"
    (row,) = kubectl.rows("get", "svc", "-o", "wide")
    assert (row["TYPE"], row["PORT(S)"], row["SELECTOR"]) == ("ClusterIP", "80/TCP", "app=web")


def test_the_other_generators(kubectl: Kubectl, unique: str) -> None:
    kubectl("create", "priorityclass", unique, "--value=1000", "--description=first")
    (row,) = kubectl.rows("get", "pc", unique)
    assert (row["VALUE"], row["GLOBAL-DEFAULT"]) == ("1000", "false")
    kubectl("create", "pdb", "budget", "--selector=app=web", "--max-unavailable=10%")
    (row,) = kubectl.rows("get", "pdb")
    assert (row["MIN AVAILABLE"], row["MAX UNAVAILABLE"]) == ("N/A", "10%")
    kubectl("create", "ingress", "front", "--rule=example.com/=web:80")
    (row,) = kubectl.rows("get", "ing")
    assert (row["HOSTS"], row["PORTS"]) == ("example.com", "80")


def test_run_starts_a_pod(kubectl: Kubectl) -> None:
    said = kubectl(
        "run", "p", "--image=busybox", "--restart=Never", "--env=A=b", "--", "sleep", "9"
    )
    assert said == "pod/p created\n"
    spec = kubectl.json("get", "pod", "p")["spec"]
    assert spec["restartPolicy"] == "Never"
    assert spec["containers"][0]["args"] == ["sleep", "9"]
    assert spec["containers"][0]["env"] == [{"name": "A", "value": "b"}]


def test_exceeded_quota_is_named_in_the_error(kubectl: Kubectl) -> None:
    kubectl("create", "quota", "q", "--hard=pods=1")
    kubectl("wait", "quota/q", "--for=jsonpath={.status.hard.pods}=1", "--timeout=120s")
    kubectl.create(pod("a"))
    said = kubectl.fails("create", "-f", "-", input=pod("b"))
    assert "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1" in said


def test_create_in_a_missing_namespace_is_not_found(kubectl: Kubectl) -> None:
    manifest = config_map("c")
    manifest["metadata"]["namespace"] = "nowhere"
    said = kubectl.fails("create", "--namespace=nowhere", "-f", "-", input=manifest)
    assert 'namespaces "nowhere" not found' in said
