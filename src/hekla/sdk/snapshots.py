"""Snapshots of a directory, in which jobs run while the original changes.

    snapshot = take(Path.cwd(), root=cache)

A snapshot is named by its content: paths, modes and bytes of its files. Of a git checkout it has
the files that git does not ignore. It is read-only; a snapshot that a job has changed all the same
(root may) is not used again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Final

from hekla.sdk.host_paths import HostPathError, size_text

DIRECTORY: Final = "snapshots"
LOCK: Final = ".lock"
NEW_PREFIX: Final = ".new-"
KEY_CHARS: Final = 16
MAX_BYTES: Final = 512 << 20
MAX_FILES: Final = 50_000
GIT_TIMEOUT_S: Final = 120
_LEFT_OUT: Final = {".git", "__pycache__"}
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot in the cache."""

    key: str
    path: Path
    last_used: float
    """Unix seconds."""


def take(directory: Path, *, root: Path, without: Sequence[Path] = ()) -> Snapshot:
    """Return a snapshot of a directory, `without` some directories inside it.

    Raise HostPathError if it is too large.
    """
    left_out = (*without, root)
    wanted = (
        path
        for path in _files(directory)
        if not any(path.is_relative_to(each) for each in left_out)
    )
    files = list(islice(wanted, MAX_FILES + 1))
    _check_size(directory, files)
    place = root / DIRECTORY
    place.mkdir(exist_ok=True)
    place.chmod(0o755)  # whatever the umask: pods of other users read it
    with (place / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in place.glob(f"{NEW_PREFIX}*"):  # of runs that were killed
            _remove(left)
        new = Path(tempfile.mkdtemp(prefix=NEW_PREFIX, dir=place))
        try:
            _copy(directory, files, new)
            path = _place(new, place, digest(new))
        finally:
            _remove(new)
        os.utime(path)
    return _snapshot(path)


def list_snapshots(root: Path) -> list[Snapshot]:
    """Return the snapshots in a cache directory, the longest unused first."""
    found = [
        _snapshot(each)
        for each in (root / DIRECTORY).glob("*")
        if each.is_dir() and not each.name.startswith(NEW_PREFIX)
    ]
    return sorted(found, key=lambda each: each.last_used)


def remove_snapshot(snapshot: Snapshot) -> None:
    """Remove a snapshot. Jobs that run in it fail: see the annotation `hekla.io/snapshot`."""
    with (snapshot.path.parent / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _remove(snapshot.path)


def digest(directory: Path) -> str:
    """Return a hash of the paths, modes and bytes of a directory's files."""
    found = hashlib.sha256()
    for path in sorted(_walk(directory)):
        info, name = path.lstat(), os.fsencode(path.relative_to(directory))
        if stat.S_ISLNK(info.st_mode):
            found.update(b"link\0%b\0%b\0" % (name, os.fsencode(path.readlink())))
            continue
        is_program = bool(info.st_mode & stat.S_IXUSR)
        found.update(b"file\0%b\0%d\0%d\0" % (name, is_program, info.st_size))
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                found.update(chunk)
    return found.hexdigest()[:KEY_CHARS]


def _snapshot(path: Path) -> Snapshot:
    return Snapshot(path.name, path, path.stat().st_mtime)


def _place(new: Path, place: Path, key: str) -> Path:
    """Give a new copy its name, or return an equal one that exists."""
    for number in count():
        path = place / (f"{key}-{number}" if number else key)
        if not path.exists():
            new.rename(path)
            path.chmod(0o555)
            return path
        if digest(path) == key:
            return path
    raise AssertionError("count() does not end")


def _files(directory: Path) -> Iterator[Path]:
    """Yield the files to copy: those that git does not ignore, or all."""
    listed = _git_files(directory)
    if listed is None:
        yield from _walk(directory)
        return
    for path in listed:
        if path.is_symlink() or path.is_file():  # a tracked file may be deleted
            yield path
        elif path.is_dir():  # a submodule
            yield from _walk(path)


def _git_files(directory: Path) -> list[Path] | None:
    """Return the files of a git checkout; None if it is none."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, timeout=GIT_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        return None  # there is no git here
    except subprocess.TimeoutExpired as error:
        raise HostPathError(f"git does not list the files of {directory}; check it") from error
    if done.returncode != 0:
        return None
    return sorted({directory / os.fsdecode(name) for name in done.stdout.split(b"\0") if name})


def _walk(directory: Path) -> Iterator[Path]:
    """Yield the files and links below a directory, without git's own and compiled ones."""
    for where, names, files in os.walk(directory):
        links = [name for name in names if os.path.islink(os.path.join(where, name))]
        names[:] = [name for name in names if name not in _LEFT_OUT and name not in links]
        for name in (*files, *links):
            path = Path(where, name)
            if path.is_symlink() or path.is_file():  # no sockets and pipes
                yield path


def _check_size(directory: Path, files: list[Path]) -> None:
    sizes: dict[Path, int] = {}
    for path in files:
        with suppress(FileNotFoundError):  # deleted in between
            sizes[path] = path.lstat().st_size
    total = sum(sizes.values())
    if total <= MAX_BYTES and len(sizes) <= MAX_FILES:
        return
    largest = max(sizes, key=lambda path: sizes[path])
    at_least = "more than " if len(sizes) > MAX_FILES else ""
    raise HostPathError(
        f"{directory} has {at_least}{min(len(sizes), MAX_FILES)} files with {at_least}"
        f"{size_text(total)}, and a snapshot at most "
        f"{MAX_FILES} with {size_text(MAX_BYTES)}; the largest is "
        f"{largest.relative_to(directory)} with {size_text(sizes[largest])}. List data in "
        ".gitignore (in a git checkout) or keep it in another directory, and name it with --input"
    )


def _copy(directory: Path, files: list[Path], new: Path) -> None:
    for path in files:
        target = new / path.relative_to(directory)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(path, target, follow_symlinks=False)
        except FileNotFoundError:
            continue  # deleted in between
        except OSError as error:
            raise HostPathError(
                f"{path} cannot be copied for a snapshot: {error.strerror}; list it in .gitignore"
            ) from error
        if not target.is_symlink():
            target.chmod(0o555 if path.stat().st_mode & stat.S_IXUSR else 0o444)
    for each in _directories(new):
        each.chmod(0o555)


def _directories(path: Path) -> list[Path]:
    """Return the directories below a path, the innermost first."""
    return [
        Path(where, name)
        for where, names, _ in os.walk(path, topdown=False)
        for name in names
        if not os.path.islink(os.path.join(where, name))
    ]


def _remove(path: Path) -> None:
    """Remove a directory whose subdirectories are read-only."""
    if not path.exists():
        return
    for each in (path, *_directories(path)):
        each.chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)
