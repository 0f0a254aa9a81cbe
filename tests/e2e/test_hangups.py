"""A closed terminal, a closed pipe and kill -9: what ends, what goes on, and what is cleaned up."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.waiting import until

from hekla.cli import leftovers

HEKLA = [sys.executable, "-m", "hekla.cli.main"]
BUSY = "touch {mark}; while :; do echo busy; sleep 0.05; done"


class Terminal:
    """A command with a controlling terminal, which can be closed."""

    def __init__(self, *words: str, environ: dict[str, str]) -> None:
        self.process, self._ours = pty.fork()
        if self.process == 0:
            os.execve(sys.executable, [*HEKLA, *words], environ)

    def read_until(self, text: str) -> None:
        seen = ""
        while text not in seen:
            seen += os.read(self._ours, 65536).decode(errors="replace")

    def close(self) -> int:
        """Close the terminal; return the exit code of the command."""
        os.close(self._ours)
        ended: list[int] = []

        def has_ended() -> bool:
            process, status = os.waitpid(self.process, os.WNOHANG)
            ended.extend([status] if process else [])
            return bool(process)

        until(has_ended, "the command goes on without its terminal")
        return os.waitstatus_to_exitcode(ended[0])


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return an environment with a home and a directory for temporary files."""
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    return {
        **{name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
        "HOME": str(tmp_path / "home"),
        "XDG_STATE_HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
    }


@pytest.fixture
def up(tmp_path: Path, environ: dict[str, str]) -> Iterator[str]:
    where = str(tmp_path / "cluster")
    words = ("up", "-d", "--port", "0", "--pod-user", "owner", "--data-dir", where)
    started = call(*words, environ=environ)
    assert started.returncode == 0, started.stderr
    yield where
    call("down", "--data-dir", where, environ=environ)


def call(*words: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HEKLA, *words], capture_output=True, text=True, timeout=600, check=False, env=environ
    )


def is_running(mark: Path) -> bool:
    """Return whether a process has this path in its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(mark).encode() in path.read_bytes():
                return True
    return False


def test_closing_the_terminal_ends_a_temporary_cluster_and_its_pods(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    script = BUSY.format(mark=tmp_path / "mark")
    screen = Terminal("run", "--", "sh", "-c", script, environ=environ)
    screen.read_until("busy")
    assert screen.close() == 128 + signal.SIGHUP
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not is_running(tmp_path / "mark")


def test_closing_the_terminal_leaves_the_job_of_another_cluster_running(
    up: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    script = f"echo begun; until [ -e {tmp_path}/gate ]; do sleep 0.05; done"
    words = ("run", "--data-dir", up, "--name", "left", "--", "sh", "-c", script)
    screen = Terminal(*words, environ=environ)
    screen.read_until("begun")
    assert screen.close() == 0
    (tmp_path / "gate").touch()
    waited = call("job", "wait", "left", "-k", f"{up}/kubeconfig", environ=environ)
    assert "Completed" in waited.stdout + waited.stderr


def test_closing_the_terminal_of_up_stops_the_cluster_as_sigterm_does(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    where = tmp_path / "cluster"
    screen = Terminal("up", "--port", "0", "--data-dir", str(where), environ=environ)
    screen.read_until("stop it")
    assert screen.close() == 0
    assert not (where / "hekla.pid").exists()


def test_a_closed_pipe_aborts_the_job_without_a_traceback(
    up: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    script = BUSY.format(mark=tmp_path / "mark")
    command = ["run", "--data-dir", up, "--name", "piped", "--", "sh", "-c", script]
    child = subprocess.Popen(
        [*HEKLA, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ
    )
    assert child.stdout is not None
    assert child.stderr is not None
    until((tmp_path / "mark").exists)
    child.stdout.close()
    assert child.wait(timeout=600) == 128 + signal.SIGPIPE
    with child.stderr as errors:
        assert b"Traceback" not in errors.read()
    until(lambda: not is_running(tmp_path / "mark"))


def test_a_pipe_that_is_closed_ends_a_run_without_output(environ: dict[str, str]) -> None:
    child = subprocess.Popen(
        [*HEKLA, "run", "--", "sleep", "1000"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ,
    )  # fmt: skip
    assert child.stdout is not None
    with child.stdout as output:
        assert any(b": Running" in line for line in output)
    assert child.wait(timeout=600) == 128 + signal.SIGPIPE


def test_the_next_run_sweeps_a_temporary_cluster_that_was_killed(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    script = BUSY.format(mark=tmp_path / "mark")
    child = subprocess.Popen(
        [*HEKLA, "run", "--", "sh", "-c", script], stdout=subprocess.DEVNULL, env=environ
    )
    until((tmp_path / "mark").exists)
    child.kill()
    child.wait()
    kept = tmp_path / "tmp" / "hekla-mine"  # a directory of the user, without the mark
    kept.mkdir()
    (killed,) = {*(tmp_path / "tmp").iterdir()} - {kept}
    assert is_running(tmp_path / "mark")
    again = call("run", "--", "true", environ=environ)
    assert f"removed {killed} of a temporary cluster that was killed and ended its 1 pod" in (
        again.stderr
    )
    assert not is_running(tmp_path / "mark")
    assert list((tmp_path / "tmp").iterdir()) == [kept]


def test_the_directory_of_a_temporary_cluster_that_runs_is_not_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with leftovers.temporary_data_dir() as where:
        assert leftovers.sweep() == []
        assert where.is_dir()
    assert not where.exists()


def test_pods_of_a_run_that_was_killed_are_named_with_its_data_directory(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    where = str(tmp_path / "data")
    words = ("run", "--data-dir", where, "--", "sh", "-c", BUSY.format(mark=tmp_path / "mark"))
    child = subprocess.Popen([*HEKLA, *words], stdout=subprocess.DEVNULL, env=environ)
    until((tmp_path / "mark").exists)
    child.kill()
    child.wait()
    assert "1 pod runs on" in call("status", "--data-dir", where, environ=environ).stdout
    assert call("down", "--abort", "--data-dir", where, environ=environ).returncode == 0
    assert not is_running(tmp_path / "mark")
