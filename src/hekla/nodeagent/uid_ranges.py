"""The range of user ids of each namespace, and its user namespace.

A range is allocated once and kept on disk, so that the files of a namespace's claims stay its own.
Ranges begin above those that systemd gives to its containers.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from hekla.nodeagent.security_context import RANGE_SIZE

FIRST = 1_879_048_192
LAST = 2_147_483_647
FILE = "uid_ranges.json"
SUBORDINATE = (Path("/etc/subuid"), Path("/etc/subgid"))


class NoRange(OSError):
    """All ranges are in use."""


class UidRanges:
    """The first user id of each namespace."""

    def __init__(self, directory: Path, *, in_use: Callable[[str], bool] = lambda _: True) -> None:
        """`in_use` returns whether a namespace still has files or pods here."""
        self._path = directory / FILE
        self._in_use = in_use
        self._bases = self._load()
        self._reserved = reserved_ranges()

    def base(self, namespace: str) -> int:
        """Return the first id of a namespace; allocate a range at the first call."""
        if namespace not in self._bases:
            self._bases[namespace] = self._free()
            self._save()
        return self._bases[namespace]

    def _free(self) -> int:
        free = self._next_free()
        if free is None:
            for name in [name for name in self._bases if not self._in_use(name)]:
                del self._bases[name]
            free = self._next_free()
        if free is None:
            raise NoRange(f"all {(LAST - FIRST + 1) // RANGE_SIZE} ranges of user ids are in use")
        return free

    def _next_free(self) -> int | None:
        taken = set(self._bases.values())
        for base in range(FIRST, LAST - RANGE_SIZE + 2, RANGE_SIZE):
            if base not in taken and not any(
                base < end and first < base + RANGE_SIZE for first, end in self._reserved
            ):
                return base
        return None

    def _load(self) -> dict[str, int]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, int])
        except FileNotFoundError:
            return {}
        except msgspec.MsgspecError as error:
            # Guessing would give one namespace the files of another.
            raise OSError(f"{self._path} is damaged: {error}; restore it or remove it") from error

    def _save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self._path.with_suffix(".new")
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(self._bases))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)


def reserved_ranges(files: Iterable[Path] = SUBORDINATE) -> list[tuple[int, int]]:
    """Return the ranges (first, end) that users of this machine may use for their containers."""
    found = []
    for path in files:
        with contextlib.suppress(OSError):
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError):
                    _, first, count = line.split(":")
                    found.append((int(first), int(first) + int(count)))
    return found


class UserNamespaces:
    """One user namespace per range, which all pods of a Kubernetes namespace enter.

    They own nothing but processes: mount, network and other namespaces of pods are the host's.
    """

    def __init__(self) -> None:
        self._descriptors: dict[int, int] = {}

    def open(self, base: int) -> int:
        """Return a descriptor of the user namespace of a range."""
        if base not in self._descriptors:
            self._descriptors[base] = create_user_namespace(base)
        return self._descriptors[base]

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()


def create_user_namespace(base: int) -> int:
    """Create a user namespace whose ids begin at `base` on the host."""
    holder = subprocess.Popen(
        ["unshare", "--user", "sh", "-c", "echo; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stderr is not None
        if not holder.stdout.read(1):
            raise OSError(f"no user namespace: {holder.stderr.read().decode().strip()}")
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{holder.pid}/{name}").write_text(f"0 {base} {RANGE_SIZE}")
        return os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)


def user_namespace_support() -> str:
    """Return why pods cannot have user namespaces here; empty if they can."""
    if os.geteuid() != 0:
        return "root is required"
    try:
        os.close(create_user_namespace(FIRST))
    except OSError as error:
        return str(error)
    return ""
