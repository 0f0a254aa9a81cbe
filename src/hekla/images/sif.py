"""Read the header of a SIF file, the image format of Apptainer and SingularityCE.

A SIF file has a header, a table of descriptors, and data objects. The root file system is the
object of the type partition that is marked as the primary system. Signatures are not checked.
"""

from __future__ import annotations

import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hekla.images.documents import Platform
from hekla.images.errors import InvalidImage, NoSuchPlatform, UnsupportedImage

__all__ = ["Partition", "find_root", "is_sif"]

MAX_DESCRIPTORS: Final = 4096
"""Apptainer writes 48."""
_HEADER: Final = struct.Struct("<32s10s3s3s16s8q")
_DESCRIPTOR: Final = struct.Struct("<i?IIIqqqqqqq128s384s")
_PARTITION_EXTRA: Final = struct.Struct("<ii3s")
_MAGIC: Final = b"SIF_MAGIC\0"
_VERSION: Final = b"01\0"
_SQUASHFS_MAGIC: Final = b"hsqs"

_PARTITION, _OCI_INDEX = 0x4004, 0x400A
_SYSTEM, _PRIMARY_SYSTEM = 1, 2
_SQUASHFS: Final = 1
_FILE_SYSTEMS: Final = {2: "ext3", 3: "an archive", 4: "raw data", 5: "an encrypted squashfs"}
_NEXT_STEP: Final = {
    2: "build it again with Apptainer or SingularityCE 3 or newer",
    5: "pods cannot be asked for the key; build it without --encrypt",
}
_ARCHITECTURES: Final = {
    b"01": "386", b"02": "amd64", b"03": "arm", b"04": "arm64", b"05": "ppc64", b"06": "ppc64le",
    b"07": "mips", b"08": "mipsle", b"09": "mips64", b"10": "mips64le", b"11": "s390x",
    b"12": "riscv64",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Partition:
    """The root file system in a SIF file: a squashfs."""

    offset: int
    size: int
    architecture: str
    """As in OCI; empty if the file does not say it."""


def is_sif(path: Path) -> bool:
    """Return whether a file claims to be a SIF file."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(_HEADER.size)[32:42] == _MAGIC


def find_root(descriptor: int, machine: Platform, what: str) -> Partition:
    """Return the root file system of an open SIF file that this machine can run."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise InvalidImage(f"{what} is not a regular file")
    start = os.pread(descriptor, _HEADER.size, 0)
    _check_magic(start, what)
    *_, total, offset, size, _, _ = _HEADER.unpack(start)
    if not 0 <= total <= MAX_DESCRIPTORS or size != total * _DESCRIPTOR.size:
        raise _damaged(what, f"a table of {total} descriptors in {size} bytes")
    if not _HEADER.size <= offset <= found.st_size - size:
        raise _damaged(what, f"its descriptors at {offset}, and has {found.st_size} bytes")
    table = os.pread(descriptor, size, offset)
    if len(table) != size:
        raise _damaged(what, "a part of its descriptors only")
    root = _choose(table, machine, what)
    if not 0 < root.offset <= found.st_size - root.size or root.size <= 0:
        raise _damaged(
            what, f"a root of {root.size} bytes at {root.offset}, and has {found.st_size} bytes"
        )
    return root


def _check_magic(start: bytes, what: str) -> None:
    if start.startswith(_SQUASHFS_MAGIC):
        raise UnsupportedImage(
            f"{what} is a plain squashfs of Singularity 2; build a SIF file from it with "
            "`apptainer build new.sif old`"
        )
    if len(start) < _HEADER.size or start[32:42] != _MAGIC:
        raise InvalidImage(f"{what} is not a SIF file; build one with `apptainer build`")
    if start[42:45] != _VERSION:
        raise UnsupportedImage(f"{what} is a SIF file of version {start[42:44]!r}; 01 is read")


def _choose(table: bytes, machine: Platform, what: str) -> Partition:
    """Return the primary system partition of a table of descriptors."""
    systems, has_oci = 0, False
    for kind, used, _, _, _, offset, size, *_, extra in _DESCRIPTOR.iter_unpack(table):
        if not used:
            continue
        has_oci |= kind == _OCI_INDEX
        if kind != _PARTITION:
            continue
        file_system, use, code = _PARTITION_EXTRA.unpack_from(extra)
        systems += use == _SYSTEM
        if use == _PRIMARY_SYSTEM:
            architecture = _ARCHITECTURES.get(code.rstrip(b"\0"), "")
            _check_usable(file_system, architecture, machine, what)
            return Partition(offset, size, architecture)
    if has_oci:
        raise UnsupportedImage(
            f"{what} is an OCI-SIF, with OCI layers in a SIF file; use the image that it was made "
            "of, or build it without --oci"
        )
    if systems:
        raise UnsupportedImage(
            f"{what} has system partitions, and none is the primary one; mark one with "
            "`siftool setprim`"
        )
    raise InvalidImage(f"{what} has no system partition, so there is nothing to run")


def _check_usable(file_system: int, architecture: str, machine: Platform, what: str) -> None:
    if file_system != _SQUASHFS:
        name = _FILE_SYSTEMS.get(file_system, f"a file system of type {file_system}")
        step = _NEXT_STEP.get(file_system, "build it again")
        raise UnsupportedImage(f"{what} has {name} as its root, and squashfs is read; {step}")
    if architecture and architecture != machine.architecture:
        raise NoSuchPlatform(
            f"{what} is built for {architecture}, and this machine is {machine.architecture}"
        )


def _damaged(what: str, has: str) -> InvalidImage:
    return InvalidImage(f"{what} is damaged or cut off: it has {has}; copy it again")
