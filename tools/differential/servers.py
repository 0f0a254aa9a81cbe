"""The two servers of a comparison: hekla's alone, and kube-apiserver with its controllers."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from hekla.api import crds
from tools.differential.samples import WIDGET_CRD, WIDGETS
from tools.differential.wire import Peer
from tools.kube.cluster import KubeCluster
from tools.kube.processes import Processes
from tools.waiting import until

_SERVED_S = 60.0
# These depend on kubelets and on the configuration of the cluster.
_SERVER_FLAGS = ("--disable-admission-plugins=StorageObjectInUseProtection",)
# Only what a namespace needs: other controllers would write asynchronously.
_CONTROLLER_FLAGS = (
    "--controllers=serviceaccount-controller,root-ca-certificate-publisher-controller",
)
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@contextlib.contextmanager
def both(directory: Path) -> Iterator[tuple[Peer, Peer]]:
    """Run both servers with the same CRDs until the block ends."""
    cluster = KubeCluster(
        directory / "real",
        controllers=True,
        server_flags=_SERVER_FLAGS,
        controller_flags=_CONTROLLER_FLAGS,
    )
    with cluster, _ours(directory) as ours:
        peers = Peer(cluster.kubeconfig), Peer(ours)
        try:
            for peer in peers:
                _install(peer)
            yield peers
        finally:
            for peer in peers:
                peer.close()


@contextlib.contextmanager
def _ours(directory: Path) -> Iterator[Path]:
    where = directory / "ours"
    where.mkdir(parents=True)
    processes = Processes(where)
    config = where / "data" / "kubeconfig"
    words = [sys.executable, "-m", "hekla.apiserver", "--data-dir", str(where / "data")]
    try:
        processes.start("hekla", words)
        processes.wait_for("hekla", config.exists)
        yield config
    finally:
        processes.stop_all()


def _install(peer: Peer) -> None:
    """Install the sample CRD, and Volcano's where they are not built in."""
    wanted = [crd for crd in crds.load() if crd["spec"]["names"]["kind"] == "PodGroup"]
    for crd in (WIDGET_CRD, *wanted):
        peer.request(
            "POST", _DEFINITIONS, {}, {"Content-Type": "application/json"},
            json.dumps(crd).encode(),
        )  # fmt: skip
    paths = (f"/apis/{WIDGETS}/v1/widgets", "/apis/scheduling.volcano.sh/v1beta1/podgroups")
    until(
        lambda: all(peer.request("GET", path).status == 200 for path in paths),
        f"{peer.kubeconfig}: the custom resources are not served",
        _SERVED_S,
    )
