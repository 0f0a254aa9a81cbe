"""A directory tree that is written on behalf of untrusted data, and never left.

Each component of a path is opened relative to its parent, without following links. A symbolic link
on the way is followed by hand: it means what it would mean after chroot to the root of the tree.

Note: writing into a directory changes its time, and an ordinary user cannot enter one with mode 0.
So an open directory has its final mode and time in memory, and gets them when it is closed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hekla.images.errors import InvalidImage

__all__ = ["Directory", "Tree", "remove_tree", "split"]

MAX_PATH_BYTES: Final = 4095
MAX_LINKS: Final = 40
MAX_DEPTH: Final = 255
"""Of real directories. Removing a tree takes a descriptor and a frame for each level."""
MAX_OPEN: Final = 64
MAX_STEPS: Final = 50_000_000
"""Directories that are opened or passed for one layer: minutes. Links can make a path very long,
and each of many entries may have such a path; layers of programs take some per entry."""

Place = tuple[bytes, ...]
"""The names from the root down to a file, none of them a link."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_ROOT_ATTRIBUTES = (0o755, 0, 0)


@dataclass(slots=True)
class Directory:
    """An open directory of the tree, with the mode and time that it will have."""

    descriptor: int
    place: Place
    mode: int
    mtime_ns: int


def split(path: bytes, what: str) -> Place:
    """Return the components of a path in an archive; a leading slash means the root of the tree."""
    parts = tuple(part for part in path.split(b"/") if part and part != b".")
    if b".." in parts:
        raise InvalidImage(f"{what} has the path {_show(path)}, which leads upwards; do not use it")
    if len(path) > MAX_PATH_BYTES:
        raise InvalidImage(f"{what} has a path of {len(path)} bytes; {MAX_PATH_BYTES} is the limit")
    return parts


class Tree:
    """A root directory that is being filled."""

    def __init__(self, root: Path, what: str, lowers: Sequence[Path] = ()) -> None:
        """`lowers` are the layers below, topmost first."""
        self._what = what
        self._lowers = lowers
        self._open: dict[Place, Directory] = {}
        self._is_root = os.geteuid() == 0
        self.made = 0
        """Directories that no entry of the archive names."""
        self._has_odd_root = False
        self._steps = 0
        descriptor = os.open(root, _DIRECTORY)
        self._root = Directory(descriptor, (), 0o755, 0)
        self._has_root_attributes = False

    @property
    def inherits(self) -> bool:
        """Directories have attributes of the layers below, so the result fits only on these."""
        return self.made > 0 or self._has_odd_root

    def close(self) -> None:
        """Give all directories their mode and time."""
        if not self._has_root_attributes:
            self._inherit(self._root)
        while self._open:
            self._release(next(iter(self._open)))
        self._finish(self._root)

    def abandon(self) -> None:
        """Close the descriptors only: the tree will be removed."""
        for directory in (self._root, *self._open.values()):
            os.close(directory.descriptor)
        self._open.clear()

    def directory(self, parts: Place, mtime_ns: int | None = None) -> Directory:
        """Open a directory, following links inside the tree.

        With `mtime_ns`, missing directories are made: archives may leave out parents.
        """
        if not parts:
            return self._root
        found = self._open.get(parts)
        return found or self._walk(parts, mtime_ns)

    def make(self, parent: Directory, name: bytes, mtime_ns: int) -> Directory:
        """Make a directory; raise FileExistsError if there is a file of that name."""
        place = (*parent.place, name)
        if len(place) > MAX_DEPTH:
            raise InvalidImage(f"{self._what} has directories more than {MAX_DEPTH} deep")
        os.mkdir(name, 0o700, dir_fd=parent.descriptor)
        made = self._enter(parent, name)
        made.mode, made.mtime_ns = 0o755, mtime_ns
        return made

    def enter(self, parent: Directory, name: bytes) -> Directory:
        """Open a directory that is known to be one."""
        return self._open.get((*parent.place, name)) or self._enter(parent, name)

    def set_attributes(self, directory: Directory, mode: int, owner: tuple[int, int]) -> None:
        if self._is_root:
            os.fchown(directory.descriptor, *owner)
        directory.mode = mode
        if directory is self._root:
            self._has_root_attributes = True

    def remove(self, parent: Directory, name: bytes) -> None:
        """Remove a file, or a directory with all in it."""
        place = (*parent.place, name)
        for each in [each for each in self._open if each[: len(place)] == place]:
            self._release(each)
        found = os.stat(name, dir_fd=parent.descriptor, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            _remove_below(parent.descriptor, name)
        else:
            os.unlink(name, dir_fd=parent.descriptor)

    def _walk(self, parts: Place, mtime_ns: int | None) -> Directory:
        left, links = list(reversed(parts)), 0
        here = self._root
        while left:
            name = left.pop()
            self._count(1)
            if name == b"..":
                here = self._at(here.place[:-1])
                continue
            found = self._open.get((*here.place, name))
            if found is not None:
                here = found
                continue
            try:
                here = self._enter(here, name)
            except FileNotFoundError:
                if mtime_ns is None:
                    raise
                here = self.make(here, name, mtime_ns)
                self.made += 1
                self._inherit(here)
            except NotADirectoryError:
                target = self._link(here, name)
                links += 1
                if links > MAX_LINKS:
                    raise self._invalid(
                        (*here.place, name), "leads through too many links"
                    ) from None
                if target.startswith(b"/"):
                    here = self._root
                left += [part for part in target.split(b"/") if part not in (b"", b".")][::-1]
        return here

    def _at(self, place: Place) -> Directory:
        """Open a real directory again, which may have been closed to save descriptors."""
        if not place:
            return self._root
        return self._open.get(place) or self._enter(self._at(place[:-1]), place[-1])

    def _enter(self, parent: Directory, name: bytes) -> Directory:
        """Open a directory in a directory; raise NotADirectoryError for a link."""
        self._count(1)
        mode: int | None = None
        try:
            descriptor = os.open(name, _DIRECTORY, dir_fd=parent.descriptor)
        except PermissionError:
            descriptor, mode = _open_closed(parent.descriptor, name)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise NotADirectoryError from error
            raise
        found = os.fstat(descriptor)
        place = (*parent.place, name)
        if mode is None:
            mode = stat.S_IMODE(found.st_mode)
        entered = Directory(descriptor, place, mode, found.st_mtime_ns)
        if len(self._open) >= MAX_OPEN:
            self._release(next(each for each in self._open if each != parent.place))
        self._open[place] = entered
        return entered

    def _link(self, parent: Directory, name: bytes) -> bytes:
        try:
            return os.readlink(name, dir_fd=parent.descriptor)
        except OSError as error:
            raise self._invalid(
                (*parent.place, name), "is a file, and has files below it"
            ) from error

    def _inherit(self, directory: Directory) -> None:
        """Give an unnamed directory the attributes it has in the layers below."""
        self._count(len(self._lowers) * len(directory.place))
        mode, uid, gid = _in_lowers(self._lowers, directory.place) or _ROOT_ATTRIBUTES
        owner = (uid, gid) if self._is_root else (0, 0)
        directory.mode = mode
        if self._is_root:
            os.fchown(directory.descriptor, *owner)
        if directory is self._root:
            self._has_odd_root = (mode, *owner) != _ROOT_ATTRIBUTES

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise InvalidImage(
                f"{self._what} has paths that lead through too many directories and links; it "
                "looks like an attack, and is not used"
            )

    def _release(self, place: Place) -> None:
        self._finish(self._open.pop(place))

    def _finish(self, directory: Directory) -> None:
        descriptor = directory.descriptor
        os.fchmod(descriptor, directory.mode)
        os.utime(descriptor, ns=(directory.mtime_ns, directory.mtime_ns))
        os.close(descriptor)

    def _invalid(self, place: Place, why: str) -> InvalidImage:
        return InvalidImage(f"{self._what}: {_show(b'/'.join(place))} {why}; build the image again")


def remove_tree(path: Path) -> None:
    """Remove a directory with all in it, also with modes that keep its owner out."""
    parent = os.open(path.parent, _DIRECTORY)
    try:
        with contextlib.suppress(FileNotFoundError):
            _remove_below(parent, os.fsencode(path.name))
    finally:
        os.close(parent)


def _remove_below(parent: int, name: bytes) -> None:
    if os.geteuid() != 0:
        _make_passable(parent, name)
    shutil.rmtree(name, dir_fd=parent)


def _make_passable(parent: int, name: bytes) -> None:
    try:
        descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    except PermissionError:
        descriptor, _ = _open_closed(parent, name)
    try:
        os.fchmod(descriptor, 0o700)
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    _make_passable(descriptor, os.fsencode(entry.name))
    finally:
        os.close(descriptor)


def _open_closed(parent: int, name: bytes) -> tuple[int, int]:
    """Open a directory of ours that its mode closes; return it and that mode."""
    handle = os.open(name, _PATH, dir_fd=parent)
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISDIR(mode):
            raise NotADirectoryError
        os.chmod(f"/proc/self/fd/{handle}", 0o700)
        return os.open(name, _DIRECTORY, dir_fd=parent), stat.S_IMODE(mode)
    finally:
        os.close(handle)


def _in_lowers(lowers: Sequence[Path], place: Place) -> tuple[int, int, int] | None:
    """Return mode and owner of a directory in the topmost lower layer that has the path."""
    for lower in lowers:
        found = _look_up(lower, place)
        if found is None:
            continue
        if not stat.S_ISDIR(found.st_mode):
            return None  # deleted or replaced there
        return stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid
    return None


def _look_up(root: Path, place: Place) -> os.stat_result | None:
    """Return the last file on a path that exists, if it is the path's end or no directory."""
    descriptor = os.open(root, _PATH)
    try:
        for name in place:
            try:
                inner = os.open(name, _PATH, dir_fd=descriptor)
            except FileNotFoundError:
                return None
            except NotADirectoryError:
                break
            os.close(descriptor)
            descriptor = inner
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def _show(path: bytes) -> str:
    return repr(os.fsdecode(path))[:200]
