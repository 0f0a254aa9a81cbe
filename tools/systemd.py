"""`systemd-analyze` of Debian, to check unit files.

Where it is missing it is unpacked into the user's cache, not installed: installing systemd would
change the machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PACKAGES = ("systemd", "libsystemd-shared")


class Missing(Exception):
    """There is no systemd-analyze; the text names what is missing."""


def verify(unit: Path) -> str:
    """Return what systemd-analyze says about a unit file; empty if nothing is wrong."""
    words, environ = _command()
    done = subprocess.run(
        [*words, "verify", "--man=no", str(unit)],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    return said if done.returncode == 0 else said or f"exit code {done.returncode}"


def _command() -> tuple[list[str], dict[str, str]]:
    if found := shutil.which("systemd-analyze"):
        return [found], {}
    where = _cache() / "usr"
    if not (where / "bin" / "systemd-analyze").exists():
        _unpack()
    libraries = next((where / "lib").glob("*/systemd"))
    return [str(where / "bin" / "systemd-analyze")], {"LD_LIBRARY_PATH": str(libraries)}


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hekla" / "systemd"


def _unpack() -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Missing("systemd-analyze: needs systemd, or root with apt-get to fetch it")
    where = _cache()
    where.mkdir(parents=True, exist_ok=True)
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (("update", "-qq"), ("download", "-qq", *PACKAGES)):
        subprocess.run(["apt-get", *words], env=environ, cwd=where, check=True, capture_output=True)
    for package in sorted(where.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(package), str(where)], check=True, capture_output=True)
