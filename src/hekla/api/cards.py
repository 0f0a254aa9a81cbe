"""Which cards a pod has, as its annotations say it: written with the binding, read by its node.

`uuid,type,memory,cores:` for each card, containers parted by semicolons; memory is in MiB, cores in
hundredths of the card. Volcano's and HAMi's device plugins speak this.

What a newcomer gets wrong: anybody who may change a pod may change this text. It says which cards a
pod has; how many and how much of each is what the pod asks for, and never less or more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hekla.api import wellknown

MAX_AMOUNT: Final = 1 << 40
"""No amount that somebody writes counts for more: sums of such amounts do not overflow."""
MAX_NUMBER: Final = 128
"""Cards for one container."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What one container wants: so many cards, and on each so much."""

    number: int
    memory: int = 0
    percent: int = 0
    cores: int = 0


def vgpu_ask(amounts: Mapping[str, int]) -> Ask:
    """What a container with these requests wants of vGPUs."""
    memory = amounts.get(wellknown.VGPU_MEMORY, 0)
    number = amounts.get(wellknown.VGPU_NUMBER, 1 if memory else 0)
    percent = amounts.get(wellknown.VGPU_MEMORY_PERCENTAGE, 0)
    if percent == wellknown.VGPU_PERCENTAGE_UNSET:
        percent = 0
    if not memory and not percent:
        percent = 100
    return Ask(number, memory, 0 if memory else percent, amounts.get(wellknown.VGPU_CORES, 0))


@dataclass(frozen=True, slots=True)
class Given:
    """A card that a container has, or a part of it."""

    card: str
    memory: int
    cores: int
    container: int = 0
    percent: int = 0
    """Of the card's memory at least so much, whatever `memory` says."""


def decode(text: str) -> tuple[Given, ...]:
    """What cannot be read is left out."""
    out: list[Given] = []
    for container, part in enumerate(text.split(";")):
        for entry in part.split(":"):
            words = entry.split(",")
            if len(words) >= 4 and words[2].isdecimal() and words[3].isdecimal():
                out.append(Given(words[0], whole(words[2]), whole(words[3]), container))
    return tuple(out)


def whole(digits: str) -> int:
    """A number written in decimal digits, or MAX_AMOUNT if that is less."""
    return min(int(digits), MAX_AMOUNT) if len(digits) <= 15 else MAX_AMOUNT


def encode(containers: int, given: Iterable[Given], kind: str) -> str:
    parts = [""] * containers
    for each in given:
        parts[each.container] += f"{each.card},{kind},{each.memory},{each.cores}:"
    return ";".join(parts)


def gpu_indices(annotations: Mapping[str, str]) -> list[str]:
    """The GPUs of a pod that shares them by memory or has them by number."""
    text = annotations.get(wellknown.GPU_INDEX, "")
    return [word.strip() for word in text.split(",") if word.strip()]


def register(cards: Iterable[tuple[str, int, str]], shares: int, mode: str = "hami-core") -> str:
    """A node's cards (id, memory, type) as its device plugin announces them."""
    return "".join(f"{id},{shares},{memory},{kind},true,{mode}:" for id, memory, kind in cards)
