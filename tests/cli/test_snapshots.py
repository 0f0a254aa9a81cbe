"""Snapshots of a directory: what they contain, and that later changes do not reach them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hekla.sdk import snapshots
from hekla.sdk.host_paths import HostPathError
from hekla.sdk.snapshots import Snapshot, take


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    (directory / "lib").mkdir(parents=True)
    (directory / "train.py").write_text("first")
    (directory / "lib" / "run.sh").write_text("echo")
    (directory / "lib" / "run.sh").chmod(0o755)
    (directory / "link").symlink_to("train.py")
    return directory


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    path = tmp_path / "cache"
    path.mkdir()
    return path


def names(snapshot: Snapshot) -> set[str]:
    return {
        str(path.relative_to(snapshot.path))
        for path in snapshot.path.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }


def git(directory: Path, *words: str) -> None:
    subprocess.run(["git", "-C", directory, *words], check=True, capture_output=True)


def test_later_edits_do_not_reach_a_snapshot(project: Path, cache: Path) -> None:
    first = take(project, root=cache)
    assert names(first) == {"train.py", "lib/run.sh", "link"}
    (project / "train.py").write_text("second")
    assert (first.path / "train.py").read_text() == "first"
    assert (first.path / "link").readlink() == Path("train.py")
    assert os.access(first.path / "lib" / "run.sh", os.X_OK)
    second = take(project, root=cache)
    assert second.key != first.key
    assert (second.path / "train.py").read_text() == "second"


def test_equal_content_is_copied_once(project: Path, cache: Path) -> None:
    first = take(project, root=cache)
    (project / "__pycache__").mkdir()
    (project / "__pycache__" / "x.pyc").touch()
    assert take(project, root=cache).path == first.path
    assert len(snapshots.list_snapshots(cache)) == 1


def test_snapshot_is_read_only_and_readable_for_everybody(project: Path, cache: Path) -> None:
    found = take(project, root=cache).path
    modes = {path.relative_to(found).name: path.stat().st_mode & 0o777 for path in found.rglob("*")}
    assert modes["lib"] == modes["run.sh"] == 0o555
    assert modes["train.py"] == 0o444
    assert found.stat().st_mode & 0o777 == 0o555


def test_snapshot_that_a_job_changed_is_not_used_again(project: Path, cache: Path) -> None:
    first = take(project, root=cache)
    (first.path / "train.py").chmod(0o644)
    (first.path / "train.py").write_text("changed by a job of root")
    second = take(project, root=cache)
    assert second.path != first.path
    assert (second.path / "train.py").read_text() == "first"


def test_files_that_git_ignores_are_left_out(project: Path, cache: Path) -> None:
    (project / ".gitignore").write_text("data/\n")
    (project / "data").mkdir()
    (project / "data" / "big").touch()
    (project / "new.py").touch()
    git(project, "init", "-q")
    git(project, "add", "train.py")
    assert names(take(project, root=cache)) == {
        ".gitignore", "train.py", "new.py", "lib/run.sh", "link",
    }  # fmt: skip
    (project / "train.py").unlink()
    assert "train.py" not in names(take(project, root=cache))
    assert names(take(project / "lib", root=cache)) == {"run.sh"}


def test_directory_that_is_too_large_is_refused_and_the_largest_file_named(
    project: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "MAX_BYTES", 3000)
    (project / "lib" / "weights").write_bytes(b"x" * 4000)
    with pytest.raises(HostPathError, match=r"the largest is lib/weights with 3.9 KiB.*gitignore"):
        take(project, root=cache)
    monkeypatch.undo()
    monkeypatch.setattr(snapshots, "MAX_FILES", 2)
    with pytest.raises(HostPathError, match=r"has more than 2 files .*at most 2 with"):
        take(project, root=cache)


def test_results_inside_the_directory_are_left_out(project: Path, cache: Path) -> None:
    results = project / "results"
    results.mkdir()
    (results / "r.txt").touch()
    assert "results/r.txt" not in names(take(project, root=cache, without=[results]))


def test_copy_of_a_run_that_was_killed_is_removed(project: Path, cache: Path) -> None:
    left = cache / snapshots.DIRECTORY / f"{snapshots.NEW_PREFIX}left"
    left.mkdir(parents=True)
    (left / "half").touch()
    take(project, root=cache)
    assert not left.exists()


def test_snapshots_are_listed_and_removed(project: Path, cache: Path) -> None:
    found = take(project, root=cache)
    assert [each.key for each in snapshots.list_snapshots(cache)] == [found.key]
    snapshots.remove_snapshot(found)
    assert snapshots.list_snapshots(cache) == []
