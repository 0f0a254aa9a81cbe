"""Container logs: files that processes write directly.

Output does not depend on a running agent. To bound the disk usage of a container, a hole is punched
at the beginning of the file: the file keeps its length and the writers are not affected, but the
blocks are freed. The file has no timestamps, so the agent keeps an index of (time, offset), one
entry per second, for `--since` and `--timestamps`.
"""

from __future__ import annotations

import bisect
import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from hekla.units.timestamps import format_time

MAX_BYTES = 20 << 20
KEEP_BYTES = 10 << 20
CHUNK = 64 * 1024
INDEX_LENGTH = 4096
_KEEP_SIZE_AND_PUNCH = 0x01 | 0x02
_BLOCK = 4096


@dataclass
class LogFile:
    """The output of one run."""

    path: Path
    _times: list[float] = field(default_factory=list)
    _offsets: list[int] = field(default_factory=list)

    def size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def mark(self, now: float) -> None:
        """Record that the current end of the file was reached at `now`."""
        size = self.size()
        if not self._offsets or self._offsets[-1] != size:
            self._times.append(now)
            self._offsets.append(size)
            if len(self._times) > INDEX_LENGTH:
                del self._times[: INDEX_LENGTH // 2], self._offsets[: INDEX_LENGTH // 2]

    def bound(self, max_bytes: int = MAX_BYTES, keep_bytes: int = KEEP_BYTES) -> None:
        """Free the beginning when the file uses more than `max_bytes`."""
        with self.path.open("r+b", buffering=0) as file:
            stat = os.fstat(file.fileno())
            if stat.st_blocks * 512 <= max_bytes:
                return
            end = (stat.st_size - keep_bytes) // _BLOCK * _BLOCK
            if end > 0 and not _punch(file.fileno(), end):
                os.ftruncate(file.fileno(), 0)  # lose the log rather than fill the disk

    def first(self) -> int:
        """Return where the kept output begins: after the hole, at the start of a line."""
        with self.path.open("rb", buffering=0) as file:
            try:
                begin = os.lseek(file.fileno(), 0, os.SEEK_DATA)
            except OSError:
                return 0
            if begin == 0:
                return 0
            file.seek(begin)
            head = file.read(CHUNK)
            newline = head.find(b"\n")
            zeros = len(head) - len(head.lstrip(b"\0"))
            return begin + (newline + 1 if newline >= 0 else zeros)

    def since(self, moment: float) -> int:
        """Return where the output after `moment` begins, to the second."""
        index = bisect.bisect_right(self._times, moment) - 1
        return self._offsets[index] if index >= 0 else self.first()

    def tail(self, lines: int) -> int:
        """Return where the last `lines` lines begin."""
        first, position = self.first(), self.size()
        if lines == 0:
            return position
        wanted, found = lines, 0
        with self.path.open("rb", buffering=0) as file:
            file.seek(max(first, position - 1))
            if file.read(1) == b"\n":
                wanted += 1  # the newline at the end starts no line
            while position > first:
                begin = max(first, position - CHUNK)
                file.seek(begin)
                chunk = file.read(position - begin)
                at = len(chunk)
                while (at := chunk.rfind(b"\n", 0, at)) >= 0:
                    found += 1
                    if found == wanted:
                        return begin + at + 1
                position = begin
        return first

    def time_of(self, offset: int) -> float:
        """Return when the output at `offset` was written; without an index, the last write."""
        index = bisect.bisect_right(self._offsets, offset) - 1
        if index >= 0:
            return self._times[index]
        try:
            return self.path.stat().st_mtime
        except OSError:
            return 0.0

    def open(self) -> BinaryIO | None:
        """Open the file for `chunks`; None if it does not exist.

        An open file can be read to its end, even if it is moved or removed in the meantime.
        """
        try:
            return self.path.open("rb", buffering=0)
        except FileNotFoundError:
            return None

    def read(self, position: int) -> Iterator[bytes]:
        """Yield the output from `position` in chunks."""
        if (file := self.open()) is not None:
            with file:
                yield from chunks(file, position)

    def stamp(self, data: bytes, offset: int, at_line_start: bool) -> bytes:
        """Return `data`, which begins at `offset`, with a timestamp before each line."""
        stamped = []
        for line in data.splitlines(keepends=True):
            if at_line_start:
                stamped.append(format_time(self.time_of(offset)).encode() + b" ")
            stamped.append(line)
            offset += len(line)
            at_line_start = line.endswith(b"\n")
        return b"".join(stamped)


def chunks(file: BinaryIO, position: int) -> Iterator[bytes]:
    """Yield the output from `position`."""
    file.seek(position)
    while chunk := file.read(CHUNK):
        yield chunk


_libc = ctypes.CDLL(None, use_errno=True)


def _punch(descriptor: int, length: int) -> bool:
    fallocate = getattr(_libc, "fallocate64", None) or getattr(_libc, "fallocate", None)
    if fallocate is None:
        return False
    zero, size = ctypes.c_int64(0), ctypes.c_int64(length)
    return bool(fallocate(descriptor, _KEEP_SIZE_AND_PUNCH, zero, size) == 0)
