"""ray: a head and its workers start as one Ray cluster, with a Service in front of the head."""

from __future__ import annotations

from hekla.api import wellknown
from hekla.controllers.job.plugins.addresses import address
from hekla.controllers.job.plugins.plugin import (
    JobPlugin,
    ManagedObject,
    PodContext,
    add_port,
    containers,
    object_meta,
    task_named,
)
from hekla.kube.resources import SERVICES
from hekla.units.objects import Object


class Ray(JobPlugin, name="ray"):
    """Sets the commands of head and workers, and requests a Service."""

    flag_names = {  # noqa: RUF012 - as Volcano spells them
        "head_container": "headContainer",
        "worker_container": "workerContainer",
        "dashboard_port": "dashboardPort",
        "client_port": "clientPort",
    }

    head: str = "head"
    head_container: str = "head"
    worker: str = "worker"
    worker_container: str = "worker"
    port: int = 6379
    dashboard_port: int = 8265
    client_port: int = 10001

    @property
    def _ports(self) -> tuple[tuple[str, int], ...]:
        return (
            ("gcs", self.port),
            ("dashboard", self.dashboard_port),
            ("client-server", self.client_port),
        )

    def on_pod(self, pod: Object, context: PodContext) -> None:
        head = task_named(context.job, self.head)
        if head is None:
            raise ValueError(
                f"plugin ray: there is no task {self.head!r}; rename a task or set --head=TASK"
            )
        if context.task["name"] == self.head:
            command = (
                "ray start --head --block --dashboard-host=0.0.0.0 "
                f"--port={self.port} --dashboard-port={self.dashboard_port} "
                f"--ray-client-server-port={self.client_port}"
            )
            for container in containers(pod):
                if container["name"] == self.head_container:
                    container["command"] = ["sh", "-c", command]
                    container.pop("args", None)
                    for name, port in self._ports:
                        add_port(container, name, port)
        elif context.task["name"] == self.worker:
            command = f"ray start --block --address={address(context.job, head, 0)}:{self.port}"
            for container in containers(pod):
                if container["name"] == self.worker_container:
                    container["command"] = ["sh", "-c", command]
                    container.pop("args", None)

    def objects(self, job: Object) -> list[ManagedObject]:
        metadata = job["metadata"]
        selector = {
            wellknown.JOB_NAME: metadata["name"],
            wellknown.JOB_NAMESPACE: metadata["namespace"],
            wellknown.TASK_SPEC: self.head,
        }
        ports = [
            {"name": name, "protocol": "TCP", "port": port, "targetPort": name}
            for name, port in self._ports
        ]
        body = {
            "metadata": object_meta(job, f"{metadata['name']}-head-svc"),
            "spec": {"type": "ClusterIP", "selector": selector, "ports": ports},
        }
        return [ManagedObject(SERVICES, body)]
