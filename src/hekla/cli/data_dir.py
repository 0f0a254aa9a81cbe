"""The data directory of the cluster on this machine, and the process that runs it.

Note: every command imports this module; keep it cheap to import.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

PID_FILE = "hekla.pid"
MULTI_USER_FILE = "multi-user"
"""Exists while the cluster runs with --multi-user."""


def default_data_dir() -> Path:
    """Return the user's data directory, by the XDG rules."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "hekla"


def running_pid(where: Path) -> int | None:
    """Return the process id of the cluster in a data directory, or None if none runs."""
    try:
        pid = int((where / PID_FILE).read_text())
        with (where / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return pid
    except (OSError, ValueError):
        return None
    return None
