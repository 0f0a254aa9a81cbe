"""Power cuts and dead processes at any point of a store's life. The long run is `make crash`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.crash.powercut import Lost, cut, record
from tools.crash.vfs import Disk, Sync, Truncate, Write


async def test_a_store_that_syncs_keeps_what_it_told_through_any_power_cut(tmp_path: Path) -> None:
    life = await record(tmp_path / "live", 250, "power", seed=1)
    totals = cut(life, 120, tmp_path / "cut", seed=1, power=True, told=True)
    assert totals.cuts == 120


async def test_a_store_keeps_what_it_told_when_its_process_dies_at_any_point(
    tmp_path: Path,
) -> None:
    life = await record(tmp_path / "live", 250, "process", seed=2)
    totals = cut(life, 120, tmp_path / "cut", seed=2, power=False, told=True)
    assert (totals.cuts, totals.unsynced_lost) == (120, 0)


async def test_a_store_that_syncs_seldom_loses_the_newest_and_nothing_by_halves(
    tmp_path: Path,
) -> None:
    life = await record(tmp_path / "live", 250, "process", seed=3)
    totals = cut(life, 120, tmp_path / "cut", seed=3, power=True, told=False)
    assert totals.unsynced_lost > 0, "the experiment must be able to lose something"
    with pytest.raises(Lost, match="was told"):
        cut(life, 120, tmp_path / "cut", seed=3, power=True, told=True)


def test_what_was_not_synced_may_be_lost_in_parts(tmp_path: Path) -> None:
    from random import Random

    disk = Disk()
    for step in (Write("a", 0, b"x" * 600), Sync("a"), Write("a", 0, b"y" * 2048)):
        disk.take(step)
    disk.leave(tmp_path, None)
    assert (tmp_path / "a").read_bytes() == b"y" * 2048
    outcomes = set()
    for seed in range(40):
        disk.leave(tmp_path, Random(seed))
        outcomes.add((tmp_path / "a").read_bytes())
    assert b"x" * 600 in outcomes
    assert b"y" * 2048 in outcomes
    assert len(outcomes) > 4
    disk.take(Truncate("a", 10))
    disk.take(Sync("a"))
    disk.leave(tmp_path, Random(0))
    assert (tmp_path / "a").read_bytes() == b"y" * 10
