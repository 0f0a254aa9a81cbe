"""Record every write and sync of SQLite, in order.

`recording(directory)` installs a layer between SQLite and the file system for this process: the
real files are written as usual, and a journal records writes, truncations, syncs and deletions.
From a journal `Disk` builds the files that a power cut could leave at any point: what was synced
exists; of the rest any part may exist, torn at sectors.

The layer is an SQLite VFS, registered through ctypes, so the code of the store is unchanged. File
creation counts as durable: SQLite syncs the directory itself.
"""

from __future__ import annotations

import contextlib
import ctypes as c
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

SECTOR = 512
_POINTERS_IN_VFS = 18
_OK = 0


class NoSharedLibrary(Exception):
    """Python was built with a static SQLite, which ctypes cannot reach."""


@dataclass(frozen=True, slots=True)
class Write:
    file: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    file: str
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    file: str


@dataclass(frozen=True, slots=True)
class Remove:
    file: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A marker that the caller puts into the journal."""

    what: str
    revision: int


Step = Write | Truncate | Sync | Remove | Mark


@dataclass
class Journal:
    steps: list[Step] = field(default_factory=list)

    def mark(self, what: str, revision: int) -> None:
        self.steps.append(Mark(what, revision))


class Disk:
    """The files after a prefix of a journal."""

    def __init__(self) -> None:
        self._safe: dict[str, bytearray] = {}
        self._unsafe: dict[str, list[Write | Truncate]] = {}

    def take(self, step: Step) -> None:
        match step:
            case Write(file) | Truncate(file):
                self._safe.setdefault(file, bytearray())
                self._unsafe.setdefault(file, []).append(step)
            case Sync(file):
                content = self._safe.setdefault(file, bytearray())
                for each in self._unsafe.pop(file, ()):
                    _apply(content, each)
            case Remove(file):
                self._safe.pop(file, None)
                self._unsafe.pop(file, None)

    def leave(self, directory: Path, random: Random | None) -> None:
        """Write the remaining files: all without `random` (the process died, the machine did not),
        else the synced data and a random part of the rest.
        """
        for name, safe in self._safe.items():
            content = bytearray(safe)
            mood = None if random is None else random.choice((0.0, 0.5, 0.9, 1.0))
            for each in self._unsafe.get(name, ()):
                if mood is None or random is None:
                    _apply(content, each)
                    continue
                for piece in _torn(each):
                    if random.random() < mood:
                        _apply(content, piece)
            (directory / name).write_bytes(content)


def _apply(content: bytearray, step: Write | Truncate) -> None:
    if isinstance(step, Truncate):
        del content[step.size :]
        return
    if len(content) < step.offset:
        content.extend(bytes(step.offset - len(content)))
    content[step.offset : step.offset + len(step.data)] = step.data


def _torn(step: Write | Truncate) -> Iterator[Write | Truncate]:
    if isinstance(step, Truncate):
        yield step
        return
    start = 0
    while start < len(step.data):
        end = start + SECTOR - (step.offset + start) % SECTOR
        yield Write(step.file, step.offset + start, step.data[start:end])
        start = end


# The layer


class _Vfs(c.Structure):
    _fields_ = (
        ("version", c.c_int),
        ("file_size", c.c_int),
        ("max_path", c.c_int),
        ("following", c.c_void_p),
        ("name", c.c_char_p),
        ("app_data", c.c_void_p),
        ("methods", c.c_void_p * _POINTERS_IN_VFS),
    )


class _Methods(c.Structure):
    _fields_ = (("version", c.c_int), ("methods", c.c_void_p * 18))


_OPEN = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_void_p, c.c_int, c.c_void_p)
_DELETE = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_char_p, c.c_int)
_WRITE = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_int, c.c_int64)
_TRUNCATE = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int64)
_SYNC = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int)
# Places in the tables of function pointers.
_VFS_OPEN, _VFS_DELETE = 0, 1
_IO_WRITE, _IO_TRUNCATE, _IO_SYNC = 2, 3, 4


def _library() -> c.CDLL:
    import _sqlite3  # noqa: F401 - maps the library that we look for

    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split()[-1]
        if "libsqlite3" in path:
            return c.CDLL(path)
    raise NoSharedLibrary("SQLite is built into this Python; use one that links libsqlite3.so")


class _Layer:
    """One registered VFS. It must outlive every connection that was opened through it."""

    def __init__(self) -> None:
        library = _library()
        library.sqlite3_vfs_find.restype = c.c_void_p
        library.sqlite3_vfs_find.argtypes = [c.c_char_p]
        library.sqlite3_vfs_register.argtypes = [c.c_void_p, c.c_int]
        library.sqlite3_vfs_unregister.argtypes = [c.c_void_p]
        self._library = library
        self._real = library.sqlite3_vfs_find(None)
        self._vfs = _Vfs.from_buffer_copy(c.string_at(self._real, c.sizeof(_Vfs)))
        self._name = b"hekla-recording"
        self._vfs.name = self._name
        self._real_open = _OPEN(self._vfs.methods[_VFS_OPEN])
        self._real_delete = _DELETE(self._vfs.methods[_VFS_DELETE])
        self._callbacks: list[object] = []
        self._io: dict[int, _Methods] = {}
        self._files: dict[int, str] = {}
        self._lock = threading.Lock()
        self.directory: Path | None = None
        self.journal: Journal | None = None
        self._vfs.methods[_VFS_OPEN] = self._kept(_OPEN(self._open))
        self._vfs.methods[_VFS_DELETE] = self._kept(_DELETE(self._delete))

    def _kept(self, callback: object) -> int | None:
        self._callbacks.append(callback)
        return c.cast(callback, c.c_void_p).value  # type: ignore[arg-type]

    def register(self) -> None:
        self._library.sqlite3_vfs_register(c.addressof(self._vfs), 1)

    def unregister(self) -> None:
        self._library.sqlite3_vfs_unregister(c.addressof(self._vfs))

    def _note(self, step: Step) -> None:
        if self.journal is not None:
            self.journal.steps.append(step)

    def _ours(self, path: bytes | None) -> str | None:
        if path is None or self.directory is None:
            return None
        found = Path(path.decode())
        is_shared_memory = found.name.endswith("-shm")
        return found.name if found.parent == self.directory and not is_shared_memory else None

    def _open(self, _: int, name: int | None, file: int, flags: int, out: int | None) -> int:
        code = self._real_open(self._real, name, file, flags, out)
        ours = self._ours(c.string_at(name) if name else None)
        if code == _OK and ours is not None:
            self._files[file] = ours
            slot = c.c_void_p.from_address(file)
            assert slot.value is not None
            slot.value = c.addressof(self._methods(slot.value))
        return int(code)

    def _methods(self, real: int) -> _Methods:
        """Return the function table of the file with three functions replaced."""
        with self._lock:
            if real not in self._io:
                made = _Methods.from_buffer_copy(c.string_at(real, c.sizeof(_Methods)))
                write = _WRITE(made.methods[_IO_WRITE])
                truncate = _TRUNCATE(made.methods[_IO_TRUNCATE])
                sync = _SYNC(made.methods[_IO_SYNC])

                def on_write(file: int, data: int, size: int, offset: int) -> int:
                    self._note(Write(self._files[file], offset, c.string_at(data, size)))
                    return int(write(file, data, size, offset))

                def on_truncate(file: int, size: int) -> int:
                    self._note(Truncate(self._files[file], size))
                    return int(truncate(file, size))

                def on_sync(file: int, flags: int) -> int:
                    code = int(sync(file, flags))
                    self._note(Sync(self._files[file]))
                    return code

                made.methods[_IO_WRITE] = self._kept(_WRITE(on_write))
                made.methods[_IO_TRUNCATE] = self._kept(_TRUNCATE(on_truncate))
                made.methods[_IO_SYNC] = self._kept(_SYNC(on_sync))
                self._callbacks += [write, truncate, sync]
                self._io[real] = made
            return self._io[real]

    def _delete(self, vfs: int, name: bytes, sync: int) -> int:
        if (ours := self._ours(name)) is not None:
            self._note(Remove(ours))
        return int(self._real_delete(self._real, name, sync))


_layer: _Layer | None = None


@contextlib.contextmanager
def recording(directory: Path) -> Iterator[Journal]:
    """Record operations on files in `directory` by connections opened within the block."""
    global _layer
    if _layer is None:
        _layer = _Layer()
    journal = Journal()
    _layer.directory, _layer.journal = directory, journal
    _layer.register()
    try:
        yield journal
    finally:
        _layer.unregister()
        _layer.journal = None
