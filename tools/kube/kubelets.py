"""A real Kubernetes with real kubelets on one machine, in namespaces and cgroups of its own.

    with KubeletCluster(directory, kubelets=2) as cluster:
        cluster.import_image(archive)
        client = cluster.client()

All servers run in one network namespace. It has the addresses of a cluster: the API server at
10.96.0.1, CoreDNS at 10.96.0.10, node N at 10.99.0.1N with pods in 10.77.N.0/24. A node has its own
processes and mounts. Programs outside reach the API server through a forwarded port; the
kubeconfig `kubeconfig.inside` is for programs inside (`cluster.inside`).

Note: nothing runs kube-proxy. Names of pods and headless Services resolve and are reachable, the
API server's Service too; the ClusterIP of another Service is not.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.kube import guard
from tools.kube.cluster import Address, KubeCluster, parts_for
from tools.kube.gobuild import Part, ensure
from tools.kube.gobuild import missing as missing_parts
from tools.kube.node import DNS_ADDRESS, DOMAIN, Node, NodeSettings
from tools.kube.parts import COREDNS, KWOK, NODE_PARTS, SCHEDULER

API_ADDRESS = "10.96.0.1"  # the first of the Service addresses: the Service `kubernetes`
API_PORT = 443
GATEWAY = "10.99.0.1"
_HERE = Path(__file__).parent
_FLAGS = (
    # Logs and exec: node names do not resolve.
    "--kubelet-preferred-address-types=InternalIP",
    # Webhooks with a Service are called at the addresses of its pods.
    "--enable-aggregator-routing=true",
)
_PROGRAMS = ("unshare", "nsenter", "setpriv", "mount", "ip")


def parts_with_kubelets() -> tuple[Part, ...]:
    return (*(part for part in parts_for(controllers=True) if part != KWOK), SCHEDULER, *NODE_PARTS)


def missing() -> str:
    """Return why no kubelet can run on this machine; empty if one can."""
    if os.geteuid() != 0:
        return "needs root, for the namespaces and cgroups of kubelets"
    absent = [name for name in _PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"needs {', '.join(absent)} (util-linux, iproute2)"
    if not guard.hierarchies():
        return "needs cgroups mounted below /sys/fs/cgroup"
    return missing_parts(parts_with_kubelets())


class KubeletCluster(KubeCluster):
    """A cluster whose nodes run real containers. It leaves nothing behind, even when killed.

    `scheduler`: with kube-scheduler, for pods that are not hekla's to schedule.
    """

    def __init__(
        self,
        directory: Path,
        *,
        kubelets: int = 1,
        scheduler: bool = False,
        settings: NodeSettings | None = None,
        server_flags: Sequence[str] = (),
        controller_flags: Sequence[str] = (),
        outlive: bool = False,
    ) -> None:
        super().__init__(
            directory,
            controllers=True,
            outlive=outlive,
            server_flags=(*_FLAGS, *server_flags),
            controller_flags=controller_flags,
        )
        self.server_kubeconfig = directory / "kubeconfig.inside"
        self.cgroup = f"{guard.TOP}/{os.getpid()}-{time.time_ns():x}"
        settings = settings or NodeSettings()
        self._scheduler = scheduler
        self.nodes = [Node(self, f"node-{number}", number, settings) for number in range(kubelets)]
        self._address = Address(
            host="0.0.0.0",
            port=API_PORT,
            names=("127.0.0.1", "localhost", API_ADDRESS, GATEWAY, "kubernetes.default.svc"),
            advertised=GATEWAY,
        )
        self._init = 0

    # --- processes inside -------------------------------------------------------------------

    def inside(self, *words: str | Path, init: int = 0) -> str:
        """Run a command in the cluster's namespaces, or in those of an init process."""
        command = [*self.entry(init), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr or done.stdout}")
        return done.stdout

    def entry(self, init: int = 0) -> list[str]:
        """Return a command prefix for programs in the namespaces of an init process.

        The program is killed when the process of the whole command ends.
        """
        target = ["-t", str(init or self._init), "--mount", "--net", "--pid"]
        return ["nsenter", *target, "--", "setpriv", "--pdeathsig", "KILL"]

    def await_init(self, name: str) -> int:
        """Wait for the init process of a process that was started; return it."""
        pid = self.processes.pids()[name]
        self.processes.wait_for(name, lambda: guard.init_of(pid) != 0)
        return guard.init_of(pid)

    def import_image(self, archive: Path) -> None:
        """Make an image available on every node: a file as `docker save` writes, or an OCI one."""
        for node in self.nodes:
            node.import_image(archive)

    def stop(self) -> None:
        for node in reversed(self.nodes):
            node.stop()
        super().stop()
        self._init = 0

    # --- the parts ----------------------------------------------------------------------------

    def _prepare(self) -> None:
        if reason := missing():
            raise RuntimeError(reason)
        for part in NODE_PARTS:
            ensure(part)
        self.processes.enter(())
        self.processes.start(
            "guard", [sys.executable, _HERE / "guard.py", Path(self.cgroup).name], cleans_up=True
        )
        self._init = self.await_init("guard")
        self._make_network()
        self.processes.enter(["nsenter", "-t", str(self._init), "--net", "--"])

    def _make_network(self) -> None:
        addresses = [f"{API_ADDRESS}/32", f"{DNS_ADDRESS}/32"]
        nodes = [f"{node.address}/24" for node in self.nodes]
        lines = [
            "ip link set lo up",
            *(f"ip address add {address} dev lo" for address in addresses),
            # A kubelet refuses a loopback address, and needs a default route.
            "ip link add k0 type veth peer name k0p",
            *(f"ip address add {address} dev k0" for address in (f"{GATEWAY}/24", *nodes)),
            "ip link set k0 up",
            "ip link set k0p up",
            "ip route add default dev k0",
            "echo 1 > /proc/sys/net/ipv4/ip_forward",
        ]
        self.inside("sh", "-ec", "\n".join(lines))

    def _server_of_clients(self, port: int) -> str:
        """Forward a port of this machine to the API server."""
        self._write_kubeconfig(self.server_kubeconfig, f"https://{API_ADDRESS}:{port}")
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(128)
            inherited = listening.fileno()
            words: list[str | Path] = [sys.executable, _HERE / "forward.py", str(inherited)]
            self.processes.start("forward", [*words, "127.0.0.1", str(port)], pass_fds=[inherited])
            return f"https://127.0.0.1:{listening.getsockname()[1]}"

    def _start_nodes(self) -> None:
        self._start_dns()
        if self._scheduler:
            words: list[str | Path] = [ensure(SCHEDULER), "--kubeconfig", self.server_kubeconfig]
            self.processes.start("kube-scheduler", [*words, "--leader-elect=false"])
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_ready()

    def _start_dns(self) -> None:
        corefile = self.directory / "Corefile"
        corefile.write_text(
            f"{DOMAIN}:53 in-addr.arpa:53 {{\n"
            f"    bind {DNS_ADDRESS}\n"
            "    errors\n"
            f"    kubernetes {DOMAIN} in-addr.arpa {{\n"
            f"        kubeconfig {self.server_kubeconfig} real\n"
            "        pods verified\n"
            "        ttl 1\n"
            "    }\n"
            "}\n"
        )
        self.processes.start("coredns", [ensure(COREDNS), "-conf", corefile])
