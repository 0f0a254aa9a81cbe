"""The developer documentation is correct: worked examples run, and named code exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DEVELOPER = ROOT / "docs" / "developer"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^\| \d+ \| .* \| `([\w/]+\.py)` \| `([\w.]+)` \|$", re.MULTILINE)
PAGES = sorted(path for path in DEVELOPER.glob("*.md") if "```python" in path.read_text())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_worked_examples_run_from_top_to_bottom(path: Path) -> None:
    names: dict[str, Any] = {"__name__": path.stem}
    for block in BLOCK.findall(path.read_text()):
        exec(compile(block, str(path), "exec", dont_inherit=True), names)


@pytest.mark.parametrize("topic", ["plugin", "controller", "command"])
def test_there_is_a_worked_example_for_each_extension(topic: str) -> None:
    assert DEVELOPER / f"add-a-{topic}.md" in PAGES


def test_every_step_of_a_jobs_life_names_code_that_exists() -> None:
    steps = STEP.findall((DEVELOPER / "life-of-a-job.md").read_text())
    assert len(steps) > 20
    for file, name in steps:
        tree = ast.parse((ROOT / "src" / "hekla" / file).read_text())
        for part in name.split("."):
            defined = {
                node.name: node
                for node in ast.iter_child_nodes(tree)
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            }
            assert part in defined, f"{file} has no {name}"
            tree = defined[part]


def test_modules_named_in_backticks_exist() -> None:
    for path in DEVELOPER.glob("*.md"):
        for name in re.findall(r"`src/(hekla/[\w/.]+\.py)`", path.read_text()):
            assert (ROOT / "src" / name).exists(), f"{path.name}: {name}"
