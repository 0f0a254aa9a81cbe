"""A hostile tenant for a few seconds: `make attack`, shorter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: users are kept apart by user namespaces")
def test_nothing_is_lost_to_a_hostile_tenant() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.attack", "--seconds", "15"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost: 0" in done.stdout
    for attack in ("read other namespaces", "grant rights", "pod: files"):
        assert f"| {attack} |" in done.stdout
