"""Clusters for fault injection: a real kube-apiserver, or hekla's own, both with kwok nodes.

Both give a history to check: Kubernetes its audit log, hekla's server the records of the proxies in
front of it. Users and kwok also pass through a proxy there, which injects no faults.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

from tools.faults.history import AUDIT_RULES, Write, read_audit
from tools.faults.proxy import Proxy
from tools.kube.cluster import KubeCluster, node_manifest, start_kwok
from tools.kube.processes import Processes, free_port, leash

from hekla.api import crds, wellknown
from hekla.kube import kubeconfig
from hekla.kube.errors import AlreadyExists
from hekla.kube.resources import CONFIGMAPS, CUSTOM_RESOURCE_DEFINITIONS, JOBS, NAMESPACES, NODES
from hekla.kube.sync_client import SyncClient
from tests.faults.crew import ROOT, Crew, crew
from tests.faults.waiting import until
from tests.realkube.backends import running

NODE_COUNT, NODE_CPU = 4, 4
# Pod watches are served by etcd: compacted revisions are in no cache.
NO_CACHE = "--watch-cache-sizes=pods#0"


class Site:
    """A server, its nodes, and the replicas of the components."""

    name: str
    server: Path
    """The kubeconfig without a proxy."""
    config: Path
    """The one for users."""
    crew: Crew

    def client(self) -> SyncClient:
        return SyncClient(kubeconfig.load(self.config), component="site")

    def new_namespace(self) -> str:
        name = f"f{uuid.uuid4().hex[:8]}"
        with self.client() as client:
            until(lambda: client.create(NAMESPACES, {"metadata": {"name": name}}))
        return name

    def add_nodes(self) -> None:
        with self.client() as client:
            for number in range(NODE_COUNT):
                client.create(NODES, node_manifest(f"node-{number}", cpu=NODE_CPU))

    def restart_server(self, *, kill: bool) -> None:
        raise NotImplementedError

    def history(self) -> list[Write]:
        """Return all writes so far, including the last one with a response."""
        raise NotImplementedError


class RealSite(Site):
    """Kubernetes itself."""

    name = "real"

    def __init__(self, cluster: KubeCluster) -> None:
        self.cluster = cluster
        self.server = self.config = cluster.kubeconfig

    def restart_server(self, *, kill: bool) -> None:
        self.cluster.restart("kube-apiserver", kill=kill)

    def restart_etcd(self) -> None:
        self.cluster.restart("etcd", kill=True)

    def compact(self) -> None:
        """Compact etcd to its current revision."""
        now = int(self._etcd("range", {"key": "AA=="})["header"]["revision"])
        self._etcd("compaction", {"revision": now, "physical": True})

    def _etcd(self, verb: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
        request = urllib.request.Request(
            f"{self.cluster.etcd}/v3/kv/{verb}", json.dumps(body).encode(), method="POST"
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: dict[str, dict[str, str]] = json.load(answer)
            return found

    def history(self) -> list[Write]:
        mark = f"mark-{uuid.uuid4().hex}"
        with self.client() as client:
            client.create(CONFIGMAPS, {"metadata": {"name": mark}}, namespace="default")
        until(lambda: mark in self.cluster.audit_log.read_text())
        return read_audit(self.cluster.audit_log)


class EmbeddedSite(Site):
    """hekla's own server."""

    name = "embedded"

    def __init__(self, directory: Path) -> None:
        self._words = [
            *leash(), sys.executable, "-m", "hekla.apiserver",
            "--data-dir", str(directory), "--port", str(free_port()),
        ]  # fmt: skip
        self.server = directory / "kubeconfig"
        self._directory = directory
        self.start()
        self.proxy = Proxy(self.server, directory, "users")
        self.config = self.proxy.kubeconfig

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._words, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip(), "the server did not start"

    def stop(self, *, kill: bool = False) -> None:
        (self._process.kill if kill else self._process.terminate)()
        self._process.wait(120)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def restart_server(self, *, kill: bool) -> None:
        self.stop(kill=kill)
        self.start()

    def history(self) -> list[Write]:
        proxies = (self.proxy, *self.crew.proxies)
        return [write for proxy in proxies for write in proxy.history]


@contextlib.contextmanager
def real(directory: Path, seed: int) -> Iterator[Site]:
    with KubeCluster(directory, audit_rules=AUDIT_RULES, server_flags=(NO_CACHE,)) as cluster:
        site = RealSite(cluster)
        with site.client() as client:
            for body in crds.load():
                client.create(CUSTOM_RESOURCE_DEFINITIONS, body)
            with contextlib.suppress(AlreadyExists):
                client.create(NAMESPACES, {"metadata": {"name": wellknown.SYSTEM_NAMESPACE}})
            until(lambda: client.list(JOBS) is not None)
        site.add_nodes()
        with (
            running(cluster.kubeconfig, admission=True, controllers=False),
            crew(site.server, directory, seed) as site.crew,
        ):
            yield site


@contextlib.contextmanager
def embedded(directory: Path, seed: int) -> Iterator[Site]:
    site = EmbeddedSite(directory)
    processes = Processes(directory)
    try:
        with site.proxy:
            site.add_nodes()
            start_kwok(processes, site.config)
            with crew(site.server, directory, seed) as site.crew:
                yield site
            processes.stop_all()
    finally:
        processes.stop_all()
        site.stop()


SITES = {"real": real, "embedded": embedded}
