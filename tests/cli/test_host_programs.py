"""Whether pods find the program of a command that its user finds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hekla import HostEnvironment
from hekla.sdk import host_paths
from hekla.sdk.functions import calls
from hekla.sdk.functions.function_job import ended_without_result
from hekla.sdk.host_environment import Prepared
from hekla.sdk.host_paths import HostPathError
from hekla.sdk.host_programs import HostProgram

Make = Callable[..., Path]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that everybody may enter; tests run below /tmp, which pods do not share."""
    monkeypatch.setattr(host_paths, "_OF_THE_POD", ())
    for path in (tmp_path, *tmp_path.parents):
        if not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o055)
    return tmp_path


def program(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def check(name: str, *path: Path, workdir: Path, for_others: bool = True) -> list[str]:
    said: list[str] = []
    where = HostProgram(name, os.pathsep.join(map(str, path)), workdir)
    where.check(for_others=for_others, say=said.append)
    return said


def refusal(name: str, *path: Path, workdir: Path, for_others: bool = True) -> str:
    with pytest.raises(HostPathError) as caught:
        check(name, *path, workdir=workdir, for_others=for_others)
    return str(caught.value)


def test_a_program_in_a_private_directory_is_refused_with_the_reason(root: Path) -> None:
    tool = program(root / "home" / "venv" / "bin" / "tool")
    (root / "home").chmod(0o700)
    want = f"pods cannot run {tool}: they run as users of their namespace, and {root}/home is"
    assert want in refusal("tool", tool.parent, workdir=root)
    assert want in refusal("home/venv/bin/tool", workdir=root)
    assert check("tool", tool.parent, workdir=root, for_others=False) == []


def test_a_link_to_a_private_program_is_refused(root: Path) -> None:
    real = program(root / "home" / "python3.11")
    (root / "home").chmod(0o700)
    (root / "bin").mkdir()
    (root / "bin" / "tool").symlink_to(real)
    assert f"{root}/home is private" in refusal("tool", root / "bin", workdir=root)


def test_the_python_of_a_private_environment_leads_to_requirements(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = program(root / "home" / "bin" / "python")
    (root / "home").chmod(0o700)
    program(root / "usr" / "bin" / "python3")
    monkeypatch.setattr("sys.base_prefix", str(root / "usr"))
    step = "; --requirements FILE makes an environment that they can use"
    assert refusal("python", own.parent, workdir=root).endswith(step)
    monkeypatch.setattr("sys.base_prefix", str(root / "home"))
    assert step not in refusal("python", own.parent, workdir=root)


def test_another_program_of_that_name_is_named(root: Path) -> None:
    own = program(root / "home" / "tool")
    (root / "home").chmod(0o700)
    shared = program(root / "usr" / "tool")
    (line,) = check("tool", own.parent, shared.parent, workdir=root)
    assert line.startswith(f"pods cannot run {own}: ")
    assert line.endswith(f"; they run {shared}")
    assert check("tool", shared.parent, own.parent, workdir=root) == []


def test_a_program_that_only_its_owner_runs_is_refused_with_the_command(root: Path) -> None:
    tool = program(root / "tool", mode=0o700)
    assert f"chmod o+rx {tool}" in refusal("tool", root, workdir=root)


MISSING = {
    "nosuch": "no program 'nosuch' is on the PATH; correct it, or write the program's path",
    "run": "no program 'run' is on the PATH; the file here is ./run",
    "train.py": "no program 'train.py' is on the PATH; the file here is python3 train.py",
    "echo hi": "no program 'echo hi' is on the PATH; write its words without quotes, or sh -c "
    "'echo hi'",
    "tool": "no program 'tool' is on the PATH; there is tool3",
    "./nosuch": "the program ./nosuch does not exist in {here}; correct the path",
    "./run": "./run is not executable: chmod +x {here}/run",
    "./train.py": "./train.py is not executable: chmod +x {here}/train.py, or run python3 "
    "./train.py",
    "./bin": "the program ./bin is a directory; name a file in it",
}


@pytest.mark.parametrize("name", MISSING)
def test_a_program_that_is_not_there_is_refused_with_the_next_step(name: str, root: Path) -> None:
    program(root / "run", mode=0o644)
    program(root / "train.py", mode=0o644)
    program(root / "bin" / "tool3")
    for for_others in (False, True):
        said = refusal(name, root / "bin", workdir=root, for_others=for_others)
        assert said == MISSING[name].format(here=root)


def test_the_path_of_the_command_is_searched_from_its_directory(root: Path) -> None:
    program(root / "work" / "bin" / "tool")
    made = Prepared(str(root / "work"), {"PATH": "/nowhere"})
    made.program("tool", {"PATH": "bin"}).check(for_others=False, say=print)
    with pytest.raises(HostPathError, match="no program 'tool'"):
        made.program("tool", {}).check(for_others=False, say=print)


def test_an_environment_of_the_machine_has_the_path_of_its_user(root: Path) -> None:
    made = HostEnvironment(workdir=root).prepare(for_others=False, say=print)
    made.program("sh", {}).check(for_others=False, say=print)


def function_job(python: Path, image: str = "host") -> dict[str, Any]:
    container = {"image": image, "command": ["sh", "-c", calls.RUN, str(python)]}
    template = {"spec": {"containers": [container]}}
    metadata = {"name": "f", "namespace": "default"}
    status = {"state": {"phase": "Failed"}}
    return {"metadata": metadata, "spec": {"tasks": [{"template": template}]}, "status": status}


def test_a_function_whose_python_pods_cannot_enter_says_so(root: Path) -> None:
    python = program(root / "home" / "python")
    (root / "home").chmod(0o700)

    def notes(code: int, **more: Any) -> str:
        job = function_job(python, **more)
        return "\n".join(ended_without_result(job, f"pod f-0 exited with code {code}").__notes__)

    assert f"pods cannot run {python}: they run as users" in notes(127)
    assert "pods cannot run" not in notes(1)
    assert "pods cannot run" not in notes(127, image="python:3")
