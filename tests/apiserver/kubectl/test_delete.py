"""kubectl delete and wait."""

from __future__ import annotations

from typing import Any

from tests.apiserver.kubectl.conftest import Kubectl
from tests.apiserver.kubectl.manifests import config_map, node, pod, vcjob


def names(kubectl: Kubectl, kind: str = "cm") -> list[str]:
    found = [line.partition("/")[2] for line in kubectl("get", kind, "-o", "name").split()]
    return [name for name in found if name != "kube-root-ca.crt"]  # every namespace has it


def test_delete_by_name_by_label_and_all(kubectl: Kubectl) -> None:
    labelled = config_map("b")
    labelled["metadata"]["labels"] = {"set": "x"}
    kubectl.create(config_map("a"), labelled, config_map("c"), config_map("d"))
    said = kubectl("delete", "cm", "a")
    assert said == f'configmap "a" deleted from {kubectl.namespace} namespace\n'
    assert 'configmaps "a" not found' in kubectl.fails("delete", "cm", "a")
    assert kubectl("delete", "cm", "a", "--ignore-not-found") == ""
    kubectl("delete", "cm", "-l", "set=x")
    assert names(kubectl) == ["c", "d"]
    kubectl("delete", "cm", "--all")
    assert names(kubectl) == []


def test_delete_by_manifest_and_by_field(kubectl: Kubectl) -> None:
    kubectl.create(config_map("a"), pod("p"), pod("q"))
    kubectl("delete", "-f", "-", input=[config_map("a"), pod("p")])
    assert names(kubectl) == []
    kubectl("delete", "pods", "--field-selector", "metadata.name=q")
    assert names(kubectl, "pods") == []


def test_a_dry_run_deletes_nothing(kubectl: Kubectl) -> None:
    kubectl.create(config_map("a"))
    said = kubectl("delete", "cm", "a", "--dry-run=server")
    assert said.endswith("(server dry run)\n")
    assert names(kubectl) == ["a"]


def family(kubectl: Kubectl) -> None:
    """A config map that owns another, which blocks its foreground deletion."""
    kubectl.create(config_map("parent"))
    parent = kubectl.json("get", "cm", "parent")
    child: dict[str, Any] = config_map("child")
    child["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "parent",
            "uid": parent["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
    ]
    kubectl.create(child)


def test_background_deletion_deletes_dependents_afterwards(kubectl: Kubectl) -> None:
    family(kubectl)
    kubectl("delete", "cm", "parent", "--cascade=background")
    kubectl("wait", "cm/child", "--for=delete", "--timeout=120s")
    assert names(kubectl) == []


def test_foreground_deletion_waits_for_dependents(kubectl: Kubectl) -> None:
    family(kubectl)
    kubectl("patch", "cm", "child", "-p", '{"metadata":{"finalizers":["example.com/hold"]}}')
    kubectl("delete", "cm", "parent", "--cascade=foreground", "--wait=false")
    kubectl("wait", "cm/child", "--for=jsonpath={.metadata.deletionTimestamp}", "--timeout=120s")
    parent = kubectl.json("get", "cm", "parent")
    assert parent["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert parent["metadata"]["deletionTimestamp"]
    kubectl("patch", "cm", "child", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    kubectl("wait", "cm/parent", "--for=delete", "--timeout=120s")
    assert names(kubectl) == []


def test_orphan_deletion_removes_owner_references(kubectl: Kubectl) -> None:
    family(kubectl)
    kubectl("delete", "cm", "parent", "--cascade=orphan")
    assert names(kubectl) == ["child"]
    assert "ownerReferences" not in kubectl.json("get", "cm", "child")["metadata"]


def test_finalizer_delays_deletion_and_wait_waits(kubectl: Kubectl) -> None:
    kubectl.create(config_map("a"))
    kubectl("patch", "cm", "a", "-p", '{"metadata":{"finalizers":["example.com/hold"]}}')
    with kubectl.follow("delete", "cm", "a") as deleting:
        deleting.line_with('"a" deleted')
        assert kubectl.json("get", "cm", "a")["metadata"]["deletionTimestamp"]
        kubectl("patch", "cm", "a", "--type=merge", "-p", '{"metadata":{"finalizers":[]}}')
        assert deleting.finish() == 0
    assert names(kubectl) == []


def test_bound_pod_gets_its_grace_period(kubectl: Kubectl, unique: str) -> None:
    kubectl.create(node(unique), *(pod(name, nodeName=unique) for name in ("p", "q", "r")))
    kubectl("delete", "pod", "p", "--wait=false")
    found = kubectl.json("get", "pod", "p")["metadata"]
    assert found["deletionGracePeriodSeconds"] == 30
    (row,) = (row for row in kubectl.rows("get", "pods") if row["NAME"] == "p")
    assert row["STATUS"] == "Terminating"
    kubectl("delete", "pod", "q", "--grace-period=5", "--wait=false")
    assert kubectl.json("get", "pod", "q")["metadata"]["deletionGracePeriodSeconds"] == 5
    kubectl("delete", "pod", "r", "--now", "--wait=false")
    assert kubectl.json("get", "pod", "r")["metadata"]["deletionGracePeriodSeconds"] == 1
    kubectl("delete", "pods", "--all", "--grace-period=0", "--force")
    assert names(kubectl, "pods") == []


def test_namespace_deletion_deletes_its_objects(kubectl: Kubectl, unique: str) -> None:
    name = f"{unique}-gone"
    kubectl("create", "namespace", name)
    kubectl("create", "--namespace", name, "-f", "-", input=[config_map("a"), pod("p"), vcjob("j")])
    said = kubectl("delete", "namespace", name)
    assert said == f'namespace "{name}" deleted\n'
    assert "not found" in kubectl.fails("get", "namespace", name)
    assert kubectl("get", "cm,pods,vcjob", "--namespace", name, "-o", "name") == ""


# wait


def test_wait_for_a_condition(kubectl: Kubectl) -> None:
    kubectl.create(pod("p"))
    said = kubectl.fails("wait", "pod/p", "--for=condition=Ready", "--timeout=2s")
    assert "timed out waiting for the condition on pods/p" in said
    with kubectl.follow("wait", "pod/p", "--for=condition=Ready", "--timeout=120s") as waiting:
        ready = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
        kubectl("patch", "pod", "p", "--subresource=status", "-p", ready)
        waiting.line_with("pod/p condition met")


def test_wait_for_deletion(kubectl: Kubectl) -> None:
    kubectl.create(config_map("a"))
    with kubectl.follow("wait", "cm/a", "--for=delete", "--timeout=120s") as waiting:
        kubectl("delete", "cm", "a")
        assert waiting.finish() == 0


def test_wait_for_a_value(kubectl: Kubectl) -> None:
    kubectl.create(vcjob("train"))
    path = "--for=jsonpath={.status.state.phase}=Completed"
    with kubectl.follow("wait", "vcjob/train", path, "--timeout=120s") as waiting:
        done = '{"status":{"state":{"phase":"Completed"}}}'
        kubectl("patch", "vcjob", "train", "--subresource=status", "--type=merge", "-p", done)
        waiting.line_with("job.batch.volcano.sh/train condition met")


def test_wait_for_creation(kubectl: Kubectl) -> None:
    with kubectl.follow("wait", "cm/late", "--for=create", "--timeout=120s") as waiting:
        kubectl.create(config_map("late"))
        waiting.line_with("configmap/late condition met")
