"""The devices of a node, as its device plugin describes them in annotations and resources.

A device in MIG mode has several entries: one per instance of each geometry. They name the same
device (`whole`), and once one of them is in use those of other geometries are not usable. A name
that is registered twice is one device.

Note: an invalid description is no device, never a guess. A node whose annotation is half written
loses those entries until the plugin writes it again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from hekla.api import wellknown
from hekla.api.devices import parse_amount
from hekla.scheduler.state.devices.hardware import CHIPS, geometries
from hekla.units.quantity import QuantityError, parse_quantity

GPU: Final = "gpu"
"""GPUs that are shared by memory, or allocated whole by number."""
VGPU: Final = "vgpu"
WHOLE_GPU: Final = wellknown.NVIDIA_GPU
"""GPUs that the node selects itself; the scheduler does not know which."""
SAME_DEVICES: Final = frozenset((GPU, VGPU, WHOLE_GPU))
"""Kinds that offer the same devices. A device is allocated in one of these ways at a time."""
UNLIMITED: Final = 1 << 30
MAX_CARDS: Final = 256
"""The most devices of one kind on one node; more are ignored."""
MAX_MEMORY: Final = (1 << 24) - 1
"""The largest valid memory of a device, in MiB."""
RESERVED: Final = frozenset(",:;[")
"""Characters that separate names, or a name from the number of an instance."""
MIG: Final = "mig"
HAMI_CORE: Final = "hami-core"

Amounts = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Device:
    """A device, or a MIG instance that a device can be partitioned into."""

    id: str
    memory: int
    shares: int = UNLIMITED
    """The number of containers that may share it."""
    type: str = ""
    mode: str = ""
    is_healthy: bool = True
    whole: int = 0
    """The position on the node of the device, or of the device that it is an instance of."""
    cut: int = -1
    """The geometry of an instance; -1 for a device without MIG."""
    group: int = -1
    """Devices of a node with equal numbers share a fast interconnect."""


def devices_of(
    annotations: Mapping[str, str], capacity: Amounts, allocatable: Amounts
) -> dict[str, tuple[Device, ...]]:
    """Return the devices of a node by kind, without kinds that it does not have."""
    found = {
        GPU: _shared_gpus(annotations, capacity or allocatable),
        VGPU: _vgpus(annotations, allocatable),
    }
    for chip in CHIPS:
        text = annotations.get(wellknown.HAMI_NODE_REGISTER.format(type=chip.word))
        if text:
            found[chip.word] = _distinct(_npus(text))
    return {kind: devices for kind, devices in found.items() if devices}


def _distinct(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Return devices with valid, distinct names, and groups numbered from 0."""
    named: dict[str, Device] = {}
    for device in devices:
        if device.id and not RESERVED.intersection(device.id):
            named.setdefault(device.id, device)
    kept = list(islice(named.values(), MAX_CARDS))
    groups = sorted({device.group for device in kept if device.group >= 0})
    number = {group: i for i, group in enumerate(groups)}
    return tuple(replace(device, group=number.get(device.group, -1)) for device in kept)


def _shared_gpus(annotations: Mapping[str, str], amounts: Amounts) -> tuple[Device, ...]:
    """Return devices of equal memory by count; the plugin names unhealthy ones."""
    number = min(_whole(amounts.get(wellknown.GPU_NUMBER)), MAX_CARDS)
    if number <= 0:
        return ()
    memory = min(_whole(amounts.get(wellknown.GPU_MEMORY)) // number, MAX_MEMORY)
    broken = annotations.get(wellknown.GPU_UNHEALTHY_IDS, "").replace(" ", "").split(",")
    groups = _groups(annotations, number)
    return tuple(
        Device(
            str(i),
            memory,
            is_healthy=str(i) not in broken,
            whole=i,
            group=groups.get(str(i), -1),
        )
        for i in range(number)
    )


def _vgpus(annotations: Mapping[str, str], allocatable: Amounts) -> tuple[Device, ...]:
    """Parse `uuid,count,memory,type,health,mode[,…]` of each device, joined by colons."""
    text = annotations.get(wellknown.NODE_VGPU_REGISTER, "")
    if not text or _whole(allocatable.get(wellknown.VGPU_NUMBER)) <= 0:
        return ()
    if annotations.get(wellknown.NODE_VGPU_HANDSHAKE, "").startswith("Deleted"):
        return ()
    entries = [entry.split(",") for entry in text.split(":") if entry]
    groups = _groups(annotations, len(entries))
    listed = _distinct(
        device for i, words in enumerate(entries) for device in _vgpu(words, i, groups)
    )
    return tuple(part for device in listed for part in _parts(device))


def _vgpu(words: list[str], number: int, groups: Mapping[str, int]) -> Iterator[Device]:
    if len(words) < 5 or not (words[1].isdecimal() and words[2].isdecimal()):
        return
    uuid, kind, is_healthy = words[0], words[3], words[4].lower() == "true"
    shares, memory = min(parse_amount(words[1]), UNLIMITED), min(parse_amount(words[2]), MAX_MEMORY)
    mode = words[5] if len(words) > 5 and words[5] else HAMI_CORE
    group = groups.get(uuid, groups.get(str(number), -1))
    yield Device(uuid, memory, shares, kind, mode, is_healthy, number, group=group)


def _parts(device: Device) -> Iterator[Device]:
    """Return the instances of a device in MIG mode; any other device itself."""
    cuts = geometries(device.type) if device.mode == MIG else ()
    if not cuts:
        # As in Volcano: a model of unknown geometry is shared in software.
        yield replace(device, mode=HAMI_CORE) if device.mode == MIG else device
    for cut, geometry in enumerate(cuts):
        sizes = [size for size, count in geometry for _ in range(count)]
        for position, size in enumerate(sizes):
            # Device plugins find a geometry by the name in their configuration.
            name = f"{device.id}[group{cut + 1}-{position}]"
            yield replace(device, id=name, memory=size, shares=1, cut=cut)


def _npus(text: str) -> Iterator[Device]:
    """Parse a JSON list as HAMi's Ascend plugin writes it."""
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
            continue
        memory: Any = entry.get("devmem")
        shares: Any = entry.get("count", 1)
        if _is_amount(memory) and _is_amount(shares):
            yield Device(
                entry["id"],
                min(memory, MAX_MEMORY),
                min(shares, UNLIMITED),
                str(entry.get("type", "")),
                is_healthy=bool(entry.get("health", True)),
                whole=number,
                group=_network(entry),
            )


def _is_amount(value: Any) -> bool:
    return type(value) is int and value >= 0


def _network(entry: Mapping[str, Any]) -> int:
    for name in ("customInfo", "custominfo", "deviceInfo"):
        more = entry.get(name)
        number = more.get("NetworkID") if isinstance(more, Mapping) else None
        if isinstance(number, int) or (isinstance(number, float) and math.isfinite(number)):
            return int(number)
    return -1


def _groups(annotations: Mapping[str, str], number: int) -> dict[str, int]:
    """Parse `0,1,2,3;4,5,6,7`: interconnect groups of devices by index or id."""
    text = annotations.get(wellknown.CARD_GROUPS, "")
    return {
        word.strip(): group
        for group, words in enumerate(text.split(";")[: number + 1] if text else ())
        for word in words.split(",")
    }


def _whole(value: str | int | float | None) -> int:
    if value is None:
        return 0
    try:
        return max(parse_quantity(value).value(), 0)
    except QuantityError:
        return 0
