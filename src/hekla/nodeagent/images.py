"""Map image names to environments on this machine.

There is no container engine: an image name stands for a place where its programs are installed. The
built-in table has only `host`; the user's table is ~/.config/hekla/images.toml:

    [images]
    "pytorch/*"   = { venv = "/opt/torch" }
    "busybox:*"   = { host = true }
    "centos:7"    = { rootfs = "/srv/centos7" }

The first matching pattern is used. The pod of an unmapped image waits, and its status has the line
to add; `--host-images` runs unmapped images on the host.
"""

from __future__ import annotations

import os
import sys
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

KINDS = ("host", "venv", "conda", "rootfs")


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


class Images:
    """The table of image patterns."""

    def __init__(
        self, patterns: list[tuple[str, Environment]] | None = None, *, host_images: bool = False
    ) -> None:
        self._patterns = [("host", Environment()), *(patterns or [])]
        self._host_images = host_images

    @classmethod
    def load(cls, path: Path, *, host_images: bool = False) -> Images:
        """Read the user's table; a missing file is an empty table."""
        try:
            table = tomllib.loads(path.read_text()).get("images") or {}
        except FileNotFoundError:
            table = {}
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ImagesError(f"{path}: {error}") from error
        patterns = []
        for pattern, entry in table.items():
            given = [kind for kind in KINDS if kind in entry] if isinstance(entry, dict) else []
            if len(given) != 1 or len(entry) != 1:
                raise ImagesError(
                    f"{path}: image {pattern!r} needs exactly one of {', '.join(KINDS)}"
                )
            kind = given[0]
            where = "" if kind == "host" else str(Path(str(entry[kind])).expanduser())
            if where and not Path(where).is_dir():
                raise ImagesError(f"{path}: image {pattern!r}: there is no directory {where}")
            patterns.append((pattern, Environment(kind, where)))
        return cls(patterns, host_images=host_images)

    def resolve(self, image: str) -> Environment:
        for pattern, environment in self._patterns:
            if fnmatchcase(image, pattern):
                return environment
        if self._host_images:
            return Environment()
        raise NotMapped(
            f"image {image!r} is not mapped to anything on this machine, which has no container "
            f'engine; add "{image}" = {{ host = true }} below [images] in '
            "~/.config/hekla/images.toml (or venv, conda, rootfs), or start with --host-images"
        )


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
