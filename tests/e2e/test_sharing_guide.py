"""Runs every command of docs/guides/share-one-gpu-box.md, with a token for each person.

The comment after a command is the expected result: `refused: TEXT`, or `NAME N used` of queues.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tools.kube.processes import free_port
from tools.waiting import until

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "share-one-gpu-box.md"
_COMMAND = re.compile(r"^    (root#|alice\$|bob\$) (.*?)(?:\s{2,}# (.*))?$", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    person: str
    command: str
    expected: str


def steps() -> list[Step]:
    # Another cluster of this machine may have the guide's port.
    text = GUIDE.read_text().replace("--port 7443", f"--port {free_port()}")
    return [Step(match[1][:-1], match[2], match[3] or "") for match in _COMMAND.finditer(text)]


class People:
    """The persons of the guide, each with a home and the variables of a shell."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.data_dir = base / "data"
        programs = str(Path(sys.executable).parent)
        for name in ("root", "alice", "bob"):
            (base / name).mkdir()
        self._variables = {
            name: {
                "PATH": f"{programs}:{os.environ['PATH']}",
                "HOME": str(base / name),
                "XDG_STATE_HOME": str(base / "state"),
            }
            for name in ("root", "alice", "bob")
        }

    def run(self, step: Step) -> subprocess.CompletedProcess[str]:
        variables = self._variables[step.person]
        if export := re.fullmatch(r"export (\w+)=(.*)", step.command):
            variables[export[1]] = export[2].replace("~", variables["HOME"])
            return subprocess.CompletedProcess([], 0, "", "")
        return subprocess.run(
            ["sh", "-c", step.command.replace("/home/", f"{self._base}/")],
            env=variables,
            cwd=ROOT / "examples" / "share-one-box",
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.fixture
def people(tmp_path: Path) -> Iterator[People]:
    made = People(tmp_path)
    yield made
    made.run(Step("root", "hekla down", ""))


def _uses(output: str, queue: str, count: str) -> bool:
    return bool(re.search(rf"{queue}\s+weight.*\n.* {count} used", output))


@pytest.mark.slow
def test_every_command_of_the_guide_does_what_it_says(people: People) -> None:
    done = steps()
    assert {step.person for step in done} == {"root", "alice", "bob"}
    assert sum(step.expected.startswith("refused") for step in done) >= 9
    for step in done:
        if step.command.startswith("cd "):
            continue
        result = people.run(step)
        if step.expected.startswith("refused: "):
            assert result.returncode != 0, step
            told = result.stdout + result.stderr
            assert step.expected.removeprefix("refused: ").lower() in told.lower(), (step, told)
            continue
        assert result.returncode == 0, (step, result)
        for queue, count in re.findall(r"(\w+) (\d+) used", step.expected):
            until(lambda: _uses(people.run(step).stdout, queue, count))  # noqa: B023
