"""A store for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import debian

from hekla.images.store import ImageStore
from hekla.images.tree import remove_tree
from hekla.units.clock import ManualClock
from tests.images.registry import LyingRegistry, RealRegistry, lying_registry, real_registry


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


@pytest.fixture(scope="session")
def skopeo() -> str:
    """The path of skopeo."""
    try:
        return str(debian.program("skopeo"))
    except debian.Missing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def real(skopeo: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    try:
        debian.program("docker-registry")
    except debian.Missing as error:
        pytest.skip(str(error))
    with real_registry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


@pytest.fixture
def lying(skopeo: str) -> Iterator[LyingRegistry]:
    with lying_registry() as registry:
        yield registry


@pytest.fixture
def live(where: Path, skopeo: str) -> Iterator[ImageStore]:
    """A store with the time of the machine, as a real child process needs it."""
    opened = ImageStore(where)
    yield opened
    opened.close()
