"""Files that survive a power cut, and errors of a disk that is full."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from hekla.images.errors import DiskFull, StoreError

__all__ = ["disk_errors", "sync_directory", "sync_file_system"]

_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def disk_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"the disk is full, and {what} needs space; free disk space, or remove images"
            ) from error
        raise StoreError(f"{what} cannot be read or written: {error}") from error


def sync_file_system(path: Path) -> None:
    """Write all files of a layer to disk: one call instead of one for each file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _libc.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
