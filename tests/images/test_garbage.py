"""Which images go when the store is too large."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.images.garbage import Deletions, ImageUse, choose_deletions

OLD = ImageUse("old", ("base", "a"), last_used=1.0)
NEW = ImageUse("new", ("base", "b"), last_used=2.0)
SIZES = {"base": 100, "a": 10, "b": 20}


def use(image: ImageUse, **changed: bool) -> ImageUse:
    return ImageUse(image.digest, image.layers, image.last_used, **changed)


CASES = {
    "all stays below the limit": ([OLD, NEW], (), 130, Deletions((), (), 0, 130)),
    "without a limit all stays": ([OLD, NEW], (), None, Deletions((), (), 0, 130)),
    "the image used longest ago goes": ([NEW, OLD], (), 129, Deletions(("old",), ("a",), 10, 120)),
    "shared layers go with their last image": (
        [OLD, NEW], (), 0, Deletions(("old", "new"), ("a", "b", "base"), 130, 0),
    ),
    "an image in use stays": (
        [use(OLD, pinned=True), NEW], (), 0, Deletions(("new",), ("b",), 20, 110),
    ),
    "an image of a file stays": (
        [use(OLD, pullable=False), NEW], (), 0, Deletions(("new",), ("b",), 20, 110),
    ),
    "layers of no image go without a limit": ([OLD], (), None, Deletions((), ("b",), 20, 110)),
    "layers of no image that a pull holds stay": ([OLD], ("b",), 130, Deletions((), (), 0, 130)),
    "layers that a pull holds outlive their image": (
        [OLD, NEW], ("base",), 0, Deletions(("old", "new"), ("a", "b"), 30, 100),
    ),
    "unused layers go before images": ([OLD], (), 110, Deletions((), ("b",), 20, 110)),
    "an image with one layer twice": (
        [ImageUse("x", ("a", "a"), 1.0)], ("base", "b"), 0, Deletions(("x",), ("a",), 10, 120),
    ),
    "a store without images": ([], (), 0, Deletions((), ("a", "b", "base"), 130, 0)),
}  # fmt: skip


@pytest.mark.parametrize(("images", "held", "limit", "want"), CASES.values(), ids=CASES)
def test_deletions(
    images: list[ImageUse], held: tuple[str, ...], limit: int | None, want: Deletions
) -> None:
    assert choose_deletions(images, SIZES, held, limit) == want


LAYERS = st.lists(st.sampled_from("abcdef"), max_size=4).map(tuple)
IMAGES = st.lists(
    st.builds(ImageUse, st.uuids().map(str), LAYERS, st.floats(0, 9), st.booleans(), st.booleans()),
    max_size=8,
)


@given(IMAGES, st.sets(st.sampled_from("abcdef")), st.integers(0, 60))
def test_nothing_that_is_needed_is_deleted(
    images: list[ImageUse], held: set[str], limit: int
) -> None:
    sizes = dict.fromkeys("abcdef", 10)
    found = choose_deletions(images, sizes, held, limit)
    kept = [image for image in images if image.digest not in found.images]
    needed = {layer for image in kept for layer in image.layers} | held
    assert not needed & set(found.layers)
    assert all(image in kept for image in images if image.pinned or not image.pullable)
    assert set(sizes) - set(found.layers) == needed & set(sizes)
    assert found.left_bytes <= limit or not [i for i in kept if i.pullable and not i.pinned]
