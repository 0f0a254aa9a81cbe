"""The Kubernetes programs that are built. `make setup` installs kubectl."""

from __future__ import annotations

from pathlib import Path

from tools.kube.gobuild import Part

_HERE = Path(__file__).parent
_KUBERNETES = "k8s.io/kubernetes"
_HELM = "helm.sh/helm/v3"
_KWOK = "sigs.k8s.io/kwok"
_CONTAINERD = "github.com/containerd/containerd/v2"
_CNI = "github.com/containernetworking/plugins"
_COREDNS = "github.com/coredns/coredns"


_VERSION = "k8s.io/component-base/version"
# Without these, clients cannot parse the version of the server.
_KUBERNETES_STAMPS = (
    f"{_VERSION}.gitVersion={{version}}",
    f"{_VERSION}.gitMajor={{major}}",
    f"{_VERSION}.gitMinor={{minor}}",
)


def _kubernetes(name: str) -> Part:
    package = f"{_KUBERNETES}/cmd/{name}"
    return Part(name, _HERE / "kubernetes", _KUBERNETES, package, _KUBERNETES_STAMPS)


APISERVER = _kubernetes("kube-apiserver")
CONTROLLER_MANAGER = _kubernetes("kube-controller-manager")
SCHEDULER = _kubernetes("kube-scheduler")
ETCD = Part("etcd", _HERE / "etcd", "go.etcd.io/etcd/server/v3")
KWOK = Part("kwok", _HERE / "kwok", _KWOK, f"{_KWOK}/cmd/kwok")
E2E = Part(
    "e2e.test",
    _HERE / "e2e",
    _KUBERNETES,
    f"{_KUBERNETES}/test/e2e",
    _KUBERNETES_STAMPS,
    is_test=True,
)
HELM = Part(
    "helm",
    _HERE / "helm",
    _HELM,
    f"{_HELM}/cmd/helm",
    (f"{_HELM}/internal/version.version={{version}}",),
)

KUBELET = _kubernetes("kubelet")


def _containerd(name: str) -> Part:
    stamp = f"{_CONTAINERD}/version.Version={{version}}"
    return Part(name, _HERE / "containerd", _CONTAINERD, f"{_CONTAINERD}/cmd/{name}", (stamp,))


CONTAINERD = _containerd("containerd")
CTR = _containerd("ctr")
SHIM = _containerd("containerd-shim-runc-v2")


def _cni(kind: str, name: str) -> Part:
    return Part(name, _HERE / "cni", _CNI, f"{_CNI}/plugins/{kind}/{name}")


CNI = (_cni("main", "ptp"), _cni("main", "loopback"), _cni("ipam", "host-local"))
COREDNS = Part("coredns", _HERE / "coredns", _COREDNS, "./server")

NODE_PARTS = (KUBELET, CONTAINERD, CTR, SHIM, *CNI, COREDNS)
"""What runs nodes with real containers, beside runc from its Debian package."""

PARTS = {
    part.name: part
    for part in (
        ETCD,
        APISERVER,
        KWOK,
        CONTROLLER_MANAGER,
        SCHEDULER,
        HELM,
        E2E,
        *NODE_PARTS,
    )
}
