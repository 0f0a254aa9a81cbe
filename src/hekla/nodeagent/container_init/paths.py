"""Resolve paths inside a directory that others may change, without ever leaving it.

Each component is opened relative to its parent, and links are followed by hand. So a link that
points out, or that is replaced in the meantime, cannot redirect a caller with more rights.
"""

from __future__ import annotations

import errno
import os

MAX_LINKS = 40
_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class PathEscapes(OSError):
    """A path leads out of its directory."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EXDEV, f"the path {path!r} leads out of its directory")


def descend(root: int, path: str, *, beneath: bool) -> tuple[int, list[str]]:
    """Open the deepest existing part of a path below `root`; return it and the missing rest.

    An absolute link means `root`, as after chroot, or with `beneath` is refused like `..` above it.
    """
    opened = [os.dup(root)]
    left = [part for part in path.split("/") if part not in ("", ".")][::-1]
    links = 0
    try:
        while left:
            part = left.pop()
            if part == "..":
                if len(opened) > 1:
                    os.close(opened.pop())
                elif beneath:
                    raise PathEscapes(path)
                continue
            try:
                found = os.open(part, _PATH, dir_fd=opened[-1])
            except FileNotFoundError:
                rest = [part, *left[::-1]]
                if ".." in rest:
                    raise PathEscapes(path) from None
                return opened.pop(), rest
            mode = os.fstat(found).st_mode
            if mode & 0o170000 != 0o120000:
                opened.append(found)
                continue
            target = os.readlink("", dir_fd=found)
            os.close(found)
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, f"{path}: too many links")
            if target.startswith("/"):
                if beneath:
                    raise PathEscapes(path)
                while len(opened) > 1:
                    os.close(opened.pop())
            left += [word for word in target.split("/") if word not in ("", ".")][::-1]
        return opened.pop(), []
    finally:
        for descriptor in opened:
            os.close(descriptor)


def make_directories(parent: int, parts: list[str], *, mode: int = 0o755) -> int:
    """Create directories below an open one, owned like it; return the last. Closes `parent`."""
    owner = os.fstat(parent)
    for part in parts:
        is_new = _make_directory(parent, part, mode)
        child = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        os.close(parent)
        parent = child
        if is_new:
            os.chmod(parent, mode)  # whatever the umask
            give(parent, owner.st_uid, owner.st_gid)
    return parent


def make_file(parent: int, name: str, *, mode: int = 0o644) -> None:
    """Create an empty file in an open directory, owned like it, unless the name exists."""
    try:
        made = os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=parent
        )
    except FileExistsError:
        return
    owner = os.fstat(parent)
    give(made, owner.st_uid, owner.st_gid)
    os.close(made)


def give(descriptor: int, uid: int, gid: int) -> None:
    """Change the owner of an open file if it differs and this process may."""
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) != (uid, gid):
        try:
            os.chown(descriptor, uid, gid)
        except OSError as error:  # EINVAL: not in this user namespace
            if error.errno not in (errno.EPERM, errno.EINVAL):
                raise


def _make_directory(parent: int, name: str, mode: int) -> bool:
    try:
        os.mkdir(name, mode, dir_fd=parent)
    except FileExistsError:
        return False
    return True
