"""Project files: changelog and its fragments, workflow, templates, pre-commit hooks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from hekla import __version__

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")
ROOT_PAGES = sorted([*ROOT.glob("*.md"), ROOT / "changelog.d" / "README.md"])
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def towncrier() -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    section: dict[str, Any] = settings["tool"]["towncrier"]
    return section


def test_every_fragment_has_a_known_type_and_a_text() -> None:
    settings = towncrier()
    types = {entry["directory"] for entry in settings["type"]}
    for path in (ROOT / settings["directory"]).iterdir():
        if path.name in ("README.md", Path(settings["template"]).name):
            continue
        _, type_, suffix = path.name.split(".")
        assert (type_ in types, suffix) == (True, "md"), path.name
        assert path.read_text().strip(), path.name


def test_fragment_types_are_documented() -> None:
    text = (ROOT / "changelog.d" / "README.md").read_text()
    documented = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert documented == [entry["directory"] for entry in towncrier()["type"]]


def test_changelog_has_the_current_version_first() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert towncrier()["start_string"] in text
    versions = re.findall(r"^## (\S+) \(\d{4}-\d{2}-\d{2}\)$", text, re.MULTILINE)
    assert versions[0] == __version__


@pytest.mark.parametrize("path", ROOT_PAGES, ids=lambda path: path.name)
def test_links_of_project_pages_exist(path: Path) -> None:
    for target in LINK.findall(path.read_text()):
        assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_workflow_runs_the_same_check_on_every_supported_python() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    job = workflow["jobs"]["test"]
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]


def test_pre_commit_runs_the_linters_of_make_lint() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repo["repo"] for repo in hooks] == ["local"]
    commands = [hook["entry"].removesuffix(" --force-exclude") for hook in hooks[0]["hooks"]]
    recipe = (ROOT / "Makefile").read_text().split("\nlint: setup\n")[1].split("\n\n")[0]
    expected = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe.splitlines()]
    assert commands == [line.removesuffix(" .") for line in expected]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_issue_forms_have_unique_field_ids(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    ids = [field["id"] for field in form.get("body", ()) if field["type"] != "markdown"]
    assert len(ids) == len(set(ids))
    assert path.name == "config.yml" or {"name", "description", "body"} <= set(form)


@pytest.mark.parametrize("name", ["Makefile", "Containerfile", "tools/frameworks.py"])
def test_locks_are_installed_without_resolving_again(name: str) -> None:
    # pip looks at the index for requirements with extras, although the lock pins them.
    lines = [line for line in (ROOT / name).read_text().splitlines() if "--require-hashes" in line]
    assert lines
    assert [line for line in lines if "--no-deps" not in line] == []
