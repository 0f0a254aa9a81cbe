"""Device allocations of pods as annotations: written with the binding, read by the node.

The format is `uuid,type,memory,cores:` for each device, with containers separated by semicolons;
memory is in MiB, cores in percent of the device. The device plugins of Volcano and HAMi use it.

Note: everyone who may change a pod may change this annotation. It names the devices of a pod; the
number of devices and the amounts always come from the pod's requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hekla.api import wellknown

MAX_AMOUNT: Final = 1 << 40
"""Upper bound of a parsed amount, so that sums do not overflow."""
MAX_NUMBER: Final = 128
"""Most devices of one container."""


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """Devices that one container requests: their number, and the amounts on each."""

    number: int
    memory: int = 0
    percent: int = 0
    cores: int = 0


def vgpu_request(amounts: Mapping[str, int]) -> DeviceRequest:
    """Return the vGPU request of a container with these resource requests."""
    memory = amounts.get(wellknown.VGPU_MEMORY, 0)
    number = amounts.get(wellknown.VGPU_NUMBER, 1 if memory else 0)
    percent = amounts.get(wellknown.VGPU_MEMORY_PERCENTAGE, 0)
    if percent == wellknown.VGPU_PERCENTAGE_UNSET:
        percent = 0
    if not memory and not percent:
        percent = 100
    return DeviceRequest(
        number, memory, 0 if memory else percent, amounts.get(wellknown.VGPU_CORES, 0)
    )


@dataclass(frozen=True, slots=True)
class DeviceAllocation:
    """A device, or a share of one, that is allocated to a container."""

    device: str
    memory: int
    cores: int
    container: int = 0
    percent: int = 0
    """Lower bound in percent of the device's memory, whatever `memory` is."""


def decode(text: str) -> tuple[DeviceAllocation, ...]:
    """Return the allocations in an annotation; invalid entries are ignored."""
    out: list[DeviceAllocation] = []
    for container, part in enumerate(text.split(";")):
        for entry in part.split(":"):
            words = entry.split(",")
            if len(words) >= 4 and words[2].isdecimal() and words[3].isdecimal():
                out.append(
                    DeviceAllocation(
                        words[0], parse_amount(words[2]), parse_amount(words[3]), container
                    )
                )
    return tuple(out)


def parse_amount(digits: str) -> int:
    """Return a decimal number, limited to MAX_AMOUNT."""
    return min(int(digits), MAX_AMOUNT) if len(digits) <= 15 else MAX_AMOUNT


def encode(containers: int, allocations: Iterable[DeviceAllocation], kind: str) -> str:
    """Return the annotation of a pod with these allocations."""
    parts = [""] * containers
    for each in allocations:
        parts[each.container] += f"{each.device},{kind},{each.memory},{each.cores}:"
    return ";".join(parts)


def gpu_indices(annotations: Mapping[str, str]) -> list[str]:
    """Return the GPU indices of a pod that requests GPU memory or parse_amount GPUs."""
    text = annotations.get(wellknown.GPU_INDEX, "")
    return [word.strip() for word in text.split(",") if word.strip()]


def register(devices: Iterable[tuple[str, int, str]], shares: int, mode: str = "hami-core") -> str:
    """Return a node's devices (id, memory, type) as its device plugin registers them."""
    return "".join(f"{id},{shares},{memory},{kind},true,{mode}:" for id, memory, kind in devices)
