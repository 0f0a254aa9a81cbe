"""A store for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hekla.images.store import ImageStore
from hekla.images.tree import remove_tree
from hekla.units.clock import ManualClock


@pytest.fixture
def where(tmp_path: Path) -> Iterator[Path]:
    """The directory of a store."""
    yield tmp_path / "images"
    if (tmp_path / "images").exists():
        remove_tree(tmp_path / "images")


@pytest.fixture
def store(where: Path) -> Iterator[ImageStore]:
    opened = ImageStore(where, clock=ManualClock())
    yield opened
    opened.close()
