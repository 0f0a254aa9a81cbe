"""The Containerfile: its files exist, and the installed package works. No image is built."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hekla.cli import chart_values, release

ROOT = Path(__file__).parents[2]
RECIPE = (ROOT / "Containerfile").read_text().replace("\\\n", " ")
NAME = re.compile(r"^([a-z0-9._-]+)==(\S+)", re.MULTILINE)


def words(instruction: str) -> list[list[str]]:
    found = re.findall(rf"^{instruction} (.*)$", RECIPE, re.MULTILINE)
    return [line.split() for line in found]


def test_copied_files_exist() -> None:
    copied = [word for line in words("COPY") if "--from=build" not in line for word in line[:-1]]
    assert len(copied) >= 6
    for path in copied:
        assert (ROOT / path).exists(), path
    # hatchling needs the files that the project metadata names.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {project["readme"], *project["license-files"], "pyproject.toml"} <= set(copied)


def test_entry_point_is_a_command_and_user_matches_the_chart() -> None:
    ((entry,),) = [json.loads(" ".join(line)) for line in words("ENTRYPOINT")]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert entry in project["scripts"]
    context = chart_values.default_values(release.chart_directory())["custom"]["default_sc"]
    assert words("USER") == [[f"{context['runAsUser']}:{context['runAsGroup']}"]]


def test_image_installs_the_tested_versions() -> None:
    tested = dict(NAME.findall((ROOT / "requirements" / "dev.txt").read_text()))
    shipped = NAME.findall((ROOT / "requirements" / "run.txt").read_text())
    assert len(shipped) > 20
    assert [(name, version) for name, version in shipped if name not in tested] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=\[]", each)[0].lower() for each in project["dependencies"]}
    assert needed <= {name for name, _ in shipped}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of the Containerfile's last `pip install`, without dependencies."""
    wheels, target = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("site")
    for command in (
        ["hatchling", "build", "-t", "wheel", "-d", str(wheels)],
        ["pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)],
    ):
        files = [] if command[0] == "hatchling" else [str(next(wheels.glob("*.whl")))]
        call = [sys.executable, "-m", *command, *files]
        done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return target


def test_installed_package_contains_the_manifests(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hekla.cli.main", "install", "--dry-run", "--skip-crds"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (installed / "hekla" / "chart" / "values.yaml").exists()
    assert done.stdout == release.as_yaml(release.objects("volcano-system", {}, with_crds=False))
