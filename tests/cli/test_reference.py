"""docs/reference/cli.md is current and complete."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "cli_reference", ROOT / "tools" / "cli_reference.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cli_reference"] = module
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_current(generator: ModuleType) -> None:
    written = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert written == generator.reference(), "run `.venv/bin/python -m tools.cli_reference`"


def test_the_reference_names_every_command_and_flag(generator: ModuleType) -> None:
    written = (ROOT / "docs" / "reference" / "cli.md").read_text()
    for path, command in generator.leaves():
        assert f"`{path}`" in written
        for option in generator._options(command):
            for name in option.opts:
                assert f"`{name}`" in written, f"{path} {name}"
