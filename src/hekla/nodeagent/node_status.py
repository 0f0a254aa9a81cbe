"""The Node object of this machine: capacity, labels and node information."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import Final

from hekla import __version__
from hekla.api import wellknown
from hekla.api.devices import register
from hekla.nodeagent.gpus import HAMI_CORE, SHARES, Gpu
from hekla.nodeagent.security_context import PodUser
from hekla.units.objects import Object

MAX_PODS = 500
GPU_RESOURCES: Final = (
    wellknown.NVIDIA_GPU,
    wellknown.GPU_NUMBER,
    wellknown.GPU_MEMORY,
    wellknown.VGPU_NUMBER,
    wellknown.VGPU_MEMORY,
    wellknown.VGPU_CORES,
)


def node_object(
    name: str,
    now: str,
    gpus: Sequence[Gpu] = (),
    mode: str = HAMI_CORE,
    pod_user: PodUser = "owner",
    has_pod_network: bool = False,
    enforces_limits: bool = False,
) -> Object:
    """Return the Node of this machine. Its GPUs are offered whole and as shares."""
    capacity = _capacity(gpus)
    annotations = {
        wellknown.POD_USER: str(pod_user),
        wellknown.POD_NETWORK: "bridge" if has_pod_network else "host",
        wellknown.MEMORY_LIMITS: "enforced" if enforces_limits else "none",
    }
    if gpus:
        described = [(gpu.id, gpu.memory, gpu.type) for gpu in gpus]
        annotations[wellknown.NODE_VGPU_REGISTER] = register(described, SHARES, mode)
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
                wellknown.LABEL_HOSTNAME: name,
                wellknown.LABEL_OS: "linux",
                wellknown.LABEL_ARCH: architecture,
            },
            "annotations": annotations,
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


def update_patches(node: Object) -> tuple[Object, Object]:
    """Return the merge patches of metadata and status that update the stored Node.

    What an earlier start offered and this one does not, such as simulated GPUs, is removed. Labels
    and resources of others stay.
    """
    offered = node["status"]
    status = {
        key: {**dict.fromkeys(GPU_RESOURCES), **offered[key]} for key in ("capacity", "allocatable")
    }
    annotations = {wellknown.NODE_VGPU_REGISTER: None, **node["metadata"]["annotations"]}
    metadata = {"labels": node["metadata"]["labels"], "annotations": annotations}
    return {"metadata": metadata}, {**offered, **status}


def _capacity(gpus: Sequence[Gpu]) -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    capacity = {
        "cpu": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory // 1024}Ki",
        "pods": str(MAX_PODS),
    }
    if gpus:
        gpu_memory = sum(gpu.memory for gpu in gpus)
        shares = SHARES * len(gpus)
        amounts = (len(gpus), len(gpus), gpu_memory, shares, gpu_memory, 100 * len(gpus))
        capacity |= dict(zip(GPU_RESOURCES, map(str, amounts), strict=True))
    return capacity


def _os_name() -> str:
    try:
        return str(platform.freedesktop_os_release().get("PRETTY_NAME", "Linux"))
    except OSError:
        return "Linux"
