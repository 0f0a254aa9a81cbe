"""ssh: the pods of a job can log in to each other without a password.

The key pair is generated once per job and kept through restarts. Volcano rotates it, which locks
out pods that keep running.
"""

from __future__ import annotations

import base64

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from hekla.api import wellknown
from hekla.controllers.job.plugins.addresses import address, host
from hekla.controllers.job.plugins.plugin import (
    JobPlugin,
    ManagedObject,
    PodContext,
    mount,
    object_meta,
)
from hekla.kube.resources import SECRETS
from hekla.units.objects import Object

KEY_BITS = 2048
DEFAULT_PORT = 22


def secret_name(job: Object) -> str:
    return f"{job['metadata']['name']}-ssh"


def new_keys() -> tuple[str, str]:
    """Return a private key in PEM and a public key for sshd. It is slow: call it in a thread."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return private.decode(), public.decode() + "\n"


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class Ssh(JobPlugin, name="ssh"):
    """Mounts a key pair into every pod, and requests its Secret."""

    ssh_key_file_path: str = wellknown.SSH_PATH
    ssh_private_key: str = ""
    ssh_public_key: str = ""
    ssh_port: int = DEFAULT_PORT

    @property
    def port(self) -> int:
        return self.ssh_port if 0 < self.ssh_port < 65536 else DEFAULT_PORT

    def on_pod(self, pod: Object, context: PodContext) -> None:
        # If the path is not root's, sshd runs as another user and must be able to read the keys.
        mode = 0o600 if self.ssh_key_file_path == wellknown.SSH_PATH else 0o644
        name = secret_name(context.job)
        items = [{"key": key, "path": f".ssh/{key}"} for key in wellknown.SSH_KEYS]
        mount(
            pod,
            {"name": name, "secret": {"secretName": name, "items": items, "defaultMode": mode}},
            {"mountPath": self.ssh_key_file_path, "subPath": ".ssh"},
        )

    def objects(self, job: Object) -> list[ManagedObject]:
        body = {
            "metadata": object_meta(job, secret_name(job)),
            "data": {"config": _encoded(self.config(job))},
        }
        return [ManagedObject(SECRETS, body, make_once=self._keys)]

    def _keys(self) -> Object:
        given = (self.ssh_private_key, self.ssh_public_key)
        private, public = given if all(given) else new_keys()
        return {
            "data": {
                "id_rsa": _encoded(private),
                "id_rsa.pub": _encoded(public),
                "authorized_keys": _encoded(public),
            }
        }

    def config(self, job: Object) -> str:
        """Return the ssh configuration: short names for all pods, no prompts."""
        lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
        for task in job["spec"].get("tasks") or ():
            fixed = task["template"].get("spec", {}).get("hostname")
            count = min(task.get("replicas") or 0, 1) if fixed else task.get("replicas") or 0
            for index in range(count):
                lines += [
                    f"Host {host(job, task, index)}",
                    f"  HostName {address(job, task, index)}",
                    f"  Port {self.port}",
                ]
        return "\n".join(lines) + "\n"
