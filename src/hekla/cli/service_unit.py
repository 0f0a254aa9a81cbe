"""The systemd unit of `hekla up`. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

START_WITHIN_S: Final = 300
STOP_WITHIN_S: Final = 90
"""Three times the grace that pods get: then systemd kills what is left."""
RESTART_AFTER_S: Final = 5
PASSED_ON: Final = ("PATH", "XDG_CONFIG_HOME")
"""Variables that pods of the image `host`, and images.toml, depend on."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_@:./=,+-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Service:
    """A systemd service that runs a cluster."""

    name: str
    data_dir: Path
    command: tuple[str, ...]
    environment: Mapping[str, str]
    is_system: bool


def up_flags(options: Mapping[str, Any]) -> list[str]:
    """Return options of `hekla up` as words of a command line."""
    words: list[str] = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            words += [option, str(value)]
    return words


def service_name(data_dir: Path, default: Path) -> str:
    """Return the name of the service of a data directory; each has its own."""
    if data_dir == default:
        return "hekla"
    return "hekla-" + re.sub(r"[^A-Za-z0-9]+", "-", str(data_dir)).strip("-")


def service(
    executable: str,
    data_dir: Path,
    flags: Sequence[str],
    environ: Mapping[str, str],
    *,
    name: str,
    is_system: bool,
) -> Service:
    """Return the service that runs `hekla up` with some flags."""
    command = (executable, "-m", "hekla.cli.main", "up", "--data-dir", str(data_dir), *flags)
    passed = {key: environ[key] for key in PASSED_ON if environ.get(key)}
    return Service(name, data_dir, command, passed, is_system)


def unit(made: Service) -> str:
    """Return the text of the unit file.

    `KillMode=mixed` sends SIGTERM to hekla only, which stops its pods so that they go on at the
    next start. `OOMPolicy=continue`: a pod that runs out of memory does not end the cluster.
    """
    variables = "".join(
        f"Environment={quoted(f'{key}={value}')}\n"
        for key, value in sorted(made.environment.items())
    )
    network = "Wants=network-online.target\nAfter=network-online.target\n" if made.is_system else ""
    return f"""\
# Written by `hekla up --install-service`, which overwrites it. Own settings: systemctl edit.
[Unit]
Description=hekla, batch jobs on this machine ({_literal(str(made.data_dir))})
{network}
[Service]
Type=notify
NotifyAccess=main
ExecStart={" ".join(map(quoted, made.command))}
{variables}KillMode=mixed
TimeoutStartSec={START_WITHIN_S}
TimeoutStopSec={STOP_WITHIN_S}
Restart=on-failure
RestartSec={RESTART_AFTER_S}
TasksMax=infinity
OOMPolicy=continue

[Install]
WantedBy={"multi-user.target" if made.is_system else "default.target"}
"""


def quoted(word: str) -> str:
    """Quote a word for a unit file: specifiers and variables are not expanded in it."""
    if any(ord(char) < 0x20 for char in word):
        raise ValueError(f"{word!r} has a control character; a unit file cannot have it")
    text = _literal(word).replace("$", "$$")
    if _PLAIN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _literal(text: str) -> str:
    return text.replace("%", "%%")
