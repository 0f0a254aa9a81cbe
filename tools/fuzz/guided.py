"""`.venv/fuzz/bin/python -m tools.fuzz.guided [--runs N] [target …]`: coverage-guided fuzzing.

atheris measures which branches of hekla an input reaches and mutates those that reach new ones.
Each target has its own process, because libFuzzer ends the process it runs in.

Note: only code imported inside `instrument_imports` is measured, so the targets are imported late.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import atheris

MAX_LENGTH = 4096
INPUT_LIMIT_S = 10
_DONE = re.compile(rb"Done (\d+) runs")


def child(target: str, words: list[str]) -> None:
    with atheris.instrument_imports(include=["hekla"]):
        from tools.fuzz import parsers
    atheris.Setup([sys.argv[0], *words], parsers.TARGETS[target])
    atheris.Fuzz()


def run(target: str, seeds: list[bytes], runs: int, seed: int) -> int:
    """Return the number of inputs of a target; raise SystemExit with a finding."""
    with tempfile.TemporaryDirectory(prefix="hekla-fuzz-") as directory:
        corpus = Path(directory) / "corpus"
        corpus.mkdir()
        for number, data in enumerate(seeds):
            (corpus / str(number)).write_bytes(data)
        options = [f"-runs={runs}", f"-seed={seed}", f"-max_len={MAX_LENGTH}"]
        options += [f"-timeout={INPUT_LIMIT_S}", f"-artifact_prefix={directory}/", str(corpus)]
        words = [sys.executable, "-m", "tools.fuzz.guided", "--child", target, "--", *options]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        found = _DONE.search(done.stdout)
        if done.returncode or found is None:
            inputs = [path.read_bytes() for path in Path(directory).glob("*-*")]
            end = done.stdout.decode(errors="replace")[-4000:]
            raise SystemExit(f"{target}: a finding, for {inputs!r}\n{end}")
        return int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--runs", type=int, default=100_000, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child, given.targets)
        return
    from tools.fuzz import parsers

    total = 0
    for target in given.targets or parsers.TARGETS:
        count = run(target, parsers.seeds_of(target), given.runs, given.seed)
        total += count
        print(f"{target}: {count} inputs", flush=True)
    print(f"guided: {total} inputs, each read or refused")


if __name__ == "__main__":
    main()
