"""`python -m tools.container_image`: build hekla's container image from the Containerfile.

buildah builds it, on a base of Debian packages instead of the one that a registry serves. Programs
that this machine lacks are unpacked and mounted over `/usr` for the time of the build.
"""

from __future__ import annotations

import fcntl
import hashlib
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools import debian
from tools.debian_base import base

NAME = "localhost/hekla"
LIMIT_S = 1800.0
_ROOT = Path(__file__).parents[1]
_SOURCES = (
    "Containerfile", "pyproject.toml", "README.md", "LICENSE", "requirements", "src", "charts"
)  # fmt: skip
_BASE = "localhost/python:debian"
# Where this machine trusts a proxy, so does the build.
_CERTIFICATES = ("/etc/ssl/certs", "/usr/local/share/ca-certificates")


def python_base() -> Path:
    """Return the file system of the base image: Python as Debian packages it."""
    return base("python3", "python3-venv", "python-is-python3", "ca-certificates")


def archive(tag: str) -> Path:
    """Return the image in the format of `docker save`, built unless its sources are unchanged."""
    layer = python_base()
    target = debian.cache_dir() / f"hekla-image-{tag}-{_digest(layer)}.tar"
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            for old in debian.cache_dir().glob("hekla-image-*.tar"):
                old.unlink()
            _build(layer, tag, target)
    return target


def _digest(layer: Path) -> str:
    digest = hashlib.sha256(layer.name.encode())
    for path in _files():
        digest.update(str(path.relative_to(_ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _files() -> Iterator[Path]:
    for name in _SOURCES:
        top = _ROOT / name
        found = sorted(top.rglob("*")) if top.is_dir() else [top]
        yield from (each for each in found if each.is_file() and "__pycache__" not in each.parts)


def _build(layer: Path, tag: str, target: Path) -> None:
    print(f"building {NAME}:{tag}; minutes", file=sys.stderr)
    where = Path(tempfile.mkdtemp(prefix="hekla-image-"))
    try:
        context = where / "context"
        context.mkdir()
        for path in _files():
            copy = context / path.relative_to(_ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
        (where / "base").mkdir()
        (where / "Basefile").write_text("FROM scratch\nADD base.tar /\n")
        shutil.copy(layer, where / "base" / "base.tar")
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-ec", _script(where, tag, target.with_suffix(".part"))],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode:
            raise debian.Missing(f"buildah failed: {(done.stdout + done.stderr)[-2000:]}")
        target.with_suffix(".part").rename(target)
    finally:
        shutil.rmtree(where, ignore_errors=True)


def _script(where: Path, tag: str, target: Path) -> str:
    debian.program("buildah")
    unpacked = debian.cache_dir() / "buildah"
    overlays = [
        f"mount -t overlay -o lowerdir={shlex.quote(str(unpacked / lower))}:{upper} overlay {upper}"
        for lower, upper in (("usr", "/usr"), ("lib", "/usr/lib"), ("etc", "/etc"))
        if (unpacked / lower).is_dir()
    ]
    storage = f"--root {where / 'root'} --runroot {where / 'run'} --storage-driver overlay"
    present = [path for path in _CERTIFICATES if Path(path).is_dir()]
    volumes = " ".join(f"--volume {path}:{path}:ro" for path in present)
    build = f"buildah {storage} bud --isolation chroot --pull-never"
    image = f"{NAME}:{tag}"
    return "\n".join(
        [
            *overlays,
            f"{build} --quiet --file {where / 'Basefile'} --tag {_BASE} {where / 'base'}",
            f"{build} --network host {volumes} --build-arg PYTHON={_BASE}"
            f" --file {where / 'context' / 'Containerfile'} --tag {image} {where / 'context'}",
            f"rm -f {target}",
            f"buildah {storage} push {image} docker-archive:{target}:{image}",
        ]
    )


def main() -> None:
    path = archive("test")
    print(f"{path}: {path.stat().st_size / 1e6:.0f} MB, of which {_share()} MB are the base")


def _share() -> int:
    return round(python_base().stat().st_size / 1e6)


if __name__ == "__main__":
    main()
