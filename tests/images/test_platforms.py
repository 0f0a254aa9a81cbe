"""The manifest of an index is chosen for this machine."""

from __future__ import annotations

import pytest

from hekla.images.documents import INDEX_TYPES, Descriptor, ImageConfig, Index, Platform
from hekla.images.errors import InvalidImage, NoSuchPlatform
from hekla.images.platforms import IndexWalk, check_platform, choose, this_machine

AMD64 = Platform("amd64", "linux")
ARM64 = Platform("arm64", "linux", "v8")
ARM_V7 = Platform("arm", "linux", "v7")
ARM_V6 = Platform("arm", "linux", "v6")


def entry(number: int, platform: str | None, media_type: str = "") -> Descriptor:
    parsed = None
    if platform is not None:
        os, architecture, variant = (*platform.split("/"), "", "")[:3]
        parsed = Platform(architecture, os, variant)
    return Descriptor(f"sha256:{number:064x}", 1, media_type, parsed)


def index(*platforms: str | None) -> Index:
    return Index(tuple(entry(number, each) for number, each in enumerate(platforms)))


CHOICES = {
    "the same architecture": (AMD64, ("linux/arm64", "linux/amd64"), 1),
    "not another system": (AMD64, ("windows/amd64", "linux/amd64"), 1),
    "the first of two equal ones": (AMD64, ("linux/amd64", "linux/amd64"), 0),
    "not the attestation of buildx": (AMD64, ("unknown/unknown", "linux/amd64"), 1),
    "amd64 for every machine, not v3": (AMD64, ("linux/amd64/v3", "linux/amd64/v1"), 1),
    "arm64 without a variant is v8": (ARM64, ("linux/arm/v7", "linux/arm64"), 1),
    "arm64 with a variant": (ARM64, ("linux/amd64", "linux/arm64/v8"), 1),
    "the newest variant that runs": (ARM_V7, ("linux/arm/v5", "linux/arm/v6", "linux/arm/v7"), 2),
    "an older variant": (ARM_V7, ("linux/arm64/v8", "linux/arm/v6"), 1),
    "not a newer variant": (ARM_V6, ("linux/arm/v7", "linux/arm/v5"), 1),
    "the only one, without a platform": (AMD64, (None,), 0),
}


@pytest.mark.parametrize(("machine", "platforms", "want"), CHOICES.values(), ids=CHOICES)
def test_entry_of_an_index_is_chosen(
    machine: Platform, platforms: tuple[str | None, ...], want: int
) -> None:
    assert choose(index(*platforms), machine, "x").digest == f"sha256:{want:064x}"


def test_index_for_other_machines_is_refused_with_what_it_has() -> None:
    with pytest.raises(NoSuchPlatform, match="x has no image for linux/amd64; it has linux/arm64"):
        choose(index("linux/arm64", "linux/arm64"), AMD64, "x")
    with pytest.raises(NoSuchPlatform, match="it has none"):
        choose(index(), AMD64, "x")
    with pytest.raises(NoSuchPlatform):
        choose(index(None, None), AMD64, "x")


def test_index_in_an_index_is_followed() -> None:
    nested = entry(7, None, INDEX_TYPES[0])
    assert choose(Index((entry(1, None), nested)), AMD64, "x") is nested


def test_indexes_that_contain_each_other_are_refused() -> None:
    walk = IndexWalk(AMD64, "x")
    first, second = entry(1, None, INDEX_TYPES[0]), entry(2, None, INDEX_TYPES[0])
    assert walk.step(Index((second,)), first.digest) is second
    assert walk.step(Index((first,)), second.digest) is first
    with pytest.raises(InvalidImage, match="contains itself"):
        walk.step(Index((second,)), first.digest)


def test_deeply_nested_indexes_are_refused() -> None:
    walk = IndexWalk(AMD64, "x")
    for number in range(4):
        walk.step(index(None), f"sha256:{number:064x}")
    with pytest.raises(InvalidImage, match="more than 4 deep"):
        walk.step(index(None), f"sha256:{9:064x}")


def test_image_without_an_index_must_be_for_this_machine() -> None:
    check_platform(ImageConfig(AMD64, ()), AMD64, "x")
    check_platform(ImageConfig(Platform(), ()), AMD64, "x")  # it does not say
    with pytest.raises(
        NoSuchPlatform, match="built for linux/arm64/v8, and this machine is linux/amd64"
    ):
        check_platform(ImageConfig(ARM64, ()), AMD64, "x")


def test_this_machine_has_a_platform() -> None:
    assert this_machine().os == "linux"
    assert this_machine().architecture
