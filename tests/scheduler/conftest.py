from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .world import World, running_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """An API server; the test starts the schedulers it wants."""
    async with running_world(tmp_path / "server") as world:
        yield world
