"""This machine as a node: what it has, who it is, and which devices and addresses are taken."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hekla import __version__
from hekla.api import wellknown

Object = dict[str, Any]
MAX_PODS = 500
SLOTS = 65_000
"""Addresses there are: a network of 16 bits, less its ends."""
GPUS = Path("/proc/driver/nvidia/gpus")
GPU_NOTE = "gpus"
"""In a pod's directory: the indices of its GPUs."""


def gpu_count() -> int:
    """GPUs by the driver's own list."""
    try:
        return len(list(GPUS.iterdir()))
    except OSError:
        return 0


def node_object(name: str, now: str, gpus: int = 0) -> Object:
    """The Node that stands for this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    capacity = {
        "cpu": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory // 1024}Ki",
        "pods": str(MAX_PODS),
    }
    if gpus:
        capacity[wellknown.NVIDIA_GPU] = str(gpus)
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(
        platform.machine(), platform.machine()
    )
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "AgentReady",
        "message": "the node agent is running",
        "lastTransitionTime": now,
        "lastHeartbeatTime": now,
    }
    return {
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": architecture,
            },
        },
        "status": {
            "capacity": capacity,
            "allocatable": dict(capacity),
            "conditions": [condition],
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "architecture": architecture,
                "operatingSystem": "linux",
                "kernelVersion": platform.release(),
                "osImage": _os_name(),
                "kubeletVersion": f"hekla-{__version__}",
                "containerRuntimeVersion": "processes://1",
                "kubeProxyVersion": "",
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
            },
        },
    }


def _os_name() -> str:
    try:
        return str(platform.freedesktop_os_release().get("PRETTY_NAME", "Linux"))
    except OSError:
        return "Linux"


@dataclass
class Addresses:
    """An address for each pod.

    Of the pods' own network, or of 127/8: all of that is this machine's without any set-up.
    A pod's name decides, so that its address can be told before the pod is here, and a pod that
    takes another's place has the other's address, unless both are here at once.
    """

    first: tuple[int, int, int, int]
    taken: dict[str, str] = field(default_factory=dict)

    def expected(self, name: str) -> str:
        """What a pod of this name (with its namespace) gets if nobody else has it."""
        return self._numbered(_slot(name))

    def give(self, uid: str, name: str) -> str:
        if uid in self.taken:
            return self.taken[uid]
        used = set(self.taken.values())
        slot = _slot(name)
        while (address := self._numbered(slot)) in used:
            slot = (slot + 1) % SLOTS
        self.taken[uid] = address
        return address

    def take_back(self, uid: str) -> None:
        self.taken.pop(uid, None)

    def _numbered(self, slot: int) -> str:
        number = int.from_bytes(bytes(self.first), "big") + slot
        return ".".join(map(str, number.to_bytes(4, "big")))


def _slot(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % SLOTS


class NotEnough(Exception):
    """Devices are short; the text says how."""


@dataclass
class Gpus:
    """Which pod has which GPUs, by index."""

    count: int
    taken: dict[str, list[int]] = field(default_factory=dict)

    def give(self, uid: str, wanted: int) -> list[int]:
        """The pod's own, for as long as it lives; NotEnough rather than some of another's."""
        if uid not in self.taken:
            used = {index for given in self.taken.values() for index in given}
            free = [index for index in range(self.count) if index not in used]
            if len(free) < wanted:
                raise NotEnough(f"needs {wanted} GPUs, and {len(free)} are free here just now")
            self.taken[uid] = free[:wanted]
        return self.taken[uid]

    def take_back(self, uid: str) -> None:
        self.taken.pop(uid, None)

    def recall(self, pods: Path) -> None:
        """What an earlier agent gave to pods that may still run, as noted in their directories."""
        for path in pods.glob(f"*/{GPU_NOTE}"):
            with contextlib.suppress(OSError, ValueError):
                self.taken[path.parent.name] = [int(word) for word in path.read_text().split()]


def gpus_wanted(pod: Object) -> int:
    total = 0
    for container in pod["spec"]["containers"]:
        limits = (container.get("resources") or {}).get("limits") or {}
        total += int(limits.get(wellknown.NVIDIA_GPU, 0))
    return total


def hosts_file(
    pods: Iterable[tuple[Object, str]], endpoints: Iterable[Object] = (), namespace: str = ""
) -> str:
    """/etc/hosts for one namespace: every pod by name, and by name and subdomain; and services.

    A service's name stands for the addresses of its ready pods: there is no proxy, so clients must
    use the port that the pods listen on.
    """
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost", f"127.0.1.1 {platform.node()}"]
    for pod, address in pods:
        metadata, spec = pod["metadata"], pod["spec"]
        host = spec.get("hostname") or metadata["name"]
        names = [host] if host == metadata["name"] else [host, metadata["name"]]
        if spec.get("subdomain"):
            domain = f"{host}.{spec['subdomain']}"
            names = [f"{domain}.{metadata['namespace']}.svc.cluster.local", domain, *names]
        lines.append(f"{address} {' '.join(names)}")
    for each in endpoints:
        name, where = each["metadata"]["name"], each["metadata"]["namespace"]
        names = [f"{name}.{where}.svc.cluster.local", f"{name}.{where}.svc", f"{name}.{where}"]
        if where == namespace:
            names.append(name)
        for subset in each.get("subsets") or ():
            lines += [f"{a['ip']} {' '.join(names)}" for a in subset.get("addresses") or ()]
    return "\n".join(lines) + "\n"
