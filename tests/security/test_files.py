"""The data directory and its files are their owner's alone."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hekla.apiserver.server import ApiServer, Config
from hekla.units import private_directory
from hekla.units.private_directory import InsecureDirectory, ensure_private
from tests.apiserver.conftest import ServerProcess, server_process

__all__ = ["server_process"]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


@pytest.fixture
def wide_umask() -> Iterator[None]:
    before = os.umask(0o000)
    yield
    os.umask(before)


@pytest.mark.usefixtures("wide_umask")
async def test_every_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    async with ApiServer(Config(directory)):
        found = files(directory)
        assert {path.name for path in found} >= {"state.db", "state.db-wal", "kubeconfig"}
        assert {path: oct(mode(path)) for path in found if mode(path) != 0o600} == {}
        assert mode(directory) == mode(directory / "pki") == 0o700


def test_server_process_has_a_private_umask(server_process: ServerProcess) -> None:
    server_process.start()
    assert server_process.process is not None
    status = Path(f"/proc/{server_process.process.pid}/status").read_text()
    assert "Umask:\t0077\n" in status


async def test_files_of_an_earlier_version_are_tightened(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    async with ApiServer(Config(directory)):
        pass
    for path in files(directory):
        path.chmod(0o644)
    async with ApiServer(Config(directory)):
        assert [path for path in files(directory) if mode(path) != 0o600] == []


@pytest.mark.parametrize("wide", [0o755, 0o750, 0o711, 0o770, 0o701])
async def test_wide_data_directory_is_refused_with_the_command(tmp_path: Path, wide: int) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    directory.chmod(wide)
    with pytest.raises(InsecureDirectory, match=f"chmod 700 {directory}"):
        await ApiServer(Config(directory)).start()
    assert files(directory) == []
    directory.chmod(0o700)
    async with ApiServer(Config(directory)):
        pass


def test_hekla_up_refuses_a_wide_directory(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    directory.chmod(0o755)
    words = [
        sys.executable,
        "-m",
        "hekla.cli.main",
        "up",
        "--port",
        "0",
        "--data-dir",
        str(directory),
    ]
    for more in ([], ["--detach"]):
        done = subprocess.run([*words, *more], capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert f"chmod 700 {directory}" in done.stderr


def test_closing_a_directory_is_suggested_only_for_one_of_a_cluster(tmp_path: Path) -> None:
    directory = tmp_path / "etc"
    directory.mkdir(mode=0o755)
    (directory / "passwd").touch()
    with pytest.raises(InsecureDirectory, match="use an empty directory of your own") as refused:
        ensure_private(directory)
    assert "chmod" not in str(refused.value)
    (directory / "state.db").touch()
    with pytest.raises(InsecureDirectory, match=f"close it: chmod 700 {directory}"):
        ensure_private(directory)


def test_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "data"
    ensure_private(directory)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(InsecureDirectory, match="belongs to another user"):
        ensure_private(directory)


def test_link_is_checked_by_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.mkdir(mode=0o700)
    link.symlink_to(target)
    ensure_private(link)
    target.chmod(0o755)
    with pytest.raises(InsecureDirectory, match=f"chmod 700 {target}"):
        ensure_private(link)
    target.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(link, 4711, 4711, follow_symlinks=False)
        with pytest.raises(InsecureDirectory, match="symbolic link of another user"):
            ensure_private(link)


def test_directory_below_one_that_everybody_writes_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(InsecureDirectory, match=f"chmod o-w {shared}"):
        ensure_private(shared / "data")
    shared.chmod(0o1777)
    ensure_private(shared / "data")


def test_database_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        private_directory.create_private(tmp_path / "state.db")
    assert not (tmp_path / "elsewhere").exists()
