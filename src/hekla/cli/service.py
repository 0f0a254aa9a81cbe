"""`hekla up --install-service` and `--uninstall-service`: the cluster as a systemd service."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from hekla.cli import terminal
from hekla.cli.service_unit import Service, service, service_name, unit, up_flags
from hekla.kube.data_dir import KUBECONFIG_FILE, data_dir_flag, default_data_dir, running_pid

SYSTEM_UNITS: Final = Path("/etc/systemd/system")
LINGER: Final = Path("/var/lib/systemd/linger")
"""One file for each user whose services run without a login."""


def notify(state: str, environ: Mapping[str, str] | None = None) -> None:
    """Report a state such as `READY=1` to systemd, if it started this process."""
    address = (os.environ if environ is None else environ).get("NOTIFY_SOCKET", "")
    if not address:
        return
    target = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
        try:
            sending.sendto(state.encode(), target)
        except OSError as error:
            terminal.echo(f"systemd does not get {state!r}: {error}", err=True)


def run(
    action: str,
    data_dir: Path | None,
    given: Mapping[str, Any],
    *,
    is_system: bool | None,
    prints: bool,
) -> None:
    """Install or remove the service of a data directory, or only print its unit."""
    as_system = os.geteuid() == 0 if is_system is None else is_system
    default = default_data_dir().absolute()
    where = (data_dir or default).absolute()
    try:
        made = service(
            sys.executable,
            where,
            up_flags(given),
            os.environ,
            name=service_name(where, default),
            is_system=as_system,
        )
        text = unit(made)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if prints:
        click.echo(text, nl=False)
        return
    if as_system and os.geteuid() != 0:
        raise click.ClickException("--system needs root; --user makes a service of your own")
    if action == "install":
        install(made, text)
    else:
        uninstall(made)


def install(made: Service, text: str) -> None:
    """Write the unit, enable it and start it; if it runs with other settings, restart it."""
    manager = _Manager(made.is_system)
    manager.require()
    path = manager.path(made.name)
    pid = running_pid(made.data_dir)
    if pid is not None and not manager.is_active(made.name):
        raise click.ClickException(
            f"a cluster runs in {made.data_dir} already (process {pid}); stop it with "
            f"`hekla down{data_dir_flag(made.data_dir)}`: its jobs go on under the service"
        )
    is_new = not path.exists()
    is_changed = is_new or path.read_text() != text
    if is_changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        manager.run("daemon-reload")
    manager.run("enable", made.name)
    manager.run("restart" if is_changed else "start", made.name)
    done = "installed" if is_new else "updated" if is_changed else "unchanged"
    terminal.echo(f"service {made.name} is {done} and runs: {path}")
    terminal.echo(_next_steps(made, manager))


def _next_steps(made: Service, manager: _Manager) -> str:
    journal = "journalctl" if made.is_system else "journalctl --user"
    lines = [
        f"  export KUBECONFIG={made.data_dir / KUBECONFIG_FILE}",
        f"  {journal} -u {made.name} -f   # its log",
        f"  {manager.shown} status {made.name}",
    ]
    user = getpass.getuser()
    if not made.is_system and not (LINGER / user).exists():
        lines.append(f"  loginctl enable-linger {user}   # run it also while you are not logged in")
    return "\n".join(lines)


def uninstall(made: Service) -> None:
    """Stop the service and remove its unit; jobs and data stay."""
    manager = _Manager(made.is_system)
    path = manager.path(made.name)
    if not path.exists():
        terminal.echo(f"no service is installed: {path} does not exist")
        return
    manager.require()
    manager.run("disable", "--now", made.name)
    path.unlink()
    manager.run("daemon-reload")
    terminal.echo(
        f"service {made.name} is removed; its jobs and data stay in {made.data_dir} and go on at "
        f"the next `hekla up{data_dir_flag(made.data_dir)}`"
    )


class _Manager:
    """systemd of the system or of the user."""

    def __init__(self, is_system: bool) -> None:
        self._words = ["systemctl"] if is_system else ["systemctl", "--user"]
        self._is_system = is_system

    @property
    def shown(self) -> str:
        return " ".join(self._words)

    def path(self, name: str) -> Path:
        if self._is_system:
            return SYSTEM_UNITS / f"{name}.service"
        base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        return Path(base) / "systemd" / "user" / f"{name}.service"

    def require(self) -> None:
        """Refuse where systemd does not run."""
        done = self._call("show-environment")
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[0].rstrip(".")
            whose = "" if self._is_system else " of this user"
            raise click.ClickException(
                f"systemd{whose} does not run here ({reason}); `hekla up -d` starts a cluster "
                "without it, and --install-service --print shows the unit"
            )

    def is_active(self, name: str) -> bool:
        return self._call("is-active", "--quiet", name).returncode == 0

    def run(self, *words: str) -> None:
        done = self._call(*words)
        if done.returncode != 0:
            command = " ".join([*self._words, *words])
            reason = done.stderr.strip() or f"exit code {done.returncode}"
            raise click.ClickException(f"`{command}` failed: {reason}")

    def _call(self, *words: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [*self._words, *words], capture_output=True, text=True, check=False
            )
        except OSError as error:
            return subprocess.CompletedProcess([], 127, "", f"systemctl: {error.strerror}")
