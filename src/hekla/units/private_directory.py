"""A directory for secrets: its owner's alone, or refused.

Data directories hold tokens, keys and every object of a cluster. A directory that others can enter
is refused with the command that closes it, rather than closed silently: someone has opened it.
"""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

UMASK = 0o077
CLUSTER_FILES = ("state.db", "hekla.log")
"""Files by which the data directory of a cluster is known."""


class InsecureDirectory(OSError):
    """Others could read or replace the files in this directory."""


def ensure_private(path: Path) -> None:
    """Create a directory for its owner only, or check that an existing one is."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        reason = f"{path} cannot be made: {error.strerror}; use another directory"
        raise OSError(reason) from error
    if path.is_symlink() and path.lstat().st_uid not in (0, os.geteuid()):
        raise InsecureDirectory(
            f"{path} is a symbolic link of another user (uid {path.lstat().st_uid}), who could "
            "point it elsewhere; use a directory of your own"
        )
    real = path.resolve()
    found = real.stat()
    if found.st_uid != os.geteuid():
        raise InsecureDirectory(
            f"{real} belongs to another user (uid {found.st_uid}, this process has "
            f"{os.geteuid()}); use an empty directory of your own"
        )
    if stat.S_IMODE(found.st_mode) & UMASK:
        raise InsecureDirectory(
            f"{real} has mode {stat.S_IMODE(found.st_mode):04o}: others can enter it, and the "
            f"cluster keeps its tokens and data there; {_advice(real)}"
        )
    for parent in real.parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise InsecureDirectory(
                f"{parent} is writable by everybody, who could replace {real}; use another "
                f"directory, or: chmod o-w {parent}"
            )


def _advice(path: Path) -> str:
    """Suggest chmod only for a directory of a cluster, not for /etc or a home directory."""
    try:
        found = {each.name for each in path.iterdir()}
    except OSError:
        found = {""}
    if not found or found.intersection(CLUSTER_FILES):
        return f"close it: chmod 700 {shlex.quote(str(path))}"
    return "it has other files: use an empty directory of your own"


def tighten(directory: Path, *patterns: str) -> None:
    """Make existing files, such as those of an earlier version, readable by the owner only."""
    for pattern in patterns:
        for path in directory.glob(pattern):
            if path.is_file() and not path.is_symlink():
                path.chmod(0o600)


def create_private(path: Path) -> None:
    """Create an empty file for its owner only, or tighten an existing one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
