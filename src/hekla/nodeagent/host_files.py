"""Open a file of this machine that a pod names: only what the pod could read itself.

Pods that run as users of their namespace read what everybody may read, so the file and each
directory above it must be open to everybody, and in none of the directories of which each pod has
its own. Pods of the owner read what the agent reads.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from hekla.images.errors import ImageNotFound

MAX_LINKS: Final = 40
PRIVATE: Final = ("/tmp", "/var/tmp", "/run", "/dev", "/proc", "/sys")
"""Directories of the machine that such pods do not see."""
_PATH: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def open_for_pods(path: str, *, is_owner: bool, off_limits: Path) -> int:
    """Open a regular file that the pods of this node may read; raise ImageNotFound.

    `is_owner` means that pods run as the user of the agent. No pod reads below `off_limits`, the
    data directory of the cluster.
    """
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC) if is_owner else _find_for_everybody(path)
    except OSError as error:
        raise ImageNotFound(f"the SIF file {path} cannot be read: {error.strerror}") from error
    try:
        found = os.readlink(f"/proc/self/fd/{handle}")
        if Path(found).is_relative_to(off_limits):
            raise ImageNotFound(
                f"the SIF file {path} is in the data directory of the cluster; move it elsewhere"
            )
        hides = [each for each in PRIVATE if Path(found).is_relative_to(each)]
        if hides and not is_owner:
            raise ImageNotFound(
                f"the SIF file {path} is in {hides[0]}, of which pods see their own only; move it, "
                "for example to /srv/images"
            )
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ImageNotFound(f"the SIF file {path} is not a regular file")
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ImageNotFound(f"the SIF file {path} cannot be read: {error.strerror}") from error
    finally:
        os.close(handle)


def _find_for_everybody(path: str) -> int:
    """Return a handle of a file by a path on which nothing is closed to others.

    Links are followed by hand, so those of /proc are the text that they show.
    """
    opened = [os.open("/", _PATH)]
    left = _parts(path)
    links = 0
    try:
        while left:
            name = left.pop()
            if not os.fstat(opened[-1]).st_mode & stat.S_IXOTH:
                where = os.readlink(f"/proc/self/fd/{opened[-1]}")
                raise _closed(path, f"the directory {where} is not open to everybody (o+x)")
            if name == "..":
                if len(opened) > 1:
                    os.close(opened.pop())
                continue
            found = os.open(name, _PATH, dir_fd=opened[-1])
            if not stat.S_ISLNK(os.fstat(found).st_mode):
                opened.append(found)
                continue
            target = os.readlink("", dir_fd=found)
            os.close(found)
            links += 1
            if links > MAX_LINKS:
                raise ImageNotFound(f"the SIF file {path} is behind too many links")
            while target.startswith("/") and len(opened) > 1:
                os.close(opened.pop())
            left += _parts(target)
        mode = os.fstat(opened[-1]).st_mode
        if not mode & stat.S_IROTH:
            raise _closed(path, "it is not readable for everybody (o+r)")
        return opened.pop()
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")][::-1]


def _closed(path: str, why: str) -> ImageNotFound:
    return ImageNotFound(
        f"the SIF file {path} cannot be read by pods, which run as users of their namespace: "
        f"{why}; change that, or load it under a name with `hekla image load`"
    )
