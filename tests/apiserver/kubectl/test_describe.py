"""kubectl describe, which reads several kinds."""

from __future__ import annotations

from tests.apiserver.kubectl.conftest import Kubectl
from tests.apiserver.kubectl.manifests import node, pod, queue, vcjob


def event(kubectl: Kubectl, about: dict[str, str], reason: str, message: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about['name']}.{reason.lower()}"},
        "involvedObject": {"namespace": kubectl.namespace, **about},
        "reason": reason,
        "message": message,
        "type": "Normal",
        "source": {"component": "hekla"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    }


def words(text: str) -> str:
    """Collapse blanks, so that alignment does not matter."""
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def test_a_pod_with_its_events(kubectl: Kubectl) -> None:
    containers = [
        {
            "name": "main",
            "image": "busybox",
            "command": ["sleep", "9"],
            "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}},
            "env": [{"name": "MODE", "value": "fast"}],
        }
    ]
    kubectl.create(pod("p", labels={"tier": "front"}, containers=containers))
    uid = kubectl.json("get", "pod", "p")["metadata"]["uid"]
    about = {"kind": "Pod", "name": "p", "uid": uid, "apiVersion": "v1"}
    kubectl.create(event(kubectl, about, "Queued", "waiting for a node"))
    text = words(kubectl("describe", "pod", "p"))
    assert "Name: p" in text
    assert "Labels: tier=front" in text
    assert "Status: Pending" in text
    assert "Image: busybox" in text
    assert "MODE: fast" in text
    assert "QoS Class: Burstable" in text
    assert "Normal Queued" in text
    assert "waiting for a node" in text


def test_a_node_with_the_pods_on_it(kubectl: Kubectl, unique: str) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": unique, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": unique, "renewTime": "2026-01-01T00:00:00.000000Z"},
    }
    kubectl.create(node(unique))
    kubectl("create", "-f", "-", "--namespace=kube-node-lease", input=lease)
    requests = {"requests": {"cpu": "1", "memory": "1Gi"}}
    container = {"name": "main", "image": "busybox", "resources": requests}
    kubectl.create(pod("p", nodeName=unique, containers=[container]))
    text = words(kubectl("describe", "node", unique))
    assert f"Name: {unique}" in text
    assert "Ready True" in text
    assert "cpu: 4" in text
    assert f"HolderIdentity: {unique}" in text
    assert "Non-terminated Pods: (1 in total)" in text
    assert f"{kubectl.namespace} p 1 (25%)" in text
    assert "memory 1Gi (12%)" in text


def test_a_namespace_with_its_quota_and_limits(kubectl: Kubectl) -> None:
    kubectl("create", "quota", "q", "--hard=pods=3")
    limits = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "500m"}}]},
    }
    kubectl.create(limits)
    kubectl("wait", "quota/q", "--for=jsonpath={.status.hard.pods}=3", "--timeout=120s")
    kubectl.create(pod("p"))
    text = words(kubectl("describe", "namespace", kubectl.namespace))
    assert "Status: Active" in text
    assert "Resource Quotas\nName: q\nResource Used Hard\n-------- --- ---\npods 1 3" in text
    assert "Container cpu - - 500m 500m -" in text


def test_a_queue(kubectl: Kubectl, unique: str) -> None:
    kubectl.create(queue(unique, capability={"cpu": "10"}))
    text = words(kubectl("describe", "queue", unique))
    assert "API Version: scheduling.volcano.sh/v1beta1" in text
    assert "Weight: 1" in text
    assert "Cpu: 10" in text


def test_a_volcano_job_with_its_events(kubectl: Kubectl) -> None:
    kubectl.create(vcjob("train"))
    uid = kubectl.json("get", "vcjob", "train")["metadata"]["uid"]
    about = {
        "kind": "Job",
        "name": "train",
        "uid": uid,
        "apiVersion": "batch.volcano.sh/v1alpha1",
    }
    kubectl.create(event(kubectl, about, "ExecuteAction", "Start to execute action"))
    text = words(kubectl("describe", "vcjob", "train"))
    assert "Kind: Job" in text
    assert "Min Available: 1" in text
    assert "Normal ExecuteAction" in text


def test_a_custom_resource_definition(kubectl: Kubectl) -> None:
    text = words(kubectl("describe", "crd", "queues.scheduling.volcano.sh"))
    assert "Group: scheduling.volcano.sh" in text
    assert "Type: Established" in text


def test_a_deployment_a_service_and_a_quota(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=nginx", "--port=80")
    kubectl("expose", "deployment", "web")
    text = words(kubectl("describe", "deploy/web", "svc/web"))
    assert "Replicas: 1 desired | 0 updated | 0 total | 0 available | 0 unavailable" in text
    assert "StrategyType: RollingUpdate" in text
    assert "Port: <unset> 80/TCP" in text


def test_events_are_listed_and_watched(kubectl: Kubectl) -> None:
    kubectl.create(pod("p"))
    about = {"kind": "Pod", "name": "p", "apiVersion": "v1"}
    kubectl.create(event(kubectl, about, "Queued", "first"))
    (row,) = kubectl.rows("events", "--for=pod/p")
    assert (row["REASON"], row["OBJECT"], row["MESSAGE"]) == ("Queued", "Pod/p", "first")
    (row,) = kubectl.rows("get", "events")
    assert (row["TYPE"], row["REASON"], row["OBJECT"]) == ("Normal", "Queued", "pod/p")
    with kubectl.follow("events", "--watch") as watching:
        watching.line_with("first")
        kubectl.create(event(kubectl, about, "Bound", "second"))
        watching.line_with("Bound", "second")
