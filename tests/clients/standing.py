"""Says which client, in which version, a test stands for; docs/compatibility.md is made of it.

    @stands_for("torchx", version=installed("torchx"), how=RUNS, kinds=("Job",))
    def test_…

A test that takes the fixture `backend` runs on both servers, unless it says otherwise.
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
    """Mark a test as one of the table's rows; several may share a row."""
    assert how in (RUNS, IMITATES)
    return pytest.mark.tested(
        client=client, version=version, how=how, kinds=kinds, servers=servers, note=note
    )


def installed(package: str, lock: str = "clients.txt") -> str:
    """The version of a package that a file of locked requirements pins."""
    return versions(_REQUIREMENTS / lock)[package]
