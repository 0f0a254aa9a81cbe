"""The programs of the guide for Python run on a cluster of `hekla up`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "python.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
WANT = [
    "hello-worker-1 | hello",
    "job default/part-3 finished as Failed\njob default/part-3 is Failed\n  pod part-3-",
    "5.0 ['averaging 3 numbers']",
    "1024 [0, 1, 4, 9, 16]",
    "part-3 Failed",
    "['4', '9']",
]
HEKLA = [sys.executable, "-m", "hekla.cli.main"]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    where = tmp_path_factory.mktemp("cluster")
    # Pods of other users do not see a checkout below /tmp, and so not this Python.
    flags = ["--detach", "--pod-user", "owner", "--data-dir", str(where)]
    subprocess.run([*HEKLA, "up", *flags], check=True, timeout=600)
    yield where
    subprocess.run([*HEKLA, "down", "--data-dir", where], check=True, timeout=600)


def test_each_program_has_an_expectation() -> None:
    assert len(PROGRAMS) == len(WANT)


def test_programs_run_in_order_and_print_what_they_say(up: Path) -> None:
    # The history shows the jobs of the programs before it.
    for program, want in zip(PROGRAMS, WANT, strict=True):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            env={**os.environ, "KUBECONFIG": str(up / "kubeconfig")},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert want in done.stdout
