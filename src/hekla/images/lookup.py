"""Read a small file of an image from its layers, as the overlay of them would show it.

Links mean what they mean after chroot to the image. Nothing outside the layers is opened.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hekla.images.errors import InvalidImage

__all__ = ["has_file", "read_file"]

MAX_BYTES: Final = 1 << 20
MAX_LINKS: Final = 40
_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")


@dataclass(frozen=True, slots=True)
class _Merged:
    """A directory of the image: the directories of the layers that it is made of."""

    parts: tuple[int, ...]


def read_file(layers: Sequence[Path], path: str) -> bytes | None:
    """Return a file of the image, with layers topmost first; None if it is no regular file."""
    with _opened(layers) as lookup:
        found = lookup.find(path)
        return None if found is None else _read(found, path)


def has_file(layers: Sequence[Path], path: str) -> bool:
    """Return whether the image has a regular file."""
    with _opened(layers) as lookup:
        return lookup.find(path) is not None


@contextlib.contextmanager
def _opened(layers: Sequence[Path]) -> Iterator[_Lookup]:
    with contextlib.ExitStack() as stack:
        opened = []
        for layer in layers:
            opened.append(os.open(layer, _PATH | os.O_DIRECTORY))
            stack.callback(os.close, opened[-1])
        yield _Lookup(_Merged(tuple(opened)), stack)


class _Lookup:
    def __init__(self, root: _Merged, stack: contextlib.ExitStack) -> None:
        self._root = root
        self._stack = stack

    def find(self, path: str) -> int | None:
        """Return a regular file, opened."""
        where, left, links = [self._root], _split(path), 0
        while left:
            name = left.pop()
            if name == "..":
                where = where[:-1] or where
                continue
            found = self._child(where[-1], name)
            if isinstance(found, _Merged):
                where.append(found)
                continue
            mode = 0 if found is None else os.fstat(found).st_mode
            if found is None or not stat.S_ISLNK(mode):
                return None if left or not stat.S_ISREG(mode) else found
            links += 1
            if links > MAX_LINKS:
                return None
            target = os.readlink("", dir_fd=found)
            where = [self._root] if target.startswith("/") else where
            left += _split(target)
        return None

    def _child(self, directory: _Merged, name: str) -> _Merged | int | None:
        """Return what a directory has under a name: a directory, or another file, opened."""
        parts: list[int] = []
        for part in directory.parts:
            try:
                found = os.open(name, _PATH, dir_fd=part)
            except (FileNotFoundError, PermissionError):
                continue
            self._stack.callback(os.close, found)
            seen = os.fstat(found)
            if stat.S_ISCHR(seen.st_mode):
                break  # a whiteout
            if not stat.S_ISDIR(seen.st_mode):
                if parts:
                    break  # below a directory
                return found
            parts.append(found)
            if _is_opaque(found):
                break
        return _Merged(tuple(parts)) if parts else None


def _split(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")][::-1]


def _read(opened: int, path: str) -> bytes | None:
    try:
        with open(f"/proc/self/fd/{opened}", "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except PermissionError:
        return None
    if len(data) > MAX_BYTES:
        raise InvalidImage(f"{path} of the image is larger than {MAX_BYTES >> 20} MiB")
    return data


def _is_opaque(directory: int) -> bool:
    for name in _OPAQUE:
        with contextlib.suppress(OSError):
            if os.getxattr(f"/proc/self/fd/{directory}", name) == b"y":
                return True
    return False
