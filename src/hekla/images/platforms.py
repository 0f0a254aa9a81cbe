"""Which manifest of an index fits a machine.

Indexes may contain indexes. So the choice is a walk: `choose` returns what to read next, and
`IndexWalk` refuses loops and deep nesting.
"""

from __future__ import annotations

import os
from typing import Final

from hekla.images.documents import INDEX_TYPES, Descriptor, ImageConfig, Index, Platform
from hekla.images.errors import InvalidImage, NoSuchPlatform

__all__ = ["IndexWalk", "check_platform", "choose", "this_machine"]

MAX_NESTED_INDEXES: Final = 4

_MACHINES: Final = {
    "x86_64": Platform("amd64", "linux"),
    "i686": Platform("386", "linux"),
    "aarch64": Platform("arm64", "linux", "v8"),
    "armv7l": Platform("arm", "linux", "v7"),
    "armv6l": Platform("arm", "linux", "v6"),
    "ppc64le": Platform("ppc64le", "linux"),
    "s390x": Platform("s390x", "linux"),
    "riscv64": Platform("riscv64", "linux"),
    "loongarch64": Platform("loong64", "linux"),
}
# Best first. An image without a variant is for the first one of these, except on arm (v7).
_VARIANTS: Final = {
    ("arm64", "v8"): ("v8",),
    ("arm", "v7"): ("v7", "v6", "v5"),
    ("arm", "v6"): ("v6", "v5"),
    ("amd64", ""): ("v1",),
}
_UNSAID: Final = {"arm64": "v8", "arm": "v7", "amd64": "v1"}


def this_machine() -> Platform:
    """Return the platform of this machine."""
    machine = os.uname().machine
    return _MACHINES.get(machine, Platform(machine, "linux"))


def rank(platform: Platform, machine: Platform) -> int | None:
    """Return how well a platform fits a machine, 0 is best; None if it does not."""
    if (platform.os, platform.architecture) != (machine.os, machine.architecture):
        return None
    variant = platform.variant or _UNSAID.get(platform.architecture, "")
    variants = _VARIANTS.get((machine.architecture, machine.variant), (machine.variant,))
    return variants.index(variant) if variant in variants else None


def choose(index: Index, machine: Platform, what: str) -> Descriptor:
    """Return the entry of an index for a machine; the first of equally good ones."""
    ranked = [
        (found, number)
        for number, entry in enumerate(index.manifests)
        if entry.platform and (found := rank(entry.platform, machine)) is not None
    ]
    if ranked:
        return index.manifests[min(ranked)[1]]
    unsaid = [entry for entry in index.manifests if entry.platform is None]
    nested = [entry for entry in unsaid if entry.media_type in INDEX_TYPES]
    if nested or len(unsaid) == 1:  # an index in an index, or an index of one image
        return (nested or unsaid)[0]
    offered = sorted({str(entry.platform) for entry in index.manifests if entry.platform})
    raise NoSuchPlatform(
        f"{what} has no image for {machine}; it has {', '.join(offered)[:300] or 'none'}"
    )


def check_platform(config: ImageConfig, machine: Platform, what: str) -> None:
    """Raise NoSuchPlatform if an image without an index is built for other machines."""
    found = config.platform
    if found.architecture and rank(found, machine) is None:
        raise NoSuchPlatform(f"{what} is built for {found}, and this machine is {machine}")


class IndexWalk:
    """Follows indexes down to a manifest, with a bound."""

    def __init__(self, machine: Platform, what: str) -> None:
        self._machine = machine
        self._what = what
        self._seen: set[str] = set()

    def step(self, index: Index, digest: str) -> Descriptor:
        """Return what to read after the index with this digest."""
        if digest in self._seen:
            raise InvalidImage(f"{self._what} has an index that contains itself: {digest[:19]}…")
        self._seen.add(digest)
        if len(self._seen) > MAX_NESTED_INDEXES:
            raise InvalidImage(
                f"{self._what} has indexes in indexes, more than {MAX_NESTED_INDEXES} deep"
            )
        return choose(index, self._machine, self._what)
