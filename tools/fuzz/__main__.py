"""`python -m tools.fuzz [--rounds N] [--requests N] [--connections N] [--seed N]`."""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
from pathlib import Path

from hekla.apiserver.server import ApiServer, Config
from tools.fuzz import api, parsers, streams


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50_000, help="for each parser")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--connections", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    fed = sum(parsers.run(name, given.rounds, given.seed) for name in parsers.TARGETS)
    print(f"parsers: {fed} inputs to {len(parsers.TARGETS)} parsers, each read or refused")
    with tempfile.TemporaryDirectory(prefix="hekla-fuzz-") as name:
        asyncio.run(serve(Path(name), given))


async def serve(where: Path, given: argparse.Namespace) -> None:
    async with ApiServer(Config(data_dir=where / "data")) as server:
        totals = await api.run(server, given.requests, given.seed)
        answers = ", ".join(f"{n} {code}" for code, n in sorted(totals.answers.items()))
        print(f"API: {totals.sent} requests, all answered as they may be: {answers}")
        await streams.run(server, given.connections // 2, given.seed)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        opened = await streams.run(server, given.connections, given.seed + 1)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        again = await api.run(server, 200, given.seed + 1)
        print(
            f"socket: {opened} connections, then {again.sent} requests answered; peak memory "
            f"{before >> 10} MiB before, {after >> 10} MiB after; "
            f"executing {server.flowcontrol.executing}, open {server.flowcontrol.streams}"
        )


if __name__ == "__main__":
    main()
