"""Virtual environments of jobs: built once, by hash, and again after a kill."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tools.waiting import until

from hekla.sdk import environments, requirements_file
from hekla.sdk.environments import COMPLETE, Environment, ensure, key_of
from hekla.sdk.host_paths import HostPathError
from tests.cli.wheels import requirements


def version_in(environment: Environment) -> str:
    line: list[str | Path] = [
        environment.path / "bin" / "python",
        "-c",
        "import greeting; print(greeting.version)",
    ]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()


def key(path: Path) -> str:
    return key_of(requirements_file.read(path))


def test_environment_is_built_once_and_has_the_requirements(tmp_path: Path) -> None:
    said: list[str] = []
    wanted = requirements(tmp_path, "greeting==1.0")
    first = ensure(wanted, root=tmp_path, say=said.append)
    assert version_in(first) == "1.0"
    assert "building environment" in said[0]
    said.clear()
    again = ensure(wanted, root=tmp_path, say=said.append)
    assert (again.path, said) == (first.path, [])
    assert first.variables("/usr/bin") == {
        "VIRTUAL_ENV": str(first.path),
        "PATH": f"{first.path}/bin:/usr/bin",
    }


def test_constraints_decide_the_version_and_the_key(tmp_path: Path) -> None:
    (tmp_path / "limits.txt").write_text("greeting<2\n")
    wanted = requirements(tmp_path, "greeting", "-c limits.txt")
    before = key(wanted)
    assert version_in(ensure(wanted, root=tmp_path, say=lambda _: None)) == "1.0"
    (tmp_path / "limits.txt").write_text("greeting>=2\n")
    assert key(wanted) != before


def test_key_depends_on_requirements_and_includes_not_on_comments(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("b==1\n")
    path = tmp_path / "r.txt"
    path.write_text("a==1\n-r more.txt\n")
    first = key(path)
    path.write_text("# why\n\na==1   # because\n-r more.txt\n")
    assert key(path) == first
    path.write_text("a==1\nb==1\n")
    assert key(path) == first
    (tmp_path / "more.txt").write_text("b==2\n")
    path.write_text("a==1\n-r more.txt\n")
    assert key(path) != first


REFUSED = {
    "-e .": "is a local path",
    "./local": "is a local path",
    "local @ file:///x": "is a local path",
    "dist/a-1.0-py3-none-any.whl": "is a local path",
    "-r missing.txt": "missing.txt cannot be read",
    "--find-links wheels": "write an absolute one",
}


@pytest.mark.parametrize("line", REFUSED)
def test_requirements_that_cannot_be_cached_are_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "r.txt"
    path.write_text(f"{line}\n")
    with pytest.raises(HostPathError, match=REFUSED[line]):
        requirements_file.read(path)


def test_file_that_includes_itself_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "r.txt"
    path.write_text("a==1\n-r r.txt\n")
    assert requirements_file.read(path).lines == ["a==1"]


def test_failed_build_shows_the_end_of_pip_and_leaves_nothing(tmp_path: Path) -> None:
    wanted = requirements(tmp_path, "greeting==9.9")
    with pytest.raises(HostPathError, match=r"(?s)greeting.*correct .*requirements.txt"):
        ensure(wanted, root=tmp_path, say=lambda _: None)
    assert environments.list_environments(tmp_path) == []


def test_incomplete_environment_is_built_again(tmp_path: Path) -> None:
    wanted = requirements(tmp_path, "greeting==1.0")
    first = ensure(wanted, root=tmp_path, say=lambda _: None)
    (first.path / COMPLETE).unlink()
    (first.path / "half").touch()
    again = ensure(wanted, root=tmp_path, say=lambda _: None)
    assert not (again.path / "half").exists()
    assert version_in(again) == "1.0"


def test_build_that_is_killed_is_done_again_by_the_next_run(tmp_path: Path) -> None:
    wanted = requirements(tmp_path, "greeting==1.0")
    code = (
        "import sys; from pathlib import Path; from hekla.sdk.environments import ensure; "
        "ensure(Path(sys.argv[1]), root=Path(sys.argv[2]), say=print)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, wanted, tmp_path])
    path = tmp_path / environments.DIRECTORY / key(wanted)
    until(path.exists)
    process.kill()
    process.wait()
    found = ensure(wanted, root=tmp_path, say=lambda _: None)
    assert version_in(found) == "1.0"


def test_two_runs_build_an_environment_once(tmp_path: Path) -> None:
    wanted = requirements(tmp_path, "greeting==1.0")
    said: list[str] = []
    options = {"root": tmp_path, "say": said.append}
    threads = [threading.Thread(target=ensure, args=(wanted,), kwargs=options) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sum(line.startswith("building") for line in said) == 1
    assert len(environments.list_environments(tmp_path)) == 1


def test_environments_are_listed_by_last_use_and_removed(tmp_path: Path) -> None:
    old = ensure(requirements(tmp_path, "greeting==1.0"), root=tmp_path, say=lambda _: None)
    new = ensure(requirements(tmp_path, "greeting==2.0"), root=tmp_path, say=lambda _: None)
    assert [each.key for each in environments.list_environments(tmp_path)] == [old.key, new.key]
    assert environments.remove_environment(old)
    assert [each.key for each in environments.list_environments(tmp_path)] == [new.key]
