"""Unpack a layer into a directory that overlayfs can use as a lower directory.

    with open(blob, "rb") as file:
        unpacked = unpack(file, directory, "layer 3 of ubuntu", limits, lowers=[below])

Whiteouts become overlayfs's: `.wh.name` a character device 0/0, `.wh..wh..opq` an attribute of the
directory. As root both attributes are set, trusted.overlay.opaque and user.overlay.opaque, so that
the layer works in a mount of the host and in one of a user namespace (`userxattr`).

What is decided, where engines differ:

- Devices are left out. /dev is the container's own, and a mount in a user namespace ignores them.
- A hard link must name a file of the same layer. Docker (overlay2), containerd and podman refuse
  others too, and no tool makes them.
- A parent directory that the layer does not name has the mode and owner that it has in the layers
  below, as with containerd. Docker's 0755 would close /tmp.
- A link of the layer on the way to a file is followed inside the layer.
- Owners are kept only by root; an ordinary user owns all files.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from hekla.images.compression import MAX_RATIO, Blob, LayerStream, check_bytes
from hekla.images.errors import DiskFull, InvalidImage, StoreError
from hekla.images.tar import Entry, Kind, TarReader
from hekla.images.tree import Directory, Place, Tree, split

__all__ = ["Entries", "Limits", "Unpacked", "Written", "limits_for", "unpack", "write"]

MAX_ENTRIES: Final = 2_000_000
"""The largest known images have some hundred thousand files."""
MAX_BYTES: Final = 1 << 40
MAX_LINK_BYTES: Final = 4095
MAX_XATTR_BYTES: Final = 64 << 10
MAX_ID: Final = (1 << 32) - 2
CHUNK_BYTES: Final = 1 << 20
RESERVED_BYTES: Final = 1 << 30
"""Disk space that an image never takes."""
BLOCK_BYTES: Final = 4096

_WHITEOUT: Final = b".wh."
_MARKER: Final = b".wh..wh."
_OPAQUE: Final = b".wh..wh..opq"
_OPAQUE_XATTRS: Final = ("trusted.overlay.opaque", "user.overlay.opaque")
_CAPABILITY: Final = b"security.capability"

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT)
_OF_THE_LAYER = (
    errno.ENAMETOOLONG, errno.EMLINK, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENOENT,
    errno.EEXIST, errno.EINVAL, errno.EFBIG, errno.EILSEQ, errno.ENOTEMPTY,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limits:
    """What a layer may take at most."""

    entries: int = MAX_ENTRIES
    bytes: int = MAX_BYTES
    ratio: int = MAX_RATIO
    """Of unpacked to packed bytes, from 1 GiB."""


class Entries(Protocol):
    """Files in order, each with its content."""

    def next(self) -> Entry | None:
        """Return the next file; None at the end."""
        ...

    def read(self, most: int, /) -> bytes:
        """Return content of the current file; nothing at its end."""
        ...


@dataclass(frozen=True, slots=True)
class Written:
    """Files on disk."""

    disk_bytes: int
    """What its files take on disk, about."""
    entries: int
    devices: int
    """Left out."""
    inherits: bool
    """Directories that it does not name are as in the layers below, so it fits only on these."""


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A layer on disk, whose digests the caller compares with those that it expects."""

    blob_digest: str
    blob_bytes: int
    diff_id: str
    written: Written


def limits_for(path: Path) -> Limits:
    """Return the limits on a file system: most of what is free."""
    found = os.statvfs(path)
    free = max(0, found.f_bavail * found.f_frsize - RESERVED_BYTES)
    inodes = found.f_favail * 9 // 10 if found.f_files else MAX_ENTRIES
    return Limits(min(MAX_ENTRIES, inodes), min(MAX_BYTES, free))


def unpack(
    blob: Blob,
    directory: Path,
    what: str,
    limits: Limits,
    *,
    lowers: Sequence[Path] = (),
    algorithm: str = "sha256",
) -> Unpacked:
    """Unpack a blob into an empty directory; `lowers` are the layers below, topmost first.

    After an error the caller removes the directory.
    """
    stream = LayerStream(
        blob, what, algorithm=algorithm, max_bytes=limits.bytes, max_ratio=limits.ratio
    )
    try:
        written = write(TarReader(stream, what), directory, what, limits, lowers=lowers)
        blob_digest, diff_id = stream.digests()
    except OSError as error:
        raise _translated(error, what) from error
    finally:
        stream.close()
    return Unpacked(blob_digest, stream.blob_bytes, diff_id, written)


def write(
    entries: Entries,
    directory: Path,
    what: str,
    limits: Limits,
    *,
    lowers: Sequence[Path] = (),
    has_whiteouts: bool = True,
) -> Written:
    """Write entries into an empty directory; without whiteouts all names are those of files.

    After an error the caller removes the directory.
    """
    try:
        tree = Tree(directory, what, lowers)
        layer = _Layer(entries, tree, what, limits, has_whiteouts)
        try:
            layer.unpack()
        except BaseException:
            tree.abandon()
            raise
        tree.close()
    except OSError as error:
        raise _translated(error, what) from error
    return Written(layer.disk_bytes, layer.entries, layer.devices, tree.inherits)


class _Layer:
    """The unpacking of one layer."""

    def __init__(
        self, entries: Entries, tree: Tree, what: str, limits: Limits, has_whiteouts: bool
    ) -> None:
        self._entries = entries
        self._has_whiteouts = has_whiteouts
        self._tree = tree
        self._what = what
        self._limits = limits
        self._is_root = os.geteuid() == 0
        self.entries = 0
        self.bytes = 0
        self.disk_bytes = 0
        self.devices = 0

    def unpack(self) -> None:
        while (entry := self._entries.next()) is not None:
            self.entries += 1
            self._check_entries()
            self._check(entry)
            try:
                self._add(entry)
            except OSError as error:
                if error.errno in _OF_THE_LAYER:
                    raise self._invalid(entry, f"cannot be unpacked: {error.strerror}") from error
                raise

    def _check_entries(self) -> None:
        if self.entries + self._tree.made > self._limits.entries:
            raise InvalidImage(
                f"{self._what} has more than {self._limits.entries} files, the limit here; "
                "make the image smaller, or the file system larger"
            )

    def _check(self, entry: Entry) -> None:
        self.bytes += entry.size
        check_bytes(self.bytes, self._limits.bytes, self._what)
        if entry.uid > MAX_ID or entry.gid > MAX_ID:
            raise self._invalid(entry, f"has the owner {entry.uid}:{entry.gid}")
        if len(entry.link) > MAX_LINK_BYTES:
            raise self._invalid(entry, f"has a link of {len(entry.link)} bytes")

    def _add(self, entry: Entry) -> None:
        parts = split(entry.path, self._what)
        if not parts:
            if entry.kind is not Kind.DIRECTORY:
                raise self._invalid(entry, "is the root and no directory")
            self._set_directory(self._tree.directory(()), entry)
            return
        parent = self._tree.directory(parts[:-1], entry.mtime_ns)
        name = parts[-1]
        if self._has_whiteouts and name.startswith(_WHITEOUT):
            self._add_whiteout(parent, name, entry)
        elif entry.kind is Kind.DEVICE:
            self.devices += 1
        elif entry.kind is Kind.DIRECTORY:
            self._add_directory(parent, name, entry)
        else:
            self._replace(parent, name, entry)

    def _replace(self, parent: Directory, name: bytes, entry: Entry) -> None:
        """Add what is no directory in place of what an earlier entry made there."""
        add = {
            Kind.FILE: self._add_file,
            Kind.SYMLINK: self._add_symlink,
            Kind.HARD_LINK: self._add_hard_link,
            Kind.FIFO: self._add_fifo,
        }[entry.kind]
        try:
            add(parent, name, entry)
        except FileExistsError:
            parent = self._tree.directory(parent.place)
            self._tree.remove(parent, name)
            add(parent, name, entry)

    # Kinds of entries

    def _add_directory(self, parent: Directory, name: bytes, entry: Entry) -> None:
        try:
            made = self._tree.make(parent, name, entry.mtime_ns)
        except FileExistsError:
            made = self._existing_directory(parent, name, entry.mtime_ns)
        self.disk_bytes += BLOCK_BYTES
        self._set_directory(made, entry)

    def _existing_directory(self, parent: Directory, name: bytes, mtime_ns: int) -> Directory:
        found = os.stat(name, dir_fd=parent.descriptor, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            return self._tree.enter(parent, name)
        self._tree.remove(parent, name)
        made = self._tree.make(parent, name, mtime_ns)
        if _is_whiteout(found):  # of the lower directory, not of this one
            self._make_opaque(made)
        return made

    def _set_directory(self, directory: Directory, entry: Entry) -> None:
        self._tree.set_attributes(directory, entry.mode, (entry.uid, entry.gid))
        directory.mtime_ns = entry.mtime_ns
        self._set_xattrs(directory.descriptor, entry)

    def _add_file(self, parent: Directory, name: bytes, entry: Entry) -> None:
        file = os.open(name, _NEW_FILE, 0o600, dir_fd=parent.descriptor)
        try:
            if entry.parts is None:
                self._write(file)
            else:
                self._write_parts(file, entry)
            if self._is_root:
                os.fchown(file, entry.uid, entry.gid)
            os.fchmod(file, entry.mode)  # after chown, which takes the setuid bit away
            if entry.xattrs:
                self._set_xattrs(file, entry)
            os.utime(file, ns=(entry.mtime_ns, entry.mtime_ns))
        finally:
            os.close(file)
        self.disk_bytes += -(-entry.size // BLOCK_BYTES) * BLOCK_BYTES

    def _write(self, file: int) -> None:
        while data := self._entries.read(CHUNK_BYTES):
            while (written := os.write(file, data)) < len(data):
                data = data[written:]

    def _write_parts(self, file: int, entry: Entry) -> None:
        os.ftruncate(file, entry.size)
        for offset, size in entry.parts or ():
            os.lseek(file, offset, os.SEEK_SET)
            while size and (data := self._entries.read(min(size, CHUNK_BYTES))):
                size -= os.write(file, data)

    def _add_symlink(self, parent: Directory, name: bytes, entry: Entry) -> None:
        if not entry.link:
            raise self._invalid(entry, "is a link to nothing")
        os.symlink(entry.link, name, dir_fd=parent.descriptor)
        self._set_by_name(parent, name, entry)

    def _add_fifo(self, parent: Directory, name: bytes, entry: Entry) -> None:
        os.mkfifo(name, 0o600, dir_fd=parent.descriptor)
        if self._is_root:
            os.chown(name, entry.uid, entry.gid, dir_fd=parent.descriptor, follow_symlinks=False)
        os.chmod(name, entry.mode, dir_fd=parent.descriptor)
        self._set_time(parent, name, entry)

    def _add_hard_link(self, parent: Directory, name: bytes, entry: Entry) -> None:
        target = split(entry.link, self._what)
        if not target:
            raise self._invalid(entry, "is a hard link to the root")
        source = self._source(entry, target)
        try:
            parent = self._tree.directory(parent.place)  # `source` may have closed it
            os.link(
                target[-1],
                name,
                src_dir_fd=source,
                dst_dir_fd=parent.descriptor,
                follow_symlinks=False,
            )
        except FileExistsError:
            if not _is_same_file(source, target[-1], parent.descriptor, name):
                raise
        finally:
            os.close(source)

    def _source(self, entry: Entry, target: Place) -> int:
        """Open the directory of a hard link's target, and check the target."""
        try:
            source = self._tree.directory(target[:-1])
            found = os.stat(target[-1], dir_fd=source.descriptor, follow_symlinks=False)
        except FileNotFoundError as error:
            why = f"is a hard link to {os.fsdecode(entry.link)!r}, which is not in this layer"
            raise self._invalid(entry, why) from error
        if stat.S_ISDIR(found.st_mode) or _is_whiteout(found):
            raise self._invalid(entry, "is a hard link to a directory or to a deleted file")
        return os.dup(source.descriptor)

    def _add_whiteout(self, parent: Directory, name: bytes, entry: Entry) -> None:
        if name == _OPAQUE:
            self._make_opaque(parent)
            return
        if name.startswith(_MARKER):
            return  # aufs's own
        hidden = name.removeprefix(_WHITEOUT)
        if hidden in (b"", b".", b".."):
            raise self._invalid(entry, "deletes its own directory or one above it")
        try:
            os.mknod(hidden, stat.S_IFCHR, os.makedev(0, 0), dir_fd=parent.descriptor)
        except FileExistsError:
            # The layer has deleted the file and made it anew: the new one stays.
            found = os.stat(hidden, dir_fd=parent.descriptor, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                self._make_opaque(self._tree.enter(parent, hidden))

    # Attributes

    def _set_by_name(self, parent: Directory, name: bytes, entry: Entry) -> None:
        if self._is_root:
            os.chown(name, entry.uid, entry.gid, dir_fd=parent.descriptor, follow_symlinks=False)
        self._set_time(parent, name, entry)

    def _set_time(self, parent: Directory, name: bytes, entry: Entry) -> None:
        times = (entry.mtime_ns, entry.mtime_ns)
        os.utime(name, ns=times, dir_fd=parent.descriptor, follow_symlinks=False)

    def _set_xattrs(self, file: int, entry: Entry) -> None:
        """Set the attributes that a container may set itself; leave out all others.

        Attributes of overlayfs would show files of other layers or of the host (user.overlay.*).
        """
        for name, value in entry.xattrs.items():
            if len(value) > MAX_XATTR_BYTES:
                raise self._invalid(entry, f"has an attribute of {len(value)} bytes")
            if name == _CAPABILITY:
                with contextlib.suppress(PermissionError):  # only root of the host may
                    os.setxattr(file, name, value)
            elif name.startswith(b"user.") and not name.startswith(b"user.overlay."):
                with contextlib.suppress(OSError):  # the file system's limits differ
                    os.setxattr(file, name, value)

    def _make_opaque(self, directory: Directory) -> None:
        failures = []
        for name in _OPAQUE_XATTRS[0 if self._is_root else 1 :]:
            try:
                os.setxattr(directory.descriptor, name, b"y")
            except OSError as error:
                failures.append(error)
        if len(failures) == (2 if self._is_root else 1):
            raise StoreError(
                f"{self._what} hides a directory of a layer below, and this file system has no "
                f"extended attributes for that ({failures[0].strerror}); put the data directory "
                "on ext4, xfs or btrfs"
            )

    def _invalid(self, entry: Entry, why: str) -> InvalidImage:
        path = repr(os.fsdecode(entry.path))[:200]
        return InvalidImage(f"{self._what}: {path} {why}; build the image again")


def _is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _is_same_file(source: int, target: bytes, parent: int, name: bytes) -> bool:
    before = os.stat(target, dir_fd=source, follow_symlinks=False)
    there = os.stat(name, dir_fd=parent, follow_symlinks=False)
    return (before.st_dev, before.st_ino) == (there.st_dev, there.st_ino)


def _translated(error: OSError, what: str) -> Exception:
    if error.errno in _FULL:
        return DiskFull(
            f"the disk is full while {what} is unpacked; free disk space, or remove images that "
            "are not used"
        )
    if error.errno == errno.ENAMETOOLONG:
        return InvalidImage(f"{what} has a name that is too long for this file system")
    return StoreError(f"{what} cannot be unpacked: {error}")
