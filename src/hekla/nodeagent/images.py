"""Map image names to environments on this machine.

An image name of the table stands for a place where its programs are installed. Other images are
real ones (`image_pulls`), where this machine can run them.
`host` is this machine, and so is `busybox` unless the user's table maps it: the image of small
examples, whose few programs every machine has. The user's table is ~/.config/hekla/images.toml:

    [images]
    "pytorch/*"   = { venv = "/opt/torch" }
    "mpi-app:*"   = { host = true }
    "centos:7"    = { rootfs = "/srv/centos7" }

The first matching pattern is used. If an image is neither mapped nor can be run, its pod waits, and
its status has the line to add; `--host-images` runs unmapped images on the host.

`ImagesFile` reads the table again when its file has changed. The file is checked when a container
is prepared, so a pod that waits for its image checks it at every retry.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

log = logging.getLogger("hekla.nodeagent")

KINDS = ("host", "venv", "conda", "rootfs")
MAX_TABLE_BYTES = 1 << 20


class ImagesError(ValueError):
    """The table is invalid."""


class NotMapped(Exception):
    """No pattern of the table matches an image."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The place of an image's programs."""

    kind: str = "host"
    path: str = ""

    def variables(self, base: dict[str, str]) -> dict[str, str]:
        """Return `base` with this environment's programs first."""
        if self.kind not in ("venv", "conda"):
            return base
        variables = {**base, "PATH": f"{self.path}/bin{os.pathsep}{base.get('PATH', os.defpath)}"}
        variables["VIRTUAL_ENV" if self.kind == "venv" else "CONDA_PREFIX"] = self.path
        variables.pop("PYTHONHOME", None)
        return variables


class ImageTable(Protocol):
    """Returns the environment of an image, or raises NotMapped."""

    def resolve(self, image: str) -> Environment: ...


def is_busybox(image: str) -> bool:
    """Return whether this is the image busybox, with or without a tag or digest."""
    return re.split("[:@]", image, maxsplit=1)[0] == "busybox"


def default_command(image: str) -> list[str]:
    """Return what a container without a command runs; only busybox's default is known."""
    return ["sh"] if is_busybox(image) else []


class Images:
    """The table of image patterns."""

    def __init__(
        self,
        patterns: list[tuple[str, Environment]] | None = None,
        *,
        path: Path = Path("~/.config/hekla/images.toml"),
        host_images: bool = False,
    ) -> None:
        """`path` is where the user adds patterns; messages name it."""
        self._patterns = [("host", Environment()), *(patterns or [])]
        self._path = path
        self._host_images = host_images

    @classmethod
    def load(cls, path: Path, *, host_images: bool = False) -> Images:
        """Read the user's table; a missing file is an empty table."""
        table = _read_table(path)
        return cls(
            [(pattern, _environment(path, pattern, entry)) for pattern, entry in table.items()],
            path=path,
            host_images=host_images,
        )

    def resolve(self, image: str) -> Environment:
        for pattern, environment in self._patterns:
            if fnmatchcase(image, pattern):
                return environment
        if self._host_images or is_busybox(image):
            return Environment()
        raise NotMapped(
            f"image {image!r} is not mapped to anything on this machine; "
            f'add "{image}" = {{ host = true }} below [images] in '
            f"{_below_home(self._path)} (or venv, conda, rootfs), or start with --host-images"
        )


class ImagesFile:
    """The user's table, read again when its file has changed.

    Note: a file that became invalid changes nothing. The last valid table stays, and the pods that
    wait for an image report the error.
    """

    def __init__(self, path: Path, *, host_images: bool = False) -> None:
        """Read the table; raise ImagesError if it is invalid."""
        self._path = path
        self._host_images = host_images
        self._version = _version(path)
        self._table = Images.load(path, host_images=host_images)
        self._problem = ""

    def resolve(self, image: str) -> Environment:
        self._refresh()
        try:
            return self._table.resolve(image)
        except NotMapped as error:
            if not self._problem:
                raise
            raise NotMapped(
                f"image {image!r} is not mapped, and the changed table of images is not used: "
                f"{self._problem}; correct the file, and the pod starts"
            ) from error

    def _refresh(self) -> None:
        """Read the table again if the file is another one than at the last attempt."""
        version = _version(self._path)
        if version == self._version:
            return
        self._version = version
        try:
            self._table = Images.load(self._path, host_images=self._host_images)
        except (ImagesError, OSError) as error:
            self._problem = str(error)
            log.warning("the table of images is kept as it was: %s", error)
        else:
            self._problem = ""


def _below_home(path: Path) -> Path:
    """Return the path as people write it: from `~`, if it is below the home directory."""
    try:
        return Path("~") / path.relative_to(Path.home())
    except ValueError:
        return path


def _version(path: Path) -> tuple[int, ...]:
    """Return what changes with a file's content; empty for a missing file."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read_table(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_TABLE_BYTES + 1)
    except FileNotFoundError:
        return {}
    if len(text) > MAX_TABLE_BYTES:
        raise ImagesError(f"{path} is larger than {MAX_TABLE_BYTES >> 20} MiB; shorten it")
    try:
        table = tomllib.loads(text.decode()).get("images") or {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ImagesError(f"{path}: {error}") from error
    if not isinstance(table, dict):
        raise ImagesError(f"{path}: images is not a table; write the patterns below [images]")
    return table


def _environment(path: Path, pattern: str, entry: Any) -> Environment:
    """Return one entry of the table."""
    given = [kind for kind in KINDS if kind in entry] if isinstance(entry, dict) else []
    if len(given) != 1 or len(entry) != 1:
        raise ImagesError(f"{path}: image {pattern!r} needs exactly one of {', '.join(KINDS)}")
    kind = given[0]
    where = "" if kind == "host" else str(Path(str(entry[kind])).expanduser())
    if where and not Path(where).is_dir():
        raise ImagesError(f"{path}: image {pattern!r}: there is no directory {where}")
    return Environment(kind, where)


def closed_programs(environment: Environment) -> list[Path]:
    """Return the directories of an environment that other users of this machine cannot reach.

    For the host these are the ones of hekla's own Python. They hold programs, which a container
    sees although, say, the home directory around them is private.
    """
    if environment.kind == "rootfs":
        return []
    places = [Path(sys.prefix), Path(sys.base_prefix)]
    if environment.kind != "host":
        places = [Path(environment.path)]
        interpreter = Path(environment.path, "bin", "python").resolve()
        if interpreter.exists():
            places.append(interpreter.parent.parent)
    return [path for path in dict.fromkeys(places) if path.is_dir() and _is_closed(path)]


def _is_closed(path: Path) -> bool:
    return any(not parent.stat().st_mode & 0o001 for parent in path.resolve().parents)
