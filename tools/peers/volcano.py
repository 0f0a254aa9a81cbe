"""Volcano's programs, built as `tools.kube` builds its programs, and its scheduler on a cluster.

`python -m tools.peers.volcano [name …]` builds them.

Note: Volcano schedules no queue unless its status is Open. Its controllers write that; without
them the creator of a queue must.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools.kube.cluster import KubeCluster
from tools.kube.gobuild import Part, ensure
from tools.kube.processes import free_port

_HERE = Path(__file__).parent
_MODULE = "volcano.sh/volcano"
_PERIOD = "250ms"


def _part(name: str, command: str) -> Part:
    return Part(name, _HERE / "volcano", _MODULE, f"{_MODULE}/cmd/{command}")


SCHEDULER = _part("vc-scheduler", "scheduler")
CONTROLLER_MANAGER = _part("vc-controller-manager", "controller-manager")
WEBHOOK_MANAGER = _part("vc-webhook-manager", "webhook-manager")
VCCTL = _part("vcctl", "cli")
ORACLE = Part("vc-oracle", _HERE / "volcano", _MODULE, "./oracle")
"""Sessions of the scheduler in one process, without a cluster; see `tools.peers.oracle`."""

PARTS = {
    part.name: part for part in (SCHEDULER, CONTROLLER_MANAGER, WEBHOOK_MANAGER, VCCTL, ORACLE)
}


def start_scheduler(cluster: KubeCluster, conf: Path) -> None:
    """Run it on `cluster`, which must have its CRDs, until `cluster.processes.stop`."""
    cluster.processes.start(
        SCHEDULER.name,
        [
            ensure(SCHEDULER), "--kubeconfig", cluster.kubeconfig, "--scheduler-conf", conf,
            "--leader-elect=false", f"--schedule-period={_PERIOD}", "--cache-dumper=false",
            "--kube-api-qps=5000", "--kube-api-burst=5000", "--v=3",
            f"--listen-address=127.0.0.1:{free_port()}",
            f"--healthz-address=127.0.0.1:{free_port()}",
        ],
    )  # fmt: skip


if __name__ == "__main__":
    for wanted in sys.argv[1:] or PARTS:
        print(ensure(PARTS[wanted]))
