"""`make fidelity`: generated clusters through Volcano and hekla, and what explains the differences.

python -m tests.fidelity.generated --worlds 20000 --seed 1
python -m tests.fidelity.generated --replay 4711        both lives of one cluster
python -m tests.fidelity.generated --laws --worlds 5000 laws of hekla alone, without Go
python -m tests.fidelity.generated --record             outcomes for the test that needs no Go
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path

from tests.fidelity.generated import laws, recording, run
from tests.fidelity.generated.run import UNEXPLAINED

WORLDS = 2000
STORIES = 8
_CHUNK = 25


def main() -> None:
    given = _arguments()
    if given.replay is not None:
        print(run.replay(given.replay, shrunk=given.shrink))
    elif given.record:
        recording.record(given.workers)
    elif given.laws:
        sys.exit(_check_laws(given))
    else:
        sys.exit(_compare(given))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fidelity.generated")
    parser.add_argument("--worlds", type=int, default=WORLDS, help="number of clusters")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--stories", type=int, default=STORIES, help="unexplained ones to print")
    parser.add_argument("--out", type=Path, help="write a line per cluster, as they are judged")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--replay", type=int, metavar="SEED", help="print one cluster")
    parser.add_argument("--shrink", action="store_true", help="with --replay: make it small")
    parser.add_argument("--laws", action="store_true", help="check laws of hekla alone")
    parser.add_argument("--record", action="store_true", help="write the recorded outcomes")
    return parser.parse_args()


def _compare(given: argparse.Namespace) -> int:
    began = time.monotonic()
    seeds = range(given.seed, given.seed + given.worlds)
    found: Counter[str] = Counter()
    levels: dict[str, Counter[str]] = defaultdict(Counter)
    unexplained: list[int] = []
    with ProcessPoolExecutor(given.workers) as pool:
        for results in pool.map(run.judge_all, _chunks(seeds)):
            if given.out:
                with given.out.open("a") as file:
                    file.writelines(f"{one.seed} {one.level.name} {one.why}\n" for one in results)
            for result in results:
                found[result.why] += 1
                levels[result.why][result.level.name.lower()] += 1
                if result.why == UNEXPLAINED:
                    unexplained.append(result.seed)
                    print(f"seed {result.seed}: unexplained, {result.level.name}", flush=True)
        took_s = time.monotonic() - began
        for why, count in found.most_common():
            detail = ", ".join(f"{level} {many}" for level, many in sorted(levels[why].items()))
            print(f"{count:7}  {why}" + (f" ({detail})" if why != run.AGREES else ""))
        print(f"{len(seeds)} clusters in {took_s:.0f} s, {took_s / len(seeds) * 1000:.0f} ms each")
        for story in pool.map(run.shrunk_story, islice(unexplained, given.stories)):
            print(f"\n{story}", flush=True)
    print(f"\n{len(unexplained)} unexplained")
    return int(bool(unexplained))


def _check_laws(given: argparse.Namespace) -> int:
    seeds = range(given.seed, given.seed + given.worlds)
    count = 0
    with ProcessPoolExecutor(given.workers) as pool:
        for seed, found in zip(seeds, pool.map(laws.broken, seeds, chunksize=_CHUNK), strict=True):
            count += bool(found)
            for violation in found:
                print(f"seed {seed}: {violation}", flush=True)
    print(f"laws: {count} of {len(seeds)} clusters break one")
    return int(bool(count))


def _chunks(seeds: range) -> Iterator[range]:
    for start in range(seeds.start, seeds.stop, _CHUNK):
        yield range(start, min(start + _CHUNK, seeds.stop))


if __name__ == "__main__":
    main()
