"""A real Kubernetes in a directory: etcd, kube-apiserver with TLS and RBAC, kwok nodes.

    with KubeCluster(directory) as cluster:
        cluster.add_nodes(3, cpu=8, memory="32Gi")
        client = cluster.client()

kubeconfig      of an administrator, with a bearer token
audit.log       every request, one JSON object per line
NAME.log        the output of a process

Webhooks are reachable by URL (`https://127.0.0.1:…`): the server runs on this machine.

Note: without the controller manager there are no service accounts, no garbage collection and no
namespace deletion; a test that needs them sets `controllers=True`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from hekla.kube import kubeconfig
from hekla.kube.errors import KubeError
from hekla.kube.resources import NODES
from hekla.kube.retries import RetryPolicy
from hekla.kube.sync_client import SyncClient
from hekla.web.certificates import new_authority, new_serving
from tools.kube.gobuild import Part, ensure
from tools.kube.parts import APISERVER, CONTROLLER_MANAGER, ETCD, KWOK
from tools.kube.processes import Processes, StartFailed, free_port

Amount = str | int
KWOK_NODE = {"kwok.x-k8s.io/node": "fake"}
_STAGES = Path(__file__).with_name("stages.yaml")
_TRIES = 3
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
}
_AUDIT_RULES: Sequence[Mapping[str, Any]] = ({"level": "Metadata"},)


@dataclass(frozen=True)
class Address:
    """Where an API server listens, and under which addresses it is reached."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: any free port."""
    names: tuple[str, ...] = ("127.0.0.1", "localhost")
    advertised: str = "127.0.0.1"


def parts_for(*, controllers: bool = False) -> tuple[Part, ...]:
    """The programs of a cluster."""
    parts = (ETCD, APISERVER, KWOK)
    return (*parts, CONTROLLER_MANAGER) if controllers else parts


class KubeCluster:
    """One cluster; the directory with its logs remains when it stops.

    It ends with the process that started it, unless `outlive` is set. Without `node_leases`
    kwok renews no leases, which would keep the server busy with thousands of nodes. `stages` says
    how kwok's pods live.
    """

    def __init__(
        self,
        directory: Path,
        *,
        controllers: bool = False,
        outlive: bool = False,
        node_leases: bool = True,
        audit_rules: Sequence[Mapping[str, Any]] = _AUDIT_RULES,
        server_flags: Sequence[str] = (),
        controller_flags: Sequence[str] = (),
        stages: Path = _STAGES,
    ) -> None:
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self.server_kubeconfig = self.kubeconfig  # of the processes of the cluster
        self.audit_log = directory / "audit.log"
        self.processes = Processes(directory, outlive=outlive)
        self._controllers = controllers
        self._stages = stages
        self._node_leases = node_leases
        self._server_flags = tuple(server_flags)
        self._controller_flags = tuple(controller_flags)
        self._audit = {**_AUDIT, "rules": list(audit_rules)}
        self._address = Address()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        programs = {part.name: ensure(part) for part in parts_for(controllers=self._controllers)}
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._write_secrets()
        try:
            self._prepare()
            self._start_servers(programs)
            if self._controllers:
                self._start_controllers(programs[CONTROLLER_MANAGER.name])
            self._start_nodes()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self.processes.stop_all()

    def restart(self, name: str, *, kill: bool = False) -> None:
        """Restart a component on the same port; return when the API server responds."""
        self.processes.restart(name, kill=kill)
        self.processes.wait_for("kube-apiserver", self._is_ready)

    def client(self) -> SyncClient:
        """Return an administrator's client. One connection: not thread-safe."""
        return SyncClient(kubeconfig.load(self.kubeconfig), component="tools")

    def add_nodes(self, count: int, *, prefix: str = "node", **shape: Any) -> list[str]:
        """Add equal nodes `prefix-0` …; the options are those of `node_manifest`."""
        names = [f"{prefix}-{number}" for number in range(count)]
        with self.client() as client:
            for name in names:
                client.create(NODES, node_manifest(name, **shape))
        return names

    def _prepare(self) -> None:
        """Do what the servers need first."""

    def _start_nodes(self) -> None:
        start_kwok(
            self.processes, self.kubeconfig, node_leases=self._node_leases, stages=self._stages
        )

    def _server_of_clients(self, port: int) -> str:
        """Return the address that the kubeconfig names."""
        return f"https://127.0.0.1:{port}"

    # --- the parts ----------------------------------------------------------------------------

    def _write_secrets(self) -> None:
        now = time.time()
        authority = new_authority(now, "hekla-test-kubernetes")
        serving = new_serving(authority, self._address.names, now, subject="kube-apiserver")
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._token = secrets.token_hex(24)
        self._ca = authority.certificate
        files = {
            "ca.crt": authority.certificate,
            "server.crt": serving.certificate,
            "server.key": serving.key,
            "accounts.key": key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
            "accounts.pub": key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            ),
            "tokens.csv": f'{self._token},admin,admin,"system:masters"\n'.encode(),
            "audit-policy.yaml": yaml.safe_dump(self._audit).encode(),
        }
        for name, content in files.items():
            path = self.directory / name
            path.touch(mode=0o600)
            path.write_bytes(content)

    def _start_servers(self, programs: Mapping[str, Path]) -> None:
        """Retry: a free port may be taken before it is used."""
        for attempt in range(_TRIES):
            etcd, port = f"http://127.0.0.1:{free_port()}", self._address.port or free_port()
            try:
                self.etcd = etcd
                self._start_etcd(programs[ETCD.name], etcd)
                self._start_apiserver(programs[APISERVER.name], etcd, port)
                return
            except StartFailed as error:
                self.stop()
                if attempt == _TRIES - 1 or "address already in use" not in str(error):
                    raise

    def _start_etcd(self, program: Path, address: str) -> None:
        peer = f"http://127.0.0.1:{free_port()}"
        words: list[str | Path] = [
            program, "--name=etcd", "--data-dir", self.directory / "etcd",
            f"--listen-client-urls={address}", f"--advertise-client-urls={address}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=etcd={peer}", "--unsafe-no-fsync", "--log-level=warn",
        ]  # fmt: skip
        self.processes.start("etcd", words)

    def _start_apiserver(self, program: Path, etcd: str, port: int) -> None:
        here = self.directory
        words: list[str | Path] = [
            program, f"--etcd-servers={etcd}", f"--secure-port={port}",
            f"--bind-address={self._address.host}",
            f"--advertise-address={self._address.advertised}",
            f"--tls-cert-file={here / 'server.crt'}",
            f"--tls-private-key-file={here / 'server.key'}",
            f"--token-auth-file={here / 'tokens.csv'}", "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={here / 'accounts.pub'}",
            f"--service-account-signing-key-file={here / 'accounts.key'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged=true",  # as every distribution; Pod Security decides instead
            # As on OpenShift: setting an owner reference needs permission.
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
            f"--audit-log-path={self.audit_log}",
            f"--audit-policy-file={here / 'audit-policy.yaml'}", *self._server_flags,
        ]  # fmt: skip
        if not self._controllers:
            # No controller creates the account `default`, or removes the taint of a ready node.
            words.append("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition")
        self.processes.start("kube-apiserver", words)
        self._write_kubeconfig(self.kubeconfig, self._server_of_clients(port))
        self.processes.wait_for("kube-apiserver", self._is_ready)

    def _write_kubeconfig(self, path: Path, server: str) -> None:
        kubeconfig.write_kubeconfig(path, server, self._ca.decode(), self._token, "real")

    def _is_ready(self) -> bool:
        config = kubeconfig.load(self.kubeconfig)
        with SyncClient(config, retry=RetryPolicy(attempts=1), timeout_s=5) as client:
            try:
                return client.request("GET", "/readyz") == b"ok"
            except (KubeError, OSError):
                return False

    def _start_controllers(self, program: Path) -> None:
        here = self.directory
        words: list[str | Path] = [
            program, "--kubeconfig", self.server_kubeconfig, "--leader-elect=false",
            f"--service-account-private-key-file={here / 'accounts.key'}",
            f"--root-ca-file={here / 'ca.crt'}", "--use-service-account-credentials",
            "--bind-address=127.0.0.1", f"--secure-port={free_port()}",
            f"--cert-dir={here / 'controller-manager'}", *self._controller_flags,
        ]  # fmt: skip
        self.processes.start("kube-controller-manager", words)


def start_kwok(
    processes: Processes, config: Path, *, node_leases: bool = True, stages: Path = _STAGES
) -> None:
    """Run kwok for the nodes that are annotated for it, on any API server."""
    words: list[str | Path] = [
        ensure(KWOK), "--kubeconfig", config, "--config", stages,
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        f"--node-lease-duration-seconds={40 if node_leases else 0}",
        f"--server-address=127.0.0.1:{free_port()}",
    ]  # fmt: skip
    processes.start(KWOK.name, words)


def node_manifest(
    name: str,
    *,
    cpu: Amount = 8,
    memory: Amount = "32Gi",
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: tuple[Mapping[str, str], ...] = (),
    unschedulable: bool = False,
    extra: Mapping[str, Amount] | None = None,
) -> dict[str, Any]:
    """Return a node simulated by kwok, ready from the start."""
    amounts = {"cpu": cpu, "memory": memory, "pods": pods, **(extra or {})}
    resources = {key: str(value) for key, value in amounts.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            "annotations": {**KWOK_NODE, **(annotations or {})},
        },
        "spec": {"taints": [dict(taint) for taint in taints], "unschedulable": unschedulable},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }
