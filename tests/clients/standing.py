"""Declares which client and version a test covers; docs/compatibility.md is generated from it.

    @stands_for("torchx", version=installed("torchx"), how=RUNS, kinds=("Job",))
    def test_…

A test with the fixture `backend` runs on both servers, unless it declares otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from tools.clients import versions

RUNS: Final = "runs"
IMITATES: Final = "imitates"
BOTH: Final = ("embedded", "Kubernetes")
_REQUIREMENTS: Final = Path(__file__).parents[2] / "requirements"


def stands_for(
    client: str,
    *,
    version: str,
    how: str,
    kinds: tuple[str, ...],
    servers: tuple[str, ...] = BOTH,
    note: str = "",
) -> Callable[[Any], Any]:
    """Add a test to a row of the table; several tests may share a row."""
    assert how in (RUNS, IMITATES)
    return pytest.mark.tested(
        client=client, version=version, how=how, kinds=kinds, servers=servers, note=note
    )


def installed(package: str, lock: str = "clients.txt") -> str:
    """Return the pinned version of a package in a requirements file."""
    return versions(_REQUIREMENTS / lock)[package]
