"""The GPUs of this machine, and what pods request of them."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hekla.api import wellknown
from hekla.api.devices import MAX_AMOUNT
from hekla.units.objects import Object
from hekla.units.quantity import QuantityError, parse_quantity

GPUS = Path("/proc/driver/nvidia/gpus")
SHARES = 10
"""Containers that may share a GPU; the default of Volcano's device plugin."""
SIMULATED_MEMORY = 16384
SIMULATED_PREFIX = "GPU-simulated-"
CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
"""What every program with a GPU needs beside it."""
_UUID = re.compile(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
HAMI_CORE, MPS = "hami-core", "mps"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of this machine; memory in MiB."""

    id: str
    memory: int
    type: str


def visible_devices(gpus: Sequence[tuple[int, Gpu]]) -> str:
    """Return the value of CUDA_VISIBLE_DEVICES for GPUs with their indices: UUIDs if known.

    A container has the device nodes of its GPUs only, and CUDA counts from 0 what it finds. So the
    index of a GPU on the machine names another GPU there, or none.
    """
    if all(_UUID.fullmatch(gpu.id) for _, gpu in gpus):
        return ",".join(gpu.id for _, gpu in gpus)
    return ",".join(str(index) for index, _ in gpus)


def device_nodes(gpus: Sequence[Gpu]) -> list[str]:
    """Return the device nodes of GPUs, relative to /dev; none of simulated ones."""
    minors = _minor_numbers()
    nodes = [f"nvidia{minors[gpu.id]}" for gpu in gpus if gpu.id in minors]
    return [*nodes, *CONTROL_NODES] if nodes else []


def _minor_numbers() -> dict[str, int]:
    """Return the minor numbers of GPUs by id, from the driver; by position if it has no ids."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for index, path in enumerate(sorted(GPUS.iterdir())):
            rows = [row.split(":", 1) for row in (path / "information").read_text().splitlines()]
            facts = {row[0].strip(): row[1].strip() for row in rows if len(row) == 2}
            minor = int(facts.get("Device Minor", index))
            found[facts.get("GPU UUID", f"GPU-{index}")] = found[f"GPU-{index}"] = minor
    return found


def simulate_gpus(count: int) -> list[Gpu]:
    """Return simulated GPUs."""
    return [Gpu(f"{SIMULATED_PREFIX}{i}", SIMULATED_MEMORY, "Simulated-GPU") for i in range(count)]


def discover_gpus() -> list[Gpu]:
    """Return the GPUs that the driver lists, described by nvidia-smi or by defaults."""
    try:
        count = len(list(GPUS.iterdir()))
    except OSError:
        return []
    described = _query_gpus() if count else []
    if len(described) == count:
        return described
    return [Gpu(f"GPU-{i}", SIMULATED_MEMORY, "NVIDIA") for i in range(count)]


def _query_gpus() -> list[Gpu]:
    query = ["nvidia-smi", "--query-gpu=uuid,memory.total,name", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(
            query, capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[word.strip() for word in line.split(",", 2)] for line in output.splitlines()]
    return [
        Gpu(row[0], int(row[1]), row[2].replace(" ", "-").replace(",", ""))
        for row in rows
        if len(row) == 3 and row[1].isdecimal()
    ]


class GpuShare(msgspec.Struct, frozen=True, array_like=True):
    """A share of a GPU of one container, or of all containers of a pod if `container` is empty."""

    container: str
    index: int
    memory: int
    """In MiB."""
    cores: int
    """In percent; 100 is exclusive."""


def requested_gpus(pod: Object) -> int:
    """Return the number of whole GPUs that a pod requests."""
    total = 0
    for container in pod["spec"]["containers"]:
        total += device_limits(container).get(wellknown.NVIDIA_GPU, 0)
    return total


def requests_gpu_shares(pod: Object) -> bool:
    """Return whether a pod requests shares of GPUs."""
    names = (wellknown.VGPU_NUMBER, wellknown.VGPU_MEMORY)
    if any(name in _resource_limits(each) for each in pod["spec"]["containers"] for name in names):
        return True
    return any(pod_device_limit(pod, name) for name in (wellknown.GPU_NUMBER, wellknown.GPU_MEMORY))


def pod_device_limit(pod: Object, name: str) -> int:
    """Return the limit of a pod: the sum of its containers, or its largest init container."""
    spec = pod["spec"]
    together = sum(device_limits(each).get(name, 0) for each in spec["containers"])
    before = [device_limits(each).get(name, 0) for each in spec.get("initContainers") or ()]
    return max(together, *before) if before else together


def container_device_limits(pod: Object, container: str) -> dict[str, int]:
    """Return the device limits of a container by its name."""
    spec = pod["spec"]
    for each in (*spec["containers"], *(spec.get("initContainers") or ())):
        if each["name"] == container:
            return device_limits(each)
    return {}


def device_limits(container: Object) -> dict[str, int]:
    """Return the device limits of a container; invalid quantities are ignored."""
    out: dict[str, int] = {}
    for name, text in _resource_limits(container).items():
        if "/" in name:
            with contextlib.suppress(QuantityError):
                out[name] = min(parse_quantity(text).value(), MAX_AMOUNT)
    return out


def _resource_limits(container: Object) -> Object:
    return (container.get("resources") or {}).get("limits") or {}
