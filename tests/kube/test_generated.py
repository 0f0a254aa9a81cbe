"""The generated verbs of the synchronous client."""

from __future__ import annotations

from tools.unasync import SOURCE, TARGET, synchronous


def test_synchronous_verbs_are_current() -> None:
    want = synchronous(SOURCE.read_text())
    assert TARGET.read_text() == want, "run: python -m tools.unasync"
    assert "await" not in want
    assert "async " not in want.partition("\n")[2]
