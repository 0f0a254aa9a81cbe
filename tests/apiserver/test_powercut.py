"""Power cuts and killed processes at any point of a write. The long run is `make crash`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.crash.powercut import Lost, cut, record
from tools.crash.vfs import Disk, Sync, Truncate, Write


async def test_syncing_store_keeps_acknowledged_writes_after_any_power_cut(tmp_path: Path) -> None:
    life = await record(tmp_path / "live", 250, "power", seed=1)
    totals = cut(life, 120, tmp_path / "cut", seed=1, power=True, told=True)
    assert totals.cuts == 120


async def test_store_keeps_acknowledged_writes_when_its_process_is_killed(
    tmp_path: Path,
) -> None:
    life = await record(tmp_path / "live", 250, "process", seed=2)
    totals = cut(life, 120, tmp_path / "cut", seed=2, power=False, told=True)
    assert (totals.cuts, totals.unsynced_lost) == (120, 0)


async def test_store_without_sync_loses_only_whole_newest_transactions(
    tmp_path: Path,
) -> None:
    life = await record(tmp_path / "live", 250, "process", seed=3)
    totals = cut(life, 120, tmp_path / "cut", seed=3, power=True, told=False)
    assert totals.unsynced_lost > 0, "the simulation must be able to lose data"
    with pytest.raises(Lost, match="was told"):
        cut(life, 120, tmp_path / "cut", seed=3, power=True, told=True)


def test_simulated_disk_may_lose_parts_of_unsynced_writes(tmp_path: Path) -> None:
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
