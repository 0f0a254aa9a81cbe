"""`hekla up --install-service`: the unit is checked by systemd-analyze; systemctl is a recorder.

Note: no test starts systemd. Its start-up empties /tmp, even in namespaces of its own.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tools import systemd

from hekla.cli import service
from hekla.cli.main import main
from hekla.cli.service_unit import quoted, service_name

SYSTEMCTL = """\
#!/bin/sh
[ -e "{down}" ] && {{ echo "Failed to connect to bus: No medium found" >&2; exit 1; }}
case "$*" in
  *show-environment) exit 0 ;;
  *is-active*) [ -e "{active}" ]; exit ;;
  *start*) touch "{active}" ;;
  *disable*) rm -f "{active}" ;;
esac
echo "$@" >> "{log}"
"""


class Machine:
    """A user's systemd that records what it is told."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "calls"
        self.down = directory / "down"
        self.unit = directory / "config" / "systemd" / "user" / "hekla.service"
        program = directory / "bin" / "systemctl"
        program.parent.mkdir()
        paths = {"log": self.log, "down": self.down, "active": directory / "active"}
        program.write_text(SYSTEMCTL.format(**paths))
        program.chmod(0o755)

    def up(self, *words: str) -> Result:
        return CliRunner().invoke(main, ["up", "--user", *words])

    def calls(self) -> list[str]:
        """Return the calls since the last time."""
        if not self.log.exists():
            return []
        found = self.log.read_text().splitlines()
        self.log.unlink()
        return found


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "st 100% $HOME"))
    return made


def test_service_is_written_enabled_and_started(machine: Machine) -> None:
    done = machine.up("--install-service", "--port", "7555", "--host-images")
    assert done.exit_code == 0, done.output
    assert machine.calls() == [
        "--user daemon-reload",
        "--user enable hekla",
        "--user restart hekla",
    ]
    text = machine.unit.read_text()
    assert "-m hekla.cli.main up --data-dir" in text
    assert "--port 7555 --host-images\n" in text
    assert "KillMode=mixed\n" in text
    assert "Restart=on-failure\n" in text
    assert "journalctl --user -u hekla -f" in done.output
    assert "loginctl enable-linger" in done.output
    assert f"export KUBECONFIG={machine.directory}" in done.output


def test_second_time_changes_the_flags_or_nothing(machine: Machine) -> None:
    machine.up("--install-service")
    machine.calls()
    assert "hekla is unchanged and runs" in machine.up("--install-service").output
    assert machine.calls() == ["--user enable hekla", "--user start hekla"]
    assert "hekla is updated and runs" in machine.up("--install-service", "--port", "7555").output
    assert machine.calls() == [
        "--user daemon-reload",
        "--user enable hekla",
        "--user restart hekla",
    ]


def test_uninstall_stops_and_removes_the_service(machine: Machine) -> None:
    machine.up("--install-service")
    machine.calls()
    done = machine.up("--uninstall-service")
    assert "hekla is removed; its jobs and data stay" in done.output
    assert machine.calls() == ["--user disable --now hekla", "--user daemon-reload"]
    assert not machine.unit.exists()
    again = machine.up("--uninstall-service")
    assert again.exit_code == 0
    assert "no service is installed" in again.output
    assert machine.calls() == []


def test_machine_without_systemd_says_so_and_stays_as_it_is(machine: Machine) -> None:
    machine.down.touch()
    done = machine.up("--install-service")
    assert done.exit_code == 1
    assert "systemd of this user does not run here (Failed to connect to bus" in done.output
    assert "`hekla up -d`" in done.output
    assert not machine.unit.exists()


def test_machine_without_systemctl_says_so(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(machine.directory))
    assert "systemctl: No such file or directory" in machine.up("--install-service").output


def test_cluster_that_runs_without_the_service_is_named(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "running_pid", lambda where: 4711)
    done = machine.up("--install-service")
    assert done.exit_code == 1
    assert "(process 4711); stop it with `hekla down" in done.output
    assert not machine.unit.exists()


NONSENSE = {
    "detach": (["--install-service", "--detach"], "omit --detach"),
    "print alone": (["--print"], "apply to --install-service"),
    "user alone": ([], "apply to --install-service"),
    "a line break in the directory": (
        ["--install-service", "--data-dir", "a\nb"],
        "control character",
    ),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_is_refused(case: str, machine: Machine) -> None:
    words, want = NONSENSE[case]
    done = machine.up(*words)
    assert done.exit_code != 0
    assert want in done.output
    assert machine.calls() == []


@pytest.mark.parametrize("scope", ["--system", "--user"])
def test_systemd_finds_no_fault_with_the_printed_unit(
    scope: str, machine: Machine, tmp_path: Path
) -> None:
    words = ["up", "--install-service", scope, "--print", "--multi-user", "--port", "7555"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0
    assert machine.calls() == []
    unit = tmp_path / "hekla.service"
    unit.write_text(done.output)
    wrong = tmp_path / "wrong.service"
    wrong.write_text(done.output.replace("KillMode", "KilMode"))
    try:
        assert systemd.verify(unit) == ""
        assert "Unknown key" in systemd.verify(wrong)
    except systemd.Missing as missing:
        pytest.skip(str(missing))


WORDS = {
    "plain": ("--port=7443", "--port=7443"),
    "a space": ("a b", '"a b"'),
    "a specifier": ("100%", '"100%%"'),
    "a variable": ("$HOME", '"$$HOME"'),
    "quotes and backslashes": ('a"b\\c', '"a\\"b\\\\c"'),
    "nothing": ("", '""'),
}


@pytest.mark.parametrize("case", WORDS)
def test_words_of_the_command_are_not_expanded(case: str) -> None:
    word, want = WORDS[case]
    assert quoted(word) == want


def test_each_data_directory_has_a_service_of_its_own() -> None:
    assert service_name(Path("/srv/hekla"), Path("/srv/hekla")) == "hekla"
    assert service_name(Path("/srv/a b"), Path("/srv/hekla")) == "hekla-srv-a-b"


def test_systemd_is_told_when_the_cluster_is_ready(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving:
        receiving.bind(path)
        service.notify("READY=1", {"NOTIFY_SOCKET": path})
        assert receiving.recv(100) == b"READY=1"
    service.notify("READY=1", {})
