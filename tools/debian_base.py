"""A Debian file system with chosen packages, for images of tests: made once, then cached."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path

from tools import debian

LIMIT_S = 1800.0
_LEFT_OUT = (
    "./var/cache/apt", "./var/lib/apt/lists", "./usr/share/doc", "./usr/share/man",
    "./usr/share/locale", "./proc", "./sys", "./dev",
)  # fmt: skip


def base(*packages: str) -> Path:
    """Return a tar of this machine's Debian release, at its least, with these packages."""
    release = _release()
    digest = hashlib.sha256(" ".join((release, *_LEFT_OUT, *packages)).encode()).hexdigest()[:8]
    where = debian.cache_dir()
    where.mkdir(parents=True, exist_ok=True)
    target = where / f"base-{release}-{digest}.tar"
    with (where / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _make(target, release, packages)
    return target


def _make(target: Path, release: str, packages: tuple[str, ...]) -> None:
    program = debian.program("debootstrap")
    root = target.with_suffix(".root")
    shutil.rmtree(root, ignore_errors=True)
    words: list[str | Path] = [
        "unshare", "--mount", program, "--variant=minbase", f"--include={','.join(packages)}",
        release, root, _mirror(release),
    ]  # fmt: skip
    unpacked = debian.cache_dir() / "debootstrap/usr/share/debootstrap"
    environment = {**os.environ, "DEBOOTSTRAP_DIR": str(unpacked)} if unpacked.exists() else None
    try:
        _run(words, environment)
        partial = target.with_suffix(".part")
        left_out = [f"--exclude={path}/*" for path in _LEFT_OUT]
        _run(["tar", "--create", f"--file={partial}", f"--directory={root}", *left_out, "."])
        partial.rename(target)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _run(words: list[str | Path], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode:
        raise debian.Missing(f"{words[0]} failed: {(done.stderr or done.stdout)[-500:]}")


def _release() -> str:
    return platform.freedesktop_os_release()["VERSION_CODENAME"]


def _mirror(release: str) -> str:
    """Return where this machine's packages come from."""
    words = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        address, _, suite = line.partition(" ")
        if suite == release:
            return address
    raise debian.Missing(f"apt has no source of packages for {release}: run apt-get update")
