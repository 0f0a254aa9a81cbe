"""Limits of emptyDir volumes: how much a pod has written, and whether that is too much."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hekla.units.objects import Object
from hekla.units.quantity import parse_quantity

CHECK_S = 10.0
"""As the kubelet's eviction manager."""
ENTRY_BYTES = 256
"""What a file counts at least, its inode. It bounds the work for many empty files too."""


def size_limits(pod: Object) -> dict[str, int]:
    """Return the size limits of the emptyDir volumes of a pod, in bytes."""
    limits = {}
    for volume in pod["spec"].get("volumes") or ():
        limit = (volume.get("emptyDir") or {}).get("sizeLimit")
        if limit is not None and (size := parse_quantity(limit).value()) > 0:
            limits[str(volume["name"])] = size
    return limits


def exceeded(pod: Object, directory: Path) -> str:
    """Return the kubelet's message about the first volume above its limit; empty if none is."""
    for name, limit in size_limits(pod).items():
        if is_larger(directory / name, limit):
            text = next(
                v["emptyDir"]["sizeLimit"] for v in pod["spec"]["volumes"] if v["name"] == name
            )
            return f'Usage of EmptyDir volume "{name}" exceeds the limit "{text}". '
    return ""


def is_larger(directory: Path, limit: int) -> bool:
    """Return whether the files below a directory use more than `limit` bytes.

    It stops as soon as they do. Links are not followed, and a file counts once.
    """
    used, seen = 0, set()
    try:
        for _, directories, files, descriptor in os.fwalk(directory, follow_symlinks=False):
            for name in (*directories, *files):
                try:
                    found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
                    if (found.st_dev, found.st_ino) in seen:
                        continue
                    seen.add((found.st_dev, found.st_ino))
                used += max(found.st_blocks * 512, ENTRY_BYTES)
                if used > limit:
                    return True
    except OSError:  # removed in the meantime
        return False
    return False
