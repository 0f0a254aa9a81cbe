"""SECURITY.md names tests for its promises; they have to exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


def test_every_named_test_exists() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    named = re.findall(r"`((?:\w+/)?test_\w+\.py)`", text)
    assert len(named) >= 20
    for name in named:
        path = TESTS / name if "/" in name else TESTS / "security" / name
        assert path.exists(), f"SECURITY.md names {name}"


def test_every_security_test_is_named() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    for path in (TESTS / "security").glob("test_*.py"):
        assert path.name in text, f"SECURITY.md does not name tests/security/{path.name}"
