"""tools.kube: building, caching and stopping programs."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tools.kube.gobuild import BuildFailed, Part, ensure, missing
from tools.kube.parts import PARTS
from tools.kube.processes import Processes, StartFailed, stop_recorded
from tools.peers import volcano
from tools.waiting import until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Go module without dependencies, and a separate cache."""
    reason = missing([Part("hello", _write_module(tmp_path / "hello"), "example.com/hello")])
    if reason:
        pytest.skip(reason)
    compiled = subprocess.check_output(["go", "env", "GOCACHE"], text=True).strip()
    monkeypatch.setenv("GOCACHE", compiled)  # else Go's standard library would be compiled again
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "hello"


def _write_module(folder: Path, version: str = "v1.2.3") -> Path:
    folder.mkdir(exist_ok=True)
    pin = f"// pinned: example.com/hello {version}\n"
    (folder / "go.mod").write_text(f"module example.com/program\n\ngo 1.24\n\n{pin}")
    (folder / "go.sum").write_text("")
    (folder / "main.go").write_text(
        "package main\n\nvar gitVersion, gitMajor, gitMinor string\n\n"
        "func main() { print(gitVersion, gitMajor, gitMinor) }\n"
    )
    return folder


def part(folder: Path) -> Part:
    stamps = ("main.gitVersion={version}", "main.gitMajor={major}", "main.gitMinor={minor}")
    return Part("hello", folder, "example.com/hello", "example.com/program", stamps)


def test_a_program_reports_its_version(module: Path) -> None:
    program = ensure(part(module))
    said = subprocess.run([program], capture_output=True, text=True, check=True).stderr
    assert said == "v1.2.312"


def test_concurrent_builds_run_once_and_a_new_pin_builds_again(
    module: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    threads = [threading.Thread(target=ensure, args=(part(module),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = part(module).program
    assert first.exists()
    assert capfd.readouterr().err.count("building hello") == 1
    _write_module(module, "v1.3.0")
    assert ensure(part(module)) != first
    assert first.exists()


def test_a_build_that_fails_leaves_nothing_behind(module: Path) -> None:
    (module / "main.go").write_text("package main\n\nfunc main() { nonsense }\n")
    with pytest.raises(BuildFailed, match="nonsense"):
        ensure(part(module))
    assert not part(module).program.exists()


def test_own_source_is_part_of_the_digest(tmp_path: Path) -> None:
    folder = _write_module(tmp_path / "hello")
    pinned = part(folder)
    own = Part("hello", folder, "example.com/hello", "./program")
    (folder / "program").mkdir()
    (folder / "program" / "main.go").write_text("package main\n")
    before = pinned.program, own.program
    (folder / "program" / "main.go").write_text("package main\n\nfunc main() {}\n")
    assert pinned.program == before[0]
    assert own.program != before[1]


def test_every_pinned_part_has_a_version() -> None:
    for one in (*PARTS.values(), *volcano.PARTS.values()):
        assert one.version.startswith("v"), one.name
        assert one.flags.startswith("-s -w")


def test_a_process_that_ends_early_is_reported_with_its_log(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    processes.start("broken", [sys.executable, "-c", "raise SystemExit('no such flag')"])
    with pytest.raises(StartFailed, match="no such flag"):
        processes.wait_for("broken", lambda: False)
    processes.stop_all()


def test_recorded_processes_are_stopped(tmp_path: Path) -> None:
    program = [sys.executable, "-uc", "import signal; print('up'); signal.pause()"]
    processes = Processes(tmp_path)
    processes.start("sleeper", program)
    processes.wait_for("sleeper", lambda: "up" in processes.log("sleeper").read_text())
    ((pid, _),) = json.loads((tmp_path / "processes.json").read_text())
    # Reap it, as init would.
    waiter = threading.Thread(target=processes._ours["sleeper"].wait, daemon=True)
    waiter.start()
    assert stop_recorded(tmp_path) == [Path(sys.executable).name]
    waiter.join()
    assert not Path(f"/proc/{pid}").exists()
    assert stop_recorded(tmp_path) == []


def test_servers_end_with_a_killed_runner(tmp_path: Path) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv (util-linux)")
    runner = f"""
import sys, signal
from pathlib import Path
from tools.kube.processes import Processes
processes = Processes(Path({str(tmp_path)!r}))
sleep = "import signal; print('up'); signal.pause()"
processes.start("server", [sys.executable, "-uc", sleep])
processes.wait_for("server", lambda: "up" in processes.log("server").read_text())
print("up", flush=True)
signal.pause()
"""
    with subprocess.Popen(
        [sys.executable, "-c", runner], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "up\n"
        ((pid, _),) = json.loads((tmp_path / "processes.json").read_text())
        assert Path(f"/proc/{pid}").exists()
        killed.kill()
    until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in _state(pid))


def test_a_process_that_cleans_up_outlives_a_killed_runner_and_sees_its_end(
    tmp_path: Path,
) -> None:
    runner = f"""
import signal, sys
from pathlib import Path
from tools.kube.processes import Processes
processes = Processes(Path({str(tmp_path)!r}))
wait = "import sys; print('up', flush=True); sys.stdin.read(); print('clean', flush=True)"
processes.start("cleaner", [sys.executable, "-c", wait], cleans_up=True)
processes.wait_for("cleaner", lambda: "up" in processes.log("cleaner").read_text())
print("up", flush=True)
signal.pause()
"""
    with subprocess.Popen(
        [sys.executable, "-c", runner], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "up\n"
        killed.kill()
    until(lambda: (tmp_path / "cleaner.log").read_text() == "up\nclean\n")


def test_connections_are_forwarded_both_ways_and_closed(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as behind, socket.socket() as front:
        front.bind(("127.0.0.1", 0))
        front.listen()
        words: list[str | Path] = [
            sys.executable,
            ROOT / "tools/kube/forward.py",
            str(front.fileno()),
        ]
        port = str(behind.getsockname()[1])
        processes.start("forward", [*words, "127.0.0.1", port], pass_fds=[front.fileno()])
        try:
            with socket.create_connection(front.getsockname()) as caller:
                called, _ = behind.accept()
                with called:
                    caller.sendall(b"ask")
                    assert called.recv(3) == b"ask"
                    called.sendall(b"answer")
                    assert caller.recv(6) == b"answer"
                    caller.shutdown(socket.SHUT_WR)
                    assert called.recv(1) == b""
                assert caller.recv(1) == b""
        finally:
            processes.stop_all()


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
