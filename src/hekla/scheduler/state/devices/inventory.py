"""The cards of a node, as its device plugin describes them in annotations and resources.

A card in MIG mode is several entries: one for each instance of each way to cut it. They name the
same card (`whole`), and once one of them is in use those of another cut are out of reach.
A name that a register has twice is one card.

What a newcomer gets wrong: a description that cannot be read is no card, never a guess. A node
whose annotation is half written loses those entries until the plugin writes it again.
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
"""Shared by memory or handed out whole, by number."""
VGPU: Final = "vgpu"
WHOLE_GPU: Final = wellknown.NVIDIA_GPU
"""Chosen by the node itself: nobody else knows which they are."""
SAME_DEVICES: Final = frozenset((GPU, VGPU, WHOLE_GPU))
"""Ways to give out the same cards: what somebody has in one way nobody has in another."""
UNLIMITED: Final = 1 << 30
MAX_CARDS: Final = 256
"""Of one kind on one node; more are not looked at."""
MAX_MEMORY: Final = (1 << 24) - 1
"""MiB of a card: what somebody claims beyond it is not believed."""
RESERVED: Final = frozenset(",:;[")
"""Letters that part names from each other, or from the number of an instance."""
MIG: Final = "mig"
HAMI_CORE: Final = "hami-core"

Amounts = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Device:
    """One card, or one MIG instance that a card could be cut into."""

    id: str
    memory: int
    shares: int = UNLIMITED
    """Containers that may use it at once."""
    type: str = ""
    mode: str = ""
    is_healthy: bool = True
    whole: int = 0
    """Which card of the node it is, or is a part of."""
    cut: int = -1
    """The geometry it belongs to; -1 for a card that is not cut."""
    group: int = -1
    """Cards of a node with the same number are joined by a fast interconnect."""


def devices_of(
    annotations: Mapping[str, str], capacity: Amounts, allocatable: Amounts
) -> dict[str, tuple[Device, ...]]:
    """The cards of a node by kind; kinds it has none of are left out."""
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
    """Cards with names that can be written on pods and read back, and groups numbered from 0."""
    named: dict[str, Device] = {}
    for device in devices:
        if device.id and not RESERVED.intersection(device.id):
            named.setdefault(device.id, device)
    kept = list(islice(named.values(), MAX_CARDS))
    groups = sorted({device.group for device in kept if device.group >= 0})
    number = {group: i for i, group in enumerate(groups)}
    return tuple(replace(device, group=number.get(device.group, -1)) for device in kept)


def _shared_gpus(annotations: Mapping[str, str], amounts: Amounts) -> tuple[Device, ...]:
    """Cards of equal memory, counted; the plugin names those that are broken."""
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
    """`uuid,count,memory,type,health,mode[,…]` for each card, joined by colons."""
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
    """The instances that a card in MIG mode could be cut into; any other card itself."""
    cuts = geometries(device.type) if device.mode == MIG else ()
    if not cuts:
        # As Volcano: a model whose geometry is not known is shared in software.
        yield replace(device, mode=HAMI_CORE) if device.mode == MIG else device
    for cut, geometry in enumerate(cuts):
        sizes = [size for size, count in geometry for _ in range(count)]
        for position, size in enumerate(sizes):
            # Device plugins find a cut by the name that their configuration gives it.
            name = f"{device.id}[group{cut + 1}-{position}]"
            yield replace(device, id=name, memory=size, shares=1, cut=cut)


def _npus(text: str) -> Iterator[Device]:
    """A JSON list as HAMi's Ascend plugin writes it."""
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
    """`0,1,2,3;4,5,6,7`: cards by index or id, those joined to each other together."""
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
