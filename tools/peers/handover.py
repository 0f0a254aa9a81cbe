"""`python -m tools.peers.handover FILE`: record the objects of a cluster that runs Volcano.

Starts Kubernetes with Volcano's CRDs, controllers and scheduler, submits work, stops them in the
middle and records every object. tests/install migrates these objects to hekla. The programs take
minutes to build, so the record is kept; run this again for another version.

Note: Volcano's webhooks do not run here, so the jobs are submitted with all defaults. Descriptions
in CRDs and keys in Secrets are not recorded.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from hekla.kube import resources as kinds
from hekla.kube.errors import KubeError
from hekla.kube.sync_client import SyncClient
from tools.kube.cluster import KubeCluster
from tools.kube.gobuild import ensure
from tools.kube.processes import free_port
from tools.peers.volcano import CONTROLLER_MANAGER, SCHEDULER, start_scheduler
from tools.waiting import until

Json = dict[str, Any]
NAMESPACE = "team"
NODES, CPU = 3, 4
KEPT = (
    kinds.QUEUES, kinds.PRIORITY_CLASSES, kinds.JOB_TEMPLATES, kinds.JOB_FLOWS, kinds.CRON_JOBS,
    kinds.JOBS, kinds.DEPLOYMENTS, kinds.REPLICA_SETS, kinds.PODGROUPS, kinds.SERVICES,
    kinds.CONFIGMAPS, kinds.SECRETS, kinds.NETWORK_POLICIES, kinds.PODS,
)  # fmt: skip
"""Owners before their dependents."""
CONF = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: overcommit}, {name: drf}, {name: predicates}, {name: proportion}]
- plugins: [{name: nodeorder}]
"""


def record() -> Json:
    with tempfile.TemporaryDirectory(prefix="hekla-handover-") as where:
        cluster = KubeCluster(Path(where) / "cluster", controllers=True)
        with cluster, cluster.client() as client:
            definitions = crds()
            for crd in definitions:
                client.create(kinds.CUSTOM_RESOURCE_DEFINITIONS, crd)
            until(lambda: serves(client))
            cluster.add_nodes(NODES, cpu=CPU)
            client.create(kinds.NAMESPACES, {"metadata": {"name": NAMESPACE}})
            start(cluster)
            give_work(client)
            stop(cluster)
            objects = [obj for kind in KEPT for obj in stored(client, kind)]
    version = SCHEDULER.version
    return {"volcano": version, "crds": list(map(_bare, definitions)), "objects": objects}


def crds() -> list[Json]:
    """Return Volcano's CRDs from its Go module."""
    words = ["go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", SCHEDULER.module]
    done = subprocess.run(words, cwd=SCHEDULER.folder, capture_output=True, text=True, check=True)
    chart = Path(done.stdout.strip()) / "installer" / "helm" / "chart" / "volcano"
    files = [*chart.glob("crd/bases/*.yaml"), *chart.glob("charts/jobflow/crd/bases/*.yaml")]
    return [yaml.load(path.read_text(), yaml.CSafeLoader) for path in sorted(files)]


def start(cluster: KubeCluster) -> None:
    conf = cluster.directory / "volcano-scheduler.conf"
    conf.write_text(CONF)
    start_scheduler(cluster, conf)
    cluster.processes.start(
        CONTROLLER_MANAGER.name,
        [
            ensure(CONTROLLER_MANAGER), "--kubeconfig", cluster.kubeconfig, "--leader-elect=false",
            f"--listen-address=127.0.0.1:{free_port()}",
            f"--healthz-address=127.0.0.1:{free_port()}",
        ],
    )  # fmt: skip


def stop(cluster: KubeCluster) -> None:
    for part in (CONTROLLER_MANAGER, SCHEDULER):
        cluster.processes.stop(part.name)


def serves(client: SyncClient) -> bool:
    try:
        return client.list(kinds.JOBS) is not None and client.list(kinds.JOB_FLOWS) is not None
    except KubeError:
        return False


# --- the work -----------------------------------------------------------------------------------


def job(name: str, replicas: int, *, cpu: str = "1", **spec: Any) -> Json:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    task = {"name": "worker", "replicas": replicas, "minAvailable": replicas, "template": template}
    whole: Json = {"queue": "default", "schedulerName": "volcano", "maxRetry": 3, **spec}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"minAvailable": replicas, **whole, "tasks": [task]},
    }


def give_work(client: SyncClient) -> None:
    """Create objects of each kind in each stable state."""
    until(partial(_is_open, client, "default"))
    specs: dict[str, dict[str, object]] = {
        "research": {"weight": 3, "capability": {"cpu": "8"}},
        "shut": {"weight": 1},
    }
    for name, spec in specs.items():
        whole = {"reclaimable": True, "parent": "root", **spec}
        client.create(kinds.QUEUES, {"metadata": {"name": name}, "spec": whole})
        until(partial(_is_open, client, name))
    _command(client, kinds.QUEUES, "shut", "CloseQueue")
    until(lambda: _state(client, "shut") == "Closed")

    plugins: Json = {"env": [], "svc": [], "ssh": []}
    _make(client, kinds.JOBS, job("done", 1))
    _runs(client, "done")
    _finish(client, "done-worker-0")
    until(lambda: _phase(client, "done") == "Completed")
    _make(client, kinds.JOBS, job("stopped", 1))
    _runs(client, "stopped")
    _command(client, kinds.JOBS, "stopped", "AbortJob")
    until(lambda: _phase(client, "stopped") == "Aborted")
    _make(client, kinds.JOBS, job("train", 4, queue="research", plugins=plugins))
    _runs(client, "train")
    _flow(client)
    _cron(client)
    _deployment(client)
    _make(client, kinds.JOBS, job("waits", 9))
    until(lambda: _phase(client, "waits") == "Pending" and _group_told(client, "waits"))


def _flow(client: SyncClient) -> None:
    for name in ("first", "second"):
        template = {"metadata": {"name": name}, "spec": job(name, 1)["spec"]}
        _make(client, kinds.JOB_TEMPLATES, template)
    steps = [{"name": "first"}, {"name": "second", "dependsOn": {"targets": ["first"]}}]
    spec = {"flows": steps, "jobRetainPolicy": "retain"}
    _make(client, kinds.JOB_FLOWS, {"metadata": {"name": "flow"}, "spec": spec})
    _runs(client, "flow-first")


def _cron(client: SyncClient) -> None:
    template = {"spec": job("nightly", 1)["spec"]}
    spec = {"schedule": "0 3 1 1 *", "concurrencyPolicy": "Forbid", "jobTemplate": template}
    _make(client, kinds.CRON_JOBS, {"metadata": {"name": "nightly"}, "spec": spec})


def _deployment(client: SyncClient) -> None:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"schedulerName": "volcano", "containers": [container]},
    }
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    _make(client, kinds.DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec})
    until(lambda: len([p for p in _pods(client, "web-") if p["status"]["phase"] == "Running"]) == 2)


def _make(client: SyncClient, kind: kinds.Resource[Any], body: Json) -> None:
    client.create(kind, body, namespace=NAMESPACE)


def _state(client: SyncClient, queue: str) -> str:
    found = client.find(kinds.QUEUES, queue) or {}
    return str((found.get("status") or {}).get("state", ""))


def _is_open(client: SyncClient, queue: str) -> bool:
    return _state(client, queue) == "Open"


def _phase(client: SyncClient, name: str) -> str:
    found = client.find(kinds.JOBS, name, namespace=NAMESPACE) or {}
    return str(((found.get("status") or {}).get("state") or {}).get("phase", ""))


def _runs(client: SyncClient, name: str) -> None:
    until(lambda: _phase(client, name) == "Running")
    until(lambda: all(p["status"]["phase"] == "Running" for p in _pods(client, f"{name}-")))


def _pods(client: SyncClient, prefix: str) -> list[Json]:
    found = client.list(kinds.PODS, namespace=NAMESPACE).items
    return [pod for pod in found if pod["metadata"]["name"].startswith(prefix)]


def _finish(client: SyncClient, pod: str) -> None:
    note = {"metadata": {"annotations": {"hekla.test/finish": "Succeeded"}}}
    client.patch(kinds.PODS, pod, note, namespace=NAMESPACE)


def _group_told(client: SyncClient, name: str) -> bool:
    groups = client.list(kinds.PODGROUPS, namespace=NAMESPACE).items
    found = [group for group in groups if group["metadata"]["name"].startswith(f"{name}-")]
    return bool(found and (found[0].get("status") or {}).get("conditions"))


def _command(client: SyncClient, kind: kinds.Resource[Any], name: str, action: str) -> None:
    space = NAMESPACE if kind.namespaced else None
    found = client.get(kind, name, namespace=space)
    target = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name,
        "uid": found["metadata"]["uid"],
        "controller": True,
    }
    body = {"metadata": {"generateName": "c-", "ownerReferences": [target]}, "action": action}
    # As vcctl: a Command for a queue is in `default`.
    client.create(kinds.COMMANDS, {**body, "target": target}, namespace=space or "default")


# --- the record ---------------------------------------------------------------------------------


def stored(client: SyncClient, kind: kinds.Resource[Any]) -> list[Json]:
    """Return the objects of a kind without fields that the server sets."""
    found = client.list(kind, namespace=NAMESPACE if kind.namespaced else None).items
    made = []
    for obj in found:
        name = obj["metadata"]["name"]
        if name.startswith("system-") or name == "kube-root-ca.crt":
            continue
        for key in ("managedFields", "resourceVersion", "generation", "selfLink"):
            obj["metadata"].pop(key, None)
        if kind is kinds.SECRETS:
            obj["data"] = dict.fromkeys(obj["data"], "bm90IGtlcHQ=")
        made.append({"apiVersion": kind.api_version, "kind": kind.kind, **obj})
    return made


def _bare(value: Any) -> Any:
    """Return a CRD without descriptions."""
    if isinstance(value, list):
        return [_bare(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _bare(each)
        for key, each in value.items()
        if not (key == "description" and isinstance(each, str))
    }


if __name__ == "__main__":
    text = json.dumps(record(), indent=0, sort_keys=True).encode()
    Path(sys.argv[1]).write_bytes(gzip.compress(text, mtime=0))
