"""Install the frameworks of examples/frameworks: `python -m tools.frameworks`.

Each gets a virtual environment in the user's cache, created once for each version of
requirements/frameworks.txt. The printed table of images belongs into ~/.config/hekla/images.toml.

PyTorch is taken from Debian, built for CPUs: the package of the Python index includes gigabytes of
GPU libraries.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

REQUIREMENTS = Path(__file__).parents[1] / "requirements" / "frameworks.txt"
SYSTEM_PYTHON = "/usr/bin/python3"


class Missing(Exception):
    """A framework cannot be installed; the text names what is missing."""


def cache(requirements: Path = REQUIREMENTS) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    return Path(base) / "hekla" / requirements.stem / digest


def environment(requirements: Path) -> Path:
    """Return a virtual environment with the packages of a requirements file."""
    where = cache(requirements) / "python"

    def install() -> None:
        _run(sys.executable, "-m", "venv", str(where))
        pip = [str(where / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        _run(*pip, "install", "--quiet", "--require-hashes", "--no-deps", "-r", str(requirements))

    return _once(where, install)


def python_frameworks() -> Path:
    """The environment with Ray, Dask and Spark."""
    return environment(REQUIREMENTS)


def torch() -> Path:
    """The environment with PyTorch."""
    where = cache() / "torch"

    def install() -> None:
        if not _has_torch(SYSTEM_PYTHON):
            _install_torch()
        _run(SYSTEM_PYTHON, "-m", "venv", "--system-site-packages", "--without-pip", str(where))

    return _once(where, install)


def _has_torch(python: str) -> bool:
    return Path(python).exists() and not subprocess.call(
        [python, "-c", "import torch"], stderr=subprocess.DEVNULL
    )


def _install_torch() -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Missing("PyTorch: needs python3-torch, and root with apt-get to install it")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    words = ["install", "-qq", "-y", "--no-install-recommends", "python3-torch", "python3-venv"]
    for arguments in (["update", "-qq"], words):
        subprocess.run(["apt-get", *arguments], env=environment, check=True, capture_output=True)


def _once(where: Path, install: Callable[[], None]) -> Path:
    """Install under a lock; recreate a partial environment."""
    where.parent.mkdir(parents=True, exist_ok=True)
    done = where.with_name(where.name + ".done")
    with where.with_name(where.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(where, ignore_errors=True)
            install()
            done.touch()
    return where


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


def images() -> str:
    """The table of images for the examples."""
    python = python_frameworks()
    return (
        "[images]\n"
        f'"pytorch/*" = {{ venv = "{torch()}" }}\n'
        f'"rayproject/ray:*" = {{ venv = "{python}" }}\n'
        f'"ghcr.io/dask/dask:*" = {{ venv = "{python}" }}\n'
        f'"apache/spark:*" = {{ venv = "{python}" }}\n'
    )


if __name__ == "__main__":
    print(images())
