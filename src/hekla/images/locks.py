"""Locks between tasks and processes that use the same store: a file for each lock.

The kernel releases them when a process dies. A lock of flock belongs to an open file, so two tasks
of one process exclude each other, too.

Note: the last holder deletes the file. So after locking, one has to check that the file of this
name is still the locked one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

from hekla.units.clock import Clock

__all__ = ["FileLock", "hold", "hold_blocking"]

PAUSE_S: Final = 0.1


class FileLock:
    """A lock that is held from the moment `try_lock` returns it."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def try_lock(cls, path: Path, *, wait: bool = False) -> FileLock | None:
        """Return the lock; None if it is held elsewhere and `wait` is not set."""
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                os.close(descriptor)
                return None
            except BaseException:
                os.close(descriptor)
                raise
            if _is_file(path, descriptor):
                return cls(path, descriptor)
            os.close(descriptor)

    def release(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        os.close(self._descriptor)


@contextlib.contextmanager
def hold_blocking(path: Path) -> Iterator[None]:
    """Hold a lock that is held for moments only; blocks the thread."""
    lock = FileLock.try_lock(path, wait=True)
    assert lock is not None
    try:
        yield
    finally:
        lock.release()


@contextlib.asynccontextmanager
async def hold(path: Path, clock: Clock) -> AsyncIterator[None]:
    """Hold a lock that others may hold for long.

    It is tried again and again, because a thread that waits in flock cannot be cancelled.
    """
    while (lock := FileLock.try_lock(path)) is None:
        await clock.sleep(PAUSE_S)
    try:
        yield
    finally:
        lock.release()


def _is_file(path: Path, descriptor: int) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)
