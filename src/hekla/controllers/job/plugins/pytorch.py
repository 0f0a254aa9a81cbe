"""pytorch: the variables of torch.distributed: the master's address, world size and rank."""

from __future__ import annotations

from hekla.api import wellknown
from hekla.controllers.job.plugins.addresses import address
from hekla.controllers.job.plugins.plugin import (
    JobPlugin,
    PodContext,
    add_port,
    containers,
    replicas_of,
    set_env,
    task_named,
)
from hekla.units.objects import Object

_WAIT = (
    "end=$(( $(date +%s) + {timeout} )); "
    "until nc -z -w 2 {address} {port}; do "
    'if [ "$(date +%s)" -ge "$end" ]; then echo "no master at {address}:{port}"; exit 1; fi; '
    "sleep 2; done"
)


class PyTorch(JobPlugin, name="pytorch"):
    """Sets MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK."""

    master: str = "master"
    worker: str = "worker"
    port: int = 23456
    wait_master_enabled: bool = False
    wait_master_timeout: int = 300
    wait_master_image: str = "busybox:1.36.1"

    def on_pod(self, pod: Object, context: PodContext) -> None:
        master = task_named(context.job, self.master)
        role = context.task["name"]
        if master is None or role not in (self.master, self.worker):
            return
        at = address(context.job, master, 0)
        masters = replicas_of(context.job, self.master)
        values: dict[str, str | Object] = {
            wellknown.ENV_MASTER_ADDR: at,
            wellknown.ENV_MASTER_PORT: str(self.port),
            wellknown.ENV_WORLD_SIZE: str(masters + replicas_of(context.job, self.worker)),
            wellknown.ENV_RANK: "0" if role == self.master else str(context.index + 1),
        }
        set_env(containers(pod), values)
        for container in containers(pod):
            add_port(container, wellknown.PYTORCH_PORT_NAME, self.port)
        if role == self.worker and self.wait_master_enabled:
            self._wait(pod, at)

    def _wait(self, pod: Object, at: str) -> None:
        script = _WAIT.format(timeout=self.wait_master_timeout, address=at, port=self.port)
        pod["spec"].setdefault("initContainers", []).append(
            {
                "name": wellknown.WAIT_FOR_MASTER,
                "image": self.wait_master_image,
                "command": ["sh", "-c", script],
            }
        )
