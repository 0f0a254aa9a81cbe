"""SSH host keys for pods, so that sshd runs in a pod as it does in a container image.

The host keys of the machine are secrets of the machine. Images have their own; the pods of a
namespace that see the machine's /etc/ssh get one of theirs in its place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

HOST_KEY = Path("/etc/ssh/ssh_host_ed25519_key")


def host_key(directory: Path, namespace: str, owner: int) -> Path | None:
    """Return the host key of a namespace, created once; None if the machine has no sshd."""
    path = directory / "ssh_host_keys" / namespace
    if not HOST_KEY.exists() or shutil.which("ssh-keygen") is None:
        return None
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        line = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "hekla", "-f", str(path)]
        subprocess.run(line, check=True, capture_output=True, timeout=20, stdin=subprocess.DEVNULL)
    if path.stat().st_uid != owner:
        os.chown(path, owner, owner)
    return path
