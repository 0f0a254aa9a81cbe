"""mpi: the master gets the workers' hosts; every pod gets a port for sshd."""

from __future__ import annotations

from hekla.api import wellknown
from hekla.controllers.job.plugins.addresses import addresses
from hekla.controllers.job.plugins.plugin import (
    JobPlugin,
    PodContext,
    add_port,
    containers,
    set_env,
    task_named,
)
from hekla.units.objects import Object


class Mpi(JobPlugin, name="mpi"):
    """Sets MPI_HOST in the master, and opens a port in every pod."""

    master: str = "master"
    worker: str = "worker"
    port: int = 22

    def on_pod(self, pod: Object, context: PodContext) -> None:
        for container in containers(pod, init=True):
            add_port(container, wellknown.MPI_PORT_NAME, self.port)
        if context.task["name"] == self.master:
            workers = addresses(context.job, task_named(context.job, self.worker))
            set_env(containers(pod, init=True), {wellknown.ENV_MPI_HOST: ",".join(workers)})
