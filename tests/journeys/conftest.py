"""A home directory for each person, and clusters that end with the test."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hekla.local import node_name
from tests.journeys.screen import Screen


@pytest.fixture
def screen() -> Iterator[Screen]:
    with tempfile.TemporaryDirectory(prefix="hekla-journey-", dir=_shared_directory()) as name:
        home = Path(name)
        home.chmod(0o755)
        made = Screen(home)
        made.name(node_name(), "box")
        yield made
        subprocess.run(
            [sys.executable, "-m", "hekla.cli.main", "down", "--abort"],
            env={**os.environ, **made.environ},
            capture_output=True,
            timeout=120,
            check=False,
        )


def _shared_directory() -> str | None:
    """Return a directory that pods of other users see; an ordinary user has no such pods."""
    return "/srv" if os.access("/srv", os.W_OK) else None
