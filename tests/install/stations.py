"""hekla's components as processes beside the cluster, each with its own service account's token.

A pod cannot run here, so what its Deployment says is carried out by hand: the same arguments, the
same account. Only addresses differ, and webhooks are reached by URL: there is no service network.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tools.kube.cluster import KubeCluster
from tools.kube.processes import free_port

from hekla.kube import kubeconfig
from hekla.kube.resources import SERVICE_ACCOUNTS
from tests.install.rights import Json


class Stations:
    def __init__(self, cluster: KubeCluster, objects: list[Json], namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._webhook_port = free_port()
        self._arguments: dict[str, list[str]] = {}
        for obj in objects:
            if obj["kind"] == "Deployment":
                (container,) = obj["spec"]["template"]["spec"]["containers"]
                self._arguments[container["name"]] = container["args"]

    def reachable(self, obj: Json) -> Json:
        """An object as it is applied here: webhooks by URL."""
        if not obj["kind"].endswith("WebhookConfiguration"):
            return obj
        made = {**obj, "webhooks": [dict(webhook) for webhook in obj["webhooks"]]}
        for webhook in made["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{self._webhook_port}{path}"}
        return made

    def start(self, component: str) -> None:
        account = f"hekla-{component}"
        config = self._cluster.directory / f"{account}.kubeconfig"
        with self._cluster.client() as client:
            request: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
            token: Any = client.subresource(
                SERVICE_ACCOUNTS,
                account,
                "token",
                namespace=self._namespace,
                body={**request, "spec": {"expirationSeconds": 3600}},
            )
        target = kubeconfig.load(self._cluster.kubeconfig)
        secret = token["status"]["token"]
        kubeconfig.write_kubeconfig(config, target.server, target.ca_pem, secret, account)
        words = [self._here(word) for word in self._arguments[component]]
        if component == "admission":
            words = ["admission", f"--url=https://127.0.0.1:{self._webhook_port}"]
            words += ["--host=127.0.0.1", f"--port={self._webhook_port}"]
        program = Path(sys.executable).with_name("hekla")
        words += [f"--kubeconfig={config}"]
        self._cluster.processes.start(component, [program, *words])

    def _here(self, word: str) -> str:
        flag, equals, value = word.partition("=")
        return f"{flag}=127.0.0.1:{free_port()}" if equals and value.startswith(":") else word

    def stop(self) -> None:
        for component in self._arguments:
            self._cluster.processes.stop(component)

    def log(self, component: str) -> str:
        path = self._cluster.processes.log(component)
        return path.read_text() if path.exists() else ""

    def logs(self) -> str:
        return "\n".join(f"--- {name}\n{self.log(name)[-3000:]}" for name in self._arguments)
