"""Kueue's manager, built as `tools.kube` builds its own parts, and what it needs on a cluster.

It holds Jobs of batch/v1 until their quota is free; others make their pods and bind them. What a
newcomer gets wrong: its webhooks are not registered here, so a Job must come suspended and with the
label of its queue, which they would see to. Certificates it wants all the same: it starts nothing
before there are some, in a Secret for the server to read and in files to serve with.
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
"""A quota that never makes anybody wait."""

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
"""As it is shipped, for Jobs alone and with the limits lifted. Its own handling of certificates
stays on: without it their place is fixed, and outside of any directory of ours."""


def crds() -> list[Json]:
    """All its kinds, from its Go module: it watches every one."""
    words = ["go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", _MODULE]
    done = subprocess.run(words, cwd=MANAGER.folder, capture_output=True, text=True, check=True)
    bases = Path(done.stdout.strip()) / "config" / "components" / "crd" / "bases"
    return [yaml.load(file.read_text(), yaml.CSafeLoader) for file in sorted(bases.glob("*.yaml"))]


def files() -> dict[str, bytes]:
    """What its webhooks, which nobody calls, are served with."""
    now = time.time()
    pair = new_serving(new_authority(now), ["127.0.0.1"], now, subject="kueue")
    return {"tls.crt": pair.certificate, "tls.key": pair.key}


def objects(namespaces: Iterable[str]) -> list[tuple[Resource[Json], Json]]:
    """One queue with plenty for everybody, known in each of the namespaces."""
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
