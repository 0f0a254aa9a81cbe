"""Recorded lives under Volcano of the first generated clusters, so that tests need no Go.

A line of the file has the seed, the digest of its cluster, and the different lives that Volcano had
in several attempts. Clusters on which Volcano fails are left out.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.peers.oracle import Oracle, OracleError

from tests.fidelity.generated import lives, worlds
from tests.fidelity.generated.lives import Cycle, Life

FILE = Path(__file__).parent / "volcano.jsonl.gz"
SEEDS = range(1, 1001)
LUCK = ("first", "last", "first", "", "")
_CHUNK = 25


@dataclass(frozen=True)
class Recorded:
    seed: int
    digest: str
    lives: tuple[Life, ...]


def record(workers: int) -> None:
    """Write the file."""
    with ProcessPoolExecutor(workers) as pool:
        chunks = [SEEDS[start : start + _CHUNK] for start in range(0, len(SEEDS), _CHUNK)]
        lines = [line for found in pool.map(_record_all, chunks) for line in found]
    # Without a time in the header, the same outcomes give the same file.
    with FILE.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as file:
        file.write(("\n".join(lines) + "\n").encode())


def recorded() -> Iterator[Recorded]:
    """Yield what is recorded, by seed."""
    with gzip.open(FILE, "rt") as file:
        for line in file:
            said = json.loads(line)
            kept = tuple(tuple(_cycle(cycle) for cycle in life) for life in said["lives"])
            yield Recorded(said["seed"], said["digest"], kept)


def _record_all(seeds: Iterable[int]) -> list[str]:
    with Oracle() as oracle:
        return [line for seed in seeds if (line := _record(seed, oracle))]


def _record(seed: int, oracle: Oracle) -> str:
    case = worlds.draw(seed)
    found: list[Life] = []
    for ties in LUCK:
        try:
            life = lives.volcano(case, oracle, ties)
        except OracleError:
            return ""
        if life not in found:
            found.append(life)
    written = [[_fields(cycle) for cycle in life] for life in found]
    body = {"seed": seed, "digest": worlds.digest(case), "lives": written}
    return json.dumps(body, separators=(",", ":"))


def _fields(cycle: Cycle) -> list[Any]:
    return [cycle.placed, cycle.evicted, cycle.pipelined, cycle.phases, cycle.where, cycle.nodes]


def _cycle(fields: list[Any]) -> Cycle:
    return Cycle(*fields)
