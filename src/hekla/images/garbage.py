"""Which images and layers to delete. Decisions only: records in, names out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Deletions", "ImageUse", "choose_deletions"]


@dataclass(frozen=True, slots=True)
class ImageUse:
    """What the decision needs to know of an image."""

    digest: str
    layers: tuple[str, ...]
    last_used: float
    pinned: bool = False
    """A container uses it."""
    pullable: bool = True
    """It came from a registry, which still has it. An image from a file cannot be fetched again."""


@dataclass(frozen=True, slots=True)
class Deletions:
    images: tuple[str, ...] = ()
    """Digests, least recently used first."""
    layers: tuple[str, ...] = ()
    freed_bytes: int = 0
    left_bytes: int = 0


def choose_deletions(
    images: Sequence[ImageUse],
    layers: Mapping[str, int],
    held: Collection[str],
    limit_bytes: int | None,
) -> Deletions:
    """Return what to delete so that layers take at most `limit_bytes`; None is no limit.

    Layers of no image are deleted in any case, unless they are `held` by a pull that goes on.
    Images go in the order of their last use, until the limit is kept. Images in use and images that
    cannot be pulled again stay, so the limit may be exceeded.
    """
    uses: dict[str, int] = dict.fromkeys(held, 1)
    for image in images:
        for layer in set(image.layers):
            uses[layer] = uses.get(layer, 0) + 1
    unused = [layer for layer in layers if layer not in uses]
    total = sum(layers.values())
    left = total - sum(layers[layer] for layer in unused)
    deleted = []
    candidates = [image for image in images if image.pullable and not image.pinned]
    for image in sorted(candidates, key=lambda each: (each.last_used, each.digest)):
        if limit_bytes is None or left <= limit_bytes:
            break
        deleted.append(image.digest)
        for layer in set(image.layers):
            uses[layer] -= 1
            if not uses[layer] and layer in layers:
                unused.append(layer)
                left -= layers[layer]
    return Deletions(tuple(deleted), tuple(sorted(unused)), total - left, left)
