"""`python -m tools.crash [--kills N] [--cuts N] [--seed N]`: crash, check, print the totals."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from hekla.apiserver.storage.store import Durability
from tools.crash import kills, powercut


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of the server's process")
    parser.add_argument("--cuts", type=int, default=3000, help="of power, for each of three ways")
    parser.add_argument("--writes", type=int, default=1500, help="in each recorded life")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hekla-crash-") as name:
        where = Path(name)
        runs: tuple[tuple[str, Durability, bool, bool], ...] = (
            ("power cut, synced at each commit", "power", True, True),
            ("process dies, synced now and then", "process", False, True),
            ("power cut, synced now and then", "process", True, False),
        )
        for title, durability, power, told in runs:
            if not given.cuts:
                break
            live = where / f"{durability}-{power}"
            life = asyncio.run(powercut.record(live, given.writes, durability, given.seed))
            found = powercut.cut(
                life, given.cuts, where / "cut", given.seed, power=power, told=told
            )
            print(
                f"{title}: {found.cuts} cuts in {found.steps} steps, all consistent; "
                f"the newest write was lost in {found.unsynced_lost}"
                + ("" if told else " (this way promises no more)")
            )
        if given.kills:
            total = asyncio.run(kills.run(where / "server", given.kills, given.seed))
            print(
                f"kill -9: {total.kills} kills, {total.acknowledged} acknowledged writes all "
                f"there, {total.events} watch events and {total.relists} new lists missed nothing"
            )


if __name__ == "__main__":
    main()
