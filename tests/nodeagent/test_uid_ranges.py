"""The ranges of user ids of namespaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from hekla.nodeagent import uid_ranges
from hekla.nodeagent.security_context import RANGE_SIZE
from hekla.nodeagent.uid_ranges import FILE, FIRST, NoRange, UidRanges, reserved_ranges


def test_each_namespace_keeps_its_range(tmp_path: Path) -> None:
    first = UidRanges(tmp_path)
    given = {name: first.base(name) for name in ("a", "b", "c")}
    assert len(set(given.values())) == 3
    assert all((base - FIRST) % RANGE_SIZE == 0 for base in given.values())
    again = UidRanges(tmp_path)
    assert {name: again.base(name) for name in ("c", "b", "a")} == given


def test_ranges_of_users_of_the_machine_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subordinate = tmp_path / "subuid"
    subordinate.write_text(f"ann:{FIRST + 10}:65536\n# no range\nbob:100000:65536\n")
    assert reserved_ranges([subordinate]) == [(FIRST + 10, FIRST + 65546), (100000, 165536)]
    monkeypatch.setattr(uid_ranges, "reserved_ranges", lambda: [(FIRST + 10, FIRST + 65546)])
    assert UidRanges(tmp_path).base("a") == FIRST + 2 * RANGE_SIZE


def test_range_is_given_away_only_if_its_namespace_has_nothing_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uid_ranges, "LAST", FIRST + 2 * RANGE_SIZE - 1)
    used = {"a", "b"}
    ranges = UidRanges(tmp_path, in_use=lambda name: name in used)
    first, second = ranges.base("a"), ranges.base("b")
    with pytest.raises(NoRange):
        ranges.base("c")
    used.remove("a")
    assert ranges.base("c") == first
    assert ranges.base("b") == second


def test_damaged_table_is_refused_rather_than_guessed(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    with pytest.raises(OSError, match="damaged"):
        UidRanges(tmp_path)
