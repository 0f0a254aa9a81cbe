"""hekla's components as processes beside the cluster, each with its service account's token.

Pods cannot run here, so each Deployment is run as a process with the same arguments and account.
Only addresses differ, and webhooks are called by URL: there is no service network.
"""

from __future__ import annotations

import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

from tools.kube.cluster import KubeCluster
from tools.kube.processes import free_port

from hekla.kube import kubeconfig
from hekla.units.objects import Object


class ComponentProcesses:
    def __init__(self, cluster: KubeCluster, objects: list[Object], namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._webhook_port = free_port()
        self._ports: dict[str, dict[int, int]] = {}
        """The port in the pod and the local port of each component."""
        self._containers: dict[str, Object] = {}
        for obj in objects:
            if obj["kind"] == "Deployment":
                (container,) = obj["spec"]["template"]["spec"]["containers"]
                self._containers[container["name"]] = container

    def reachable(self, obj: Object) -> Object:
        """Return an object as applied here: webhooks by URL."""
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
        target = kubeconfig.load(self._cluster.kubeconfig)
        token = self.token(account)
        kubeconfig.write_kubeconfig(config, target.server, target.ca_pem, token, account)
        self._ports[component] = {}
        words = [self._here(component, word) for word in self._containers[component]["args"]]
        if component == "admission":
            self._ports[component] = {8443: self._webhook_port}
            words = ["admission", f"--url=https://127.0.0.1:{self._webhook_port}"]
            words += ["--host=127.0.0.1", f"--port={self._webhook_port}"]
        program = Path(sys.executable).with_name("hekla")
        words += [f"--kubeconfig={config}"]
        self._cluster.processes.start(component, [program, *words])

    def _here(self, component: str, word: str) -> str:
        flag, equals, value = word.partition("=")
        if not (equals and value.startswith(":")):
            return word
        port = self._ports[component][int(value[1:])] = free_port()
        return f"{flag}=127.0.0.1:{port}"

    def token(self, account: str) -> str:
        with self._cluster.client() as client:
            return client.create_token(account, namespace=self._namespace).value

    def answers(self, component: str, token: str = "") -> dict[str, int]:
        """Return the status of each probe of the Deployment, and of /metrics for a token.

        0 means no response.
        """
        container = self._containers[component]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        asked = [container[probe]["httpGet"] for probe in ("livenessProbe", "readinessProbe")]
        if "metrics" in ports:
            asked.append({"path": "/metrics", "port": "metrics", "scheme": "HTTPS"})
        return {
            get["path"]: _status(
                get.get("scheme", "HTTP").lower(),
                self._ports[component][ports[get["port"]]],
                get["path"],
                token if get["path"] == "/metrics" else "",
            )
            for get in asked
        }

    def stop(self) -> None:
        for component in self._containers:
            self._cluster.processes.stop(component)

    def log(self, component: str) -> str:
        path = self._cluster.processes.log(component)
        return path.read_text() if path.exists() else ""

    def logs(self) -> str:
        return "\n".join(f"--- {name}\n{self.log(name)[-3000:]}" for name in self._containers)


def _status(scheme: str, port: int, path: str, token: str) -> int:
    unchecked = ssl.create_default_context()  # a kubelet does not verify certificates either
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    address = urllib.request.Request(f"{scheme}://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(address, context=unchecked, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0
