"""Which cards a pod has, as its annotations say it: written with the binding, read by its node.

`uuid,type,memory,cores:` for each card, containers parted by semicolons; memory is in MiB, cores in
hundredths of the card. Volcano's and HAMi's device plugins speak this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hekla.api import wellknown


@dataclass(frozen=True, slots=True)
class Given:
    """A card that a container has, or a part of it."""

    card: str
    memory: int
    cores: int
    container: int = 0


def decode(text: str) -> tuple[Given, ...]:
    """What cannot be read is left out."""
    out: list[Given] = []
    for container, part in enumerate(text.split(";")):
        for entry in part.split(":"):
            words = entry.split(",")
            if len(words) >= 4 and words[2].isdecimal() and words[3].isdecimal():
                out.append(Given(words[0], int(words[2]), int(words[3]), container))
    return tuple(out)


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
