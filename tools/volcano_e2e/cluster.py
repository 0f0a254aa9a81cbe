"""The cluster under test: a real kube-apiserver and controller manager, nodes simulated by kwok,
Kubernetes' own scheduler, and hekla's scheduler, controllers and admission service as processes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from hekla.cli import release
from hekla.kube.errors import KubeError, NotFound
from hekla.kube.resources import HYPER_NODES, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, QUEUES
from hekla.kube.sync_client import SyncClient
from hekla.units.objects import Object
from tools.kube.cluster import KubeCluster
from tools.kube.gobuild import ensure
from tools.kube.parts import SCHEDULER
from tools.kube.processes import free_port
from tools.volcano_e2e.configuration import mirrored, reset
from tools.volcano_e2e.suites import Suite
from tools.waiting import until

NODE_COUNT = 4
NODE: dict[str, Any] = {"cpu": 4, "memory": "16Gi"}
"""As a node of the kind clusters for which the suites are written."""
TAINTED: dict[str, Any] = {
    "cpu": 8,
    "memory": "8Gi",
    "taints": ({"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"},),
}
NETWORK = {"cpu": "100m", "memory": "50Mi"}
KEPT = ("default", "kube-system", "kube-public", "kube-node-lease", "volcano-system")
BUILT_IN = ("root", "default")


_STAGES = Path(__file__).with_name("stages.yaml")


@contextmanager
def hekla_on_kubernetes(directory: Path, suite: Suite) -> Iterator[KubeCluster]:
    """Run a cluster with hekla, with the nodes of a suite, until the end of the block."""
    with KubeCluster(directory, controllers=True, stages=_STAGES) as cluster:
        with cluster.client() as client:
            wanted = [obj for obj in release.objects("volcano-system", {}) if _is_needed(obj)]
            release.apply(client, wanted)
        cluster.add_nodes(NODE_COUNT, **NODE)
        cluster.add_nodes(suite.tainted_nodes, prefix="kwok-node", **TAINTED)
        _occupy_nodes(cluster)
        with mirrored(cluster):
            _start_components(cluster)
            yield cluster


def _occupy_nodes(cluster: KubeCluster) -> None:
    """Run a pod on every node, as the network of a kind cluster does.

    Cases count on it: a job that asks for exactly a half of a node does not fit there twice.
    """
    with cluster.client() as client:
        for node in client.list(NODES):
            name = node["metadata"]["name"]
            container = {"name": "network", "image": "network", "resources": {"requests": NETWORK}}
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"network-{name}", "namespace": "kube-system"},
                "spec": {
                    "nodeName": name,
                    "containers": [container],
                    "tolerations": [{"operator": "Exists"}],
                },
            }
            # The account of pods is made by a controller that has just been started.
            until(partial(client.create, PODS, pod), ignored=KubeError)


def _is_needed(obj: Object) -> bool:
    return obj["kind"] in ("Namespace", "CustomResourceDefinition") or (
        obj["kind"].startswith("ValidatingAdmissionPolicy")
        or (obj["kind"] == "ConfigMap" and "scheduler" in obj["metadata"]["name"])
    )


def _start_components(cluster: KubeCluster) -> None:
    hekla = Path(sys.executable).with_name("hekla")
    port = free_port()
    # Some cases fill the cluster with pods that Kubernetes' own scheduler places.
    cluster.processes.start(
        SCHEDULER.name,
        [
            ensure(SCHEDULER), f"--kubeconfig={cluster.kubeconfig}", "--leader-elect=false",
            f"--secure-port={free_port()}", "--bind-address=127.0.0.1",
        ],
    )  # fmt: skip
    common = [f"--kubeconfig={cluster.kubeconfig}", "--leader-elect=false"]
    for component in ("scheduler", "controllers"):
        addresses = [
            f"--{name}=127.0.0.1:{free_port()}" for name in ("listen-address", "healthz-address")
        ]
        cluster.processes.start(component, [hekla, component, *common, *addresses])
    cluster.processes.start(
        "admission",
        [
            hekla, "admission", f"--kubeconfig={cluster.kubeconfig}", "--host=127.0.0.1",
            f"--port={port}", f"--url=https://127.0.0.1:{port}",
        ],
    )  # fmt: skip
    with cluster.client() as client:

        def is_open() -> bool:
            queue = client.find(QUEUES, "default")
            return ((queue or {}).get("status") or {}).get("state") == "Open"

        until(is_open)
        until(lambda: "hekla-admission" in str(client.request("GET", _WEBHOOKS)))


_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def clean(cluster: KubeCluster) -> None:
    """Delete what a case that did not end well left behind, and undo what it changed."""
    with cluster.client() as client:
        reset(client)
        for space in client.list(NAMESPACES):
            if space["metadata"]["name"] not in KEPT:
                client.delete(NAMESPACES, space["metadata"]["name"], missing_ok=True)
        until(lambda: all(s["metadata"]["name"] in KEPT for s in client.list(NAMESPACES)))
        client.delete_collection(HYPER_NODES)
        for priority in client.list(PRIORITY_CLASSES):
            if not priority["metadata"]["name"].startswith("system-"):
                client.delete(PRIORITY_CLASSES, priority["metadata"]["name"], missing_ok=True)
        for node in client.list(NODES):
            taints = TAINTED["taints"] if node["metadata"]["name"].startswith("kwok-") else ()
            wanted = {"taints": list(taints) or None, "unschedulable": None}
            client.patch(NODES, node["metadata"]["name"], {"spec": wanted})
        _delete_queues(client)


def _delete_queues(client: SyncClient) -> None:
    """Delete all queues of cases, children first: a parent is refused while it has any."""
    for _ in range(len(list(client.list(QUEUES)))):
        left = [q["metadata"]["name"] for q in client.list(QUEUES)]
        for name in set(left) - set(BUILT_IN):
            with suppress(NotFound, KubeError):
                client.delete(QUEUES, name, missing_ok=True)
        if set(left) <= set(BUILT_IN):
            break
