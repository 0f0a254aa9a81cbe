"""Whether a cluster runs on this machine, and where. Light: every command asks."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

PID_FILE = "hekla.pid"


def default_data_dir() -> Path:
    """Where a user's cluster lives, by the XDG rules."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "hekla"


def running_pid(where: Path) -> int | None:
    """The process that runs the cluster in a directory, if one does."""
    try:
        pid = int((where / PID_FILE).read_text())
        with (where / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return pid
    except (OSError, ValueError):
        return None
    return None
