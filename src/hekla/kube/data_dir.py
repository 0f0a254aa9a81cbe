"""The data directory of the cluster on this machine, and the process that runs it.

Note: every command imports this module; keep it cheap to import.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

PID_FILE = "hekla.pid"
LOCK_FILE = "lock"
STOP_FILE = "hekla.stop"
"""How `hekla down` wants the cluster to stop; read when it gets SIGTERM."""
KUBECONFIG_FILE = "kubeconfig"
MULTI_USER_FILE = "multi-user"
"""Exists while the cluster runs with --multi-user."""
_LOCK_TRIES: Final = 20
_LOCK_PAUSE_S: Final = 0.02


def default_data_dir(environ: Mapping[str, str] | None = None, home: Path | None = None) -> Path:
    """Return the user's data directory, by the XDG rules."""
    environ = os.environ if environ is None else environ
    base = environ.get("XDG_STATE_HOME") or (home or Path.home()) / ".local" / "state"
    return Path(base) / "hekla"


def data_dir_flag(given: Path | None) -> str:
    """Return what a suggested command needs to mean the same cluster."""
    return "" if given is None else f" --data-dir {shlex.quote(str(given))}"


def running_pid(where: Path) -> int | None:
    """Return the process id of the cluster in a data directory, or None if none runs."""
    try:
        pid = int((where / PID_FILE).read_text())
    except (OSError, ValueError):
        return None
    return pid if _is_locked(where) else None


def is_down(where: Path) -> bool:
    """Return whether this is the data directory of a cluster that does not run.

    The lock of another user cannot be read; then it is not known, and the answer is no.
    """
    return _is_locked(where) is False


def try_lock(lock: IO[str]) -> bool:
    """Lock an open lock file for a cluster that starts; return whether that worked.

    A command that looks whether a cluster runs holds the lock for a moment. So it is tried again.
    """
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_S)
        else:
            return True
    return False


def _is_locked(where: Path) -> bool | None:
    """Return whether a process holds the lock; None if there is no lock that can be read.

    The lock is shared, so that two commands that look at the same time do not find each other.
    """
    try:
        with (where / LOCK_FILE).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False
