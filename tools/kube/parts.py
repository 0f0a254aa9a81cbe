"""The parts of Kubernetes that are built. kubectl is not among them: `make setup` installs it."""

from __future__ import annotations

from pathlib import Path

from tools.kube.gobuild import Part

_HERE = Path(__file__).parent
_KUBERNETES = "k8s.io/kubernetes"
_HELM = "helm.sh/helm/v3"
_KWOK = "sigs.k8s.io/kwok"


def _kubernetes(name: str) -> Part:
    # Without a version clients cannot parse what the server says about itself.
    stamp = "k8s.io/component-base/version"
    return Part(name, _HERE / "kubernetes", _KUBERNETES, f"{_KUBERNETES}/cmd/{name}", stamp)


APISERVER = _kubernetes("kube-apiserver")
CONTROLLER_MANAGER = _kubernetes("kube-controller-manager")
SCHEDULER = _kubernetes("kube-scheduler")
ETCD = Part("etcd", _HERE / "etcd", "go.etcd.io/etcd/server/v3")
KWOK = Part("kwok", _HERE / "kwok", _KWOK, f"{_KWOK}/cmd/kwok")
HELM = Part("helm", _HERE / "helm", _HELM, f"{_HELM}/cmd/helm")

PARTS = {part.name: part for part in (ETCD, APISERVER, KWOK, CONTROLLER_MANAGER, SCHEDULER, HELM)}
