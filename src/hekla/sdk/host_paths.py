"""Paths of this machine in jobs: the cache directory, and what pods can read and write.

Note: with `--pod-user namespace`, pods run as users that own nothing on this machine, with a /tmp,
/var/tmp and /run of their own. A path is of use to them if everybody may reach it.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SYSTEM_CACHE: Final = Path("/var/cache/hekla")
_OF_THE_POD: Final = tuple(map(Path, ("/tmp", "/var/tmp", "/run", "/dev", "/proc")))
_CAN_PASS, _CAN_READ, _CAN_WRITE = stat.S_IXOTH, stat.S_IROTH, stat.S_IWOTH
_AS_OWNER: Final = "start the cluster with --pod-user owner if this machine is yours alone"
MAX_COUNTED: Final = 100_000
"""Files of an output directory that are counted."""


class HostPathError(ValueError):
    """A path or file that a job on this machine cannot use; the message has the next step.

    Example:
        try:
            HostEnvironment(inputs=["data.csv"]).apply(Task("worker", command="wc data.csv"))
        except HostPathError as error:
            print(error)
    """


def cache_directory(*, for_others: bool, environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of environments and snapshots; with `for_others`, all may read it."""
    environ = os.environ if environ is None else environ
    own = environ.get("XDG_CACHE_HOME")
    if for_others and not own and os.geteuid() == 0:
        path = SYSTEM_CACHE
    else:
        path = (Path(own) if own else Path.home() / ".cache") / "hekla"
    if not path.exists():
        path.mkdir(parents=True)
        path.chmod(0o755)  # whatever the umask: pods of other users read it
    _check_owner(path)
    if for_others:
        require_readable(path, "the cache of environments")
    return path


def cache_directories(environ: Mapping[str, str] | None = None) -> list[Path]:
    """Return the cache directories of this user that exist, for a clean-up."""
    environ = os.environ if environ is None else environ
    base = environ.get("XDG_CACHE_HOME")
    own = (Path(base) if base else Path.home() / ".cache") / "hekla"
    places = [own, SYSTEM_CACHE] if os.geteuid() == 0 else [own]
    return [path for path in places if path.is_dir()]


def _check_owner(path: Path) -> None:
    """Refuse a directory in which another user could replace programs that jobs run."""
    found = path.stat()
    if found.st_uid != os.geteuid():
        raise HostPathError(
            f"{path} belongs to another user (uid {found.st_uid}); set XDG_CACHE_HOME to a "
            "directory of your own"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise HostPathError(
            f"others may write to {path}, whose programs jobs run: chmod go-w "
            f"{shlex.quote(str(path))}"
        )


def require_readable(path: Path, what: str) -> None:
    """Refuse a path that pods of other users cannot read."""
    real = path.resolve()
    if closed := _why_closed(real):
        raise HostPathError(f"{what}, {path}, cannot be read by pods: {closed}")
    needed = _CAN_READ | (_CAN_PASS if real.is_dir() else 0)
    if real.stat().st_mode & needed != needed:
        flag = "o+rx" if real.is_dir() else "o+r"
        raise HostPathError(
            f"{what}, {path}, cannot be read by pods, which run as users of their namespace: "
            f"chmod {flag} {shlex.quote(str(real))}, or {_AS_OWNER}"
        )


def _why_closed(real: Path) -> str:
    """Return why pods of other users cannot reach a path, and the next step."""
    for place in _OF_THE_POD:
        if real.is_relative_to(place):
            return f"each pod has a {place} of its own; use another directory, or {_AS_OWNER}"
    for parent in reversed(real.parents):
        if not parent.stat().st_mode & _CAN_PASS:
            return (
                f"they run as users of their namespace, and {parent} is private; use a directory "
                f"that everybody may enter, or {_AS_OWNER}"
            )
    return ""


def is_reachable(path: Path) -> bool:
    """Return whether pods of other users can enter a directory."""
    real = path.resolve()
    return not _why_closed(real) and bool(real.stat().st_mode & _CAN_PASS)


def program_refusal(path: Path) -> str:
    """Return why pods of other users cannot run a program, and the next step; empty if they can."""
    real = path.resolve()
    for each in (path.parent.resolve() / path.name, real):  # a link, and what it names
        if closed := _why_closed(each):
            return closed
    if real.stat().st_mode & _CAN_PASS:
        return ""
    return (
        f"they run as users of their namespace: chmod o+rx {shlex.quote(str(real))}, or {_AS_OWNER}"
    )


def input_path(text: str | Path, *, for_others: bool) -> Path:
    """Return an input that exists and that pods can read."""
    path = Path(text).expanduser().absolute()
    if not path.exists():
        raise HostPathError(f"the input {path} does not exist; correct the path")
    if not os.access(path, os.R_OK):
        raise HostPathError(f"the input {path} cannot be read by you; choose another path")
    if for_others:
        require_readable(path, "the input")
    return path


def output_directory(text: str | Path, *, for_others: bool) -> Path:
    """Return an output directory that exists and that pods can write.

    A new one for pods of other users is writable for everybody, as /tmp is.
    """
    path = Path(text).expanduser().absolute()
    is_new = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostPathError(
            f"the output {path} is no directory and cannot be made one: {error.strerror}; choose "
            "another path"
        ) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise HostPathError(f"the output {path} cannot be written by you; choose another directory")
    if for_others:
        _open_for_others(path, is_new=is_new)
    return path


def _open_for_others(path: Path, *, is_new: bool) -> None:
    real = path.resolve()
    if closed := _why_closed(real):
        if is_new:
            path.rmdir()
        raise HostPathError(f"the output {path} cannot be written by pods: {closed}")
    if is_new:
        path.chmod(0o1777)
    needed = _CAN_WRITE | _CAN_PASS
    if real.stat().st_mode & needed != needed:
        raise HostPathError(
            f"the output {path} cannot be written by pods, which run as users of their namespace: "
            f"chmod 1777 {shlex.quote(str(real))}, or {_AS_OWNER}"
        )


@dataclass(frozen=True, slots=True)
class Contents:
    """How many files a directory has, and their size."""

    files: int
    size: int
    is_all: bool = True

    def __str__(self) -> str:
        at_least = "" if self.is_all else "more than "
        return f"{at_least}{self.files} file{'s' * (self.files != 1)}, {size_text(self.size)}"


def contents(path: Path) -> Contents:
    """Count the files of a directory, at most MAX_COUNTED."""
    files = size = 0
    for each in _sizes(path):
        if files == MAX_COUNTED:
            return Contents(files, size, is_all=False)
        files += 1
        size += each
    return Contents(files, size)


def _sizes(path: Path) -> Iterator[int]:
    for where, _, names in os.walk(path):
        for name in names:
            try:
                yield os.lstat(os.path.join(where, name)).st_size
            except OSError:  # removed in between
                continue


def size_text(size: float) -> str:
    """Return a size such as `3.4 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
