"""From an image's name to an environment on this machine.

There is no container engine: an image stands for a place where its programs are installed. The
table is built in (only `host`) and the user's, in ~/.config/hekla/images.toml:

    [images]
    "pytorch/*"   = { venv = "/opt/torch" }
    "busybox:*"   = { host = true }
    "centos:7"    = { rootfs = "/srv/centos7" }

The first pattern that matches wins. An image nobody has mapped makes its pod wait, with the line to
add in its status; `--host-images` runs all of those on the host instead.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

KINDS = ("host", "venv", "conda", "rootfs")


class ImagesError(ValueError):
    """The table cannot be used."""


class NotMapped(Exception):
    """No line of the table matches an image."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Where an image's programs are."""

    kind: str = "host"
    path: str = ""

    def variables(self, base: dict[str, str]) -> dict[str, str]:
        """`base` with this environment's programs first."""
        if self.kind not in ("venv", "conda"):
            return base
        made = {**base, "PATH": f"{self.path}/bin{os.pathsep}{base.get('PATH', os.defpath)}"}
        made["VIRTUAL_ENV" if self.kind == "venv" else "CONDA_PREFIX"] = self.path
        made.pop("PYTHONHOME", None)
        return made


class Images:
    """The table."""

    def __init__(
        self, patterns: list[tuple[str, Environment]] | None = None, *, host_images: bool = False
    ) -> None:
        self._patterns = [("host", Environment()), *(patterns or [])]
        self._host_images = host_images

    @classmethod
    def load(cls, path: Path, *, host_images: bool = False) -> Images:
        """Read the user's table; an absent file is an empty one."""
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
