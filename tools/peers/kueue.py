"""Kueue's manager, built as `tools.kube` builds its programs, and the objects it needs.

It suspends Jobs of batch/v1 until their quota is available; other components create and bind their
pods.

Note: its webhooks are not registered here, so a Job must be suspended and have the queue label,
which they would set. It still starts only with certificates in a Secret and in files.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from hekla.kube.resources import NAMESPACES, SECRETS, Resource, resource
from hekla.web.certificates import new_authority, new_serving
from tools.kube.gobuild import Part

Json = dict[str, Any]

_MODULE = "sigs.k8s.io/kueue"
_API = "kueue.x-k8s.io/v1beta1"
_HOME = "kueue-system"
MANAGER = Part("kueue", Path(__file__).with_name("kueue"), _MODULE, f"{_MODULE}/cmd/kueue")
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
QUEUE = "default"
FLAVORS = resource(_API, "resourceflavors", kind="ResourceFlavor", namespaced=False)
CLUSTER_QUEUES = resource(_API, "clusterqueues", kind="ClusterQueue", namespaced=False)
LOCAL_QUEUES = resource(_API, "localqueues", kind="LocalQueue")
PLENTY = {"cpu": "10M", "memory": "10Pi"}
"""A quota that no load reaches."""

CONF = """\
apiVersion: config.kueue.x-k8s.io/v1beta1
kind: Configuration
namespace: kueue-system
health: {{healthProbeBindAddress: "0"}}
metrics: {{bindAddress: "0"}}
webhook: {{host: 127.0.0.1, port: {port}, certDir: "{directory}"}}
leaderElection: {{leaderElect: false}}
controller:
  groupKindConcurrency:
    Job.batch: 5
    Workload.kueue.x-k8s.io: 5
    LocalQueue.kueue.x-k8s.io: 1
    ClusterQueue.kueue.x-k8s.io: 1
    ResourceFlavor.kueue.x-k8s.io: 1
clientConnection: {{qps: 5000, burst: 5000}}
integrations: {{frameworks: ["batch/job"]}}
featureGates: {{VisibilityOnDemand: false}}
"""
"""The default configuration, for Jobs only and without rate limits. Its internal certificate
management stays on: without it their path is fixed."""


def crds() -> list[Json]:
    """Return all its CRDs from its Go module: it watches all kinds."""
    words = ["go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", _MODULE]
    done = subprocess.run(words, cwd=MANAGER.folder, capture_output=True, text=True, check=True)
    bases = Path(done.stdout.strip()) / "config" / "components" / "crd" / "bases"
    return [yaml.load(file.read_text(), yaml.CSafeLoader) for file in sorted(bases.glob("*.yaml"))]


def files() -> dict[str, bytes]:
    """Return the certificate of its webhooks, which are not called."""
    now = time.time()
    pair = new_serving(new_authority(now), ["127.0.0.1"], now, subject="kueue")
    return {"tls.crt": pair.certificate, "tls.key": pair.key}


def objects(namespaces: Iterable[str]) -> list[tuple[Resource[Json], Json]]:
    """Return one ClusterQueue with ample quota, and a LocalQueue in each namespace."""
    secret = {"name": "kueue-webhook-server-cert", "namespace": _HOME}
    quotas = [{"name": name, "nominalQuota": amount} for name, amount in PLENTY.items()]
    group = {"coveredResources": [*PLENTY], "flavors": [{"name": QUEUE, "resources": quotas}]}
    everywhere: Json = {}
    spec = {"namespaceSelector": everywhere, "resourceGroups": [group]}
    return [
        (NAMESPACES, {"metadata": {"name": _HOME}}),
        (SECRETS, {"metadata": secret}),
        (FLAVORS, _object(FLAVORS, {})),
        (CLUSTER_QUEUES, _object(CLUSTER_QUEUES, spec)),
        *(
            (LOCAL_QUEUES, _object(LOCAL_QUEUES, {"clusterQueue": QUEUE}, namespace=namespace))
            for namespace in namespaces
        ),
    ]


def _object(kind: Resource[Json], spec: Json, **where: str) -> Json:
    metadata = {"name": QUEUE, **where}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
