"""`python -m hekla.apiserver --data-dir DIR`: the API server alone, for tests and benchmarks.

Prints its address when it serves requests; ends on SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
from pathlib import Path

import uvloop

from hekla.apiserver.server import ApiServer, Config
from hekla.records.store import HISTORY_FILE, HistoryStore
from hekla.units.private_directory import UMASK


async def serve(config: Config) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stopping.set)
    async with ApiServer(config) as server:
        # Objects built at start-up live as long as the server; the garbage collector can skip them.
        gc.collect()
        gc.freeze()
        print(server.address, flush=True)
        await stopping.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="hekla.apiserver", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--durability", choices=("process", "power"), default="process")
    parser.add_argument("--history", action="store_true", help="Serve the history of jobs.")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    os.umask(UMASK)
    history = HistoryStore(given.data_dir / HISTORY_FILE) if given.history else None
    uvloop.run(
        serve(Config(given.data_dir, given.host, given.port, given.durability, history=history))
    )


if __name__ == "__main__":
    main()
