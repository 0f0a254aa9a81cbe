"""Go programs as pinned dependencies: built once per version, then cached.

Each folder with go.mod and go.sum names one module and pins its dependencies. A program is stored
in `~/.cache/hekla/kube/VERSION-DIGEST/NAME` ($XDG_CACHE_HOME is respected); the digest covers the
two files and the flags, so a changed pin gives a new program. A program whose source is in the
folder itself (its package begins with `./`) has that source in its digest too.

Note: several test workers may build at once. A lock admits one, and a rename publishes the result
atomically.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

BUILD_LIMIT_S = 3600.0
_SEMVER = re.compile(r"v(\d+)\.(\d+)\.\d+")


class BuildFailed(Exception):
    """A program could not be built; the text has the compiler output."""


@dataclass(frozen=True, slots=True)
class Part:
    """One program: the folder of its go.mod, and the package to build."""

    name: str
    folder: Path
    module: str
    package: str = ""
    stamps: tuple[str, ...] = ()
    """Variables set in the program: `package.name={version}`; also {major} and {minor}."""
    is_test: bool = False
    """A test package, compiled into a program."""
    tags: str = ""
    """Build tags that exclude unneeded parts."""

    @property
    def version(self) -> str:
        text = (self.folder / "go.mod").read_text()
        found = re.search(rf"\s{re.escape(self.module)} (v\S+)", text)
        if found is None:
            raise BuildFailed(f"{self.folder / 'go.mod'} does not require {self.module}")
        return found[1]

    @property
    def flags(self) -> str:
        number = _SEMVER.match(self.version)
        if number is None:
            raise BuildFailed(f"{self.name}: {self.version} is not a version of three numbers")
        known = {"version": self.version, "major": number[1], "minor": number[2]}
        return " ".join(["-s -w", *(f"-X {stamp.format(**known)}" for stamp in self.stamps)])

    @property
    def program(self) -> Path:
        """Return its path in the cache."""
        digest = hashlib.sha256((self.flags + self.tags).encode())
        for name in ("go.mod", "go.sum"):
            digest.update((self.folder / name).read_bytes())
        for source in self._own_sources():
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
        return cache_dir() / f"{self.version}-{digest.hexdigest()[:8]}" / self.name

    def _own_sources(self) -> list[Path]:
        """Return its source files, if it is not a package of the pinned module."""
        if not self.package.startswith("./"):
            return []
        return sorted((self.folder / self.package).glob("*.go"))


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hekla" / "kube"


def missing(parts: Iterable[Part]) -> str:
    """Return why these cannot be built on this machine; empty if they can."""
    absent = [part.name for part in parts if not part.program.exists()]
    if not absent or shutil.which("go"):
        return ""
    return f"needs {', '.join(absent)}, which are built with Go 1.26 or newer: install go"


def ensure(part: Part) -> Path:
    """Return the program, built on first use."""
    program = part.program
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with program.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _build(part, program)
    return program


def _build(part: Part, program: Path) -> None:
    if shutil.which("go") is None:
        raise BuildFailed(f"{part.name} is built with Go, and there is none: install go")
    print(f"building {part.name} {part.version}; minutes, the first time", file=sys.stderr)
    unfinished = program.with_suffix(".part")
    verb = ["test", "-c"] if part.is_test else ["build"]
    words = ["go", *verb, "-mod=readonly", "-trimpath", "-ldflags", part.flags, "-tags", part.tags]
    done = subprocess.run(
        [*words, "-o", str(unfinished), part.package or part.module],
        cwd=part.folder,
        env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise BuildFailed(f"{part.name} {part.version} does not build:\n{done.stderr[-4000:]}")
    unfinished.rename(program)
