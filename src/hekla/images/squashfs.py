"""Read a squashfs file system of unknown origin, with bounds, as the entries of a layer.

    with open(path, "rb") as file:
        for entry in iter(Squashfs(file.fileno(), offset, size, "x.sif").next, None): ...

The format is squashfs 4.0, little-endian, compressed with gzip, xz or zstd. The kernel is not asked
to mount it: its drivers trust what they read. Extended attributes are left out, among them file
capabilities: Apptainer mounts its images without their effect.

Note: all offsets come from the file. Each is checked against its size before it is used, and each
block is unpacked with a bound.
"""

from __future__ import annotations

import lzma
import os
import struct
import sys
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from hekla.images.errors import InvalidImage, UnsupportedImage
from hekla.images.tar import Entry, Kind

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["Squashfs"]

METADATA_BYTES: Final = 8192
MAX_BLOCK_BYTES: Final = 1 << 20
MAX_IDS: Final = 65536
MAX_DEPTH: Final = 255
MAX_LINK_BYTES: Final = 4095
MAX_RATIO: Final = 200
"""Of unpacked to packed bytes, from 1 GiB, as of layers."""
_RATIO_FROM_BYTES: Final = 1 << 30
CACHED_METADATA: Final = 512
CACHED_FRAGMENTS: Final = 8
MAX_XZ_MEMORY: Final = 64 << 20

_SUPERBLOCK: Final = struct.Struct("<5I6H8Q")
_MAGIC: Final = 0x73717368
_INODE: Final = struct.Struct("<4H2I")
_FRAGMENT: Final = struct.Struct("<QII")
_LISTING: Final = struct.Struct("<3I")
_LISTED: Final = struct.Struct("<HhHH")
_NONE: Final = 0xFFFFFFFF
_STORED_METADATA, _STORED_DATA = 0x8000, 1 << 24
_OTHER_COMPRESSIONS: Final = {2: "lzma", 3: "lzo", 5: "lz4"}


def _inflate(data: bytes, most: int) -> bytes:
    inner = zlib.decompressobj()
    return inner.decompress(data, most + 1)


def _unpack_xz(data: bytes, most: int) -> bytes:
    inner = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY)
    return inner.decompress(data, most + 1)


def _unpack_zstd(data: bytes, most: int) -> bytes:
    inner = zstd.ZstdDecompressor()
    return inner.decompress(data, most + 1)


_UNPACK: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    1: _inflate,
    4: _unpack_xz,
    6: _unpack_zstd,
}


@dataclass(frozen=True, slots=True)
class _Directory:
    block: int
    offset: int
    size: int
    """Of the listing."""


@dataclass(frozen=True, slots=True)
class _Data:
    """Where the content of a file is."""

    start: int
    blocks: tuple[int, ...]
    fragment: int
    fragment_offset: int


@dataclass(frozen=True, slots=True)
class _Inode:
    kind: Kind
    mode: int
    uid: int
    gid: int
    mtime: int
    number: int
    links: int = 1
    size: int = 0
    link: bytes = b""
    directory: _Directory | None = None
    data: _Data | None = None


class Squashfs:
    """The files of a file system, each directory before what is in it."""

    def __init__(self, descriptor: int, offset: int, size: int, what: str) -> None:
        """The file system is in a part of an open file."""
        self._descriptor, self._base, self._size, self._what = descriptor, offset, size, what
        self._metadata: OrderedDict[int, tuple[bytes, int]] = OrderedDict()
        self._fragments: OrderedDict[int, bytes] = OrderedDict()
        self._content: Iterator[bytes] = iter(())
        self._first: dict[int, bytes] = {}
        """Paths of files that have several names, by inode number."""
        self._bytes = 0
        fields = _SUPERBLOCK.unpack(self._exactly(0, _SUPERBLOCK.size))
        (magic, _, _, self._block_bytes, self._fragment_count, compression, log, _, ids,
         major, minor, root, self._used, id_table, _, self._inodes, self._directories,
         self._fragment_table, _) = fields  # fmt: skip
        if magic != _MAGIC:
            raise self._invalid("no squashfs at the place of its root file system")
        if (major, minor) != (4, 0):
            raise UnsupportedImage(f"{what} has squashfs {major}.{minor}; 4.0 is read")
        if not 4096 <= self._block_bytes <= MAX_BLOCK_BYTES or self._block_bytes != 1 << log:
            raise self._invalid(f"blocks of {self._block_bytes} bytes")
        if compression not in _UNPACK:
            name = _OTHER_COMPRESSIONS.get(compression, str(compression))
            raise UnsupportedImage(
                f"{what} is compressed with {name}; gzip, xz and zstd are read: build it again "
                "with one of them"
            )
        self._unpack = _UNPACK[compression]
        if self._used > size:
            raise self._invalid(f"{self._used} bytes of squashfs in {size}: it is cut off")
        self._ids = self._read_ids(id_table, ids)
        self._entries = self._walk(root)

    def next(self) -> Entry | None:
        """Return the next file; None at the end."""
        self._content = iter(())
        return next(self._entries, None)

    def read(self, most: int) -> bytes:
        """Return the next block of the current file; nothing at its end."""
        return next(self._content, b"")

    # Walking

    def _walk(self, root: int) -> Iterator[Entry]:
        top = self._inode(root)
        if top.directory is None:
            raise self._invalid("a root that is no directory")
        yield self._entry(top, b"")
        pending = [(b"", self._listing(top.directory))]
        while pending:
            path, listing = pending[-1]
            found = next(listing, None)
            if found is None:
                pending.pop()
                continue
            name, reference = found
            inode = self._inode(reference)
            inner = path + b"/" + name if path else name
            yield self._entry(inode, inner)
            if inode.directory is not None:
                if len(pending) >= MAX_DEPTH:
                    raise self._invalid(f"directories more than {MAX_DEPTH} deep")
                pending.append((inner, self._listing(inode.directory)))

    def _entry(self, inode: _Inode, path: bytes) -> Entry:
        entry = Entry(
            inode.kind, path, inode.link, inode.mode, inode.uid, inode.gid,
            inode.mtime * 1_000_000_000, inode.size,
        )  # fmt: skip
        if inode.kind is Kind.DIRECTORY or inode.links < 2:
            pass
        elif (first := self._first.get(inode.number)) is not None:
            entry.kind, entry.link, entry.size = Kind.HARD_LINK, first, 0
            return entry
        else:
            self._first[inode.number] = path
        if inode.data is not None:
            self._bytes += inode.size
            self._check_size(self._bytes)
            self._content = self._blocks(inode.data, inode.size)
        return entry

    def _check_size(self, size: int) -> None:
        if size > max(_RATIO_FROM_BYTES, MAX_RATIO * self._size):
            raise self._invalid(
                f"files of more than {MAX_RATIO} times its size: it looks like an attack"
            )

    def _listing(self, directory: _Directory) -> Iterator[tuple[bytes, int]]:
        """Yield the names of a directory, with references to their inodes."""
        left = directory.size
        reader = _Metadata(self, self._directories + directory.block, directory.offset)
        while left > 0:
            count, block, _ = _LISTING.unpack(reader.read(_LISTING.size))
            left -= _LISTING.size
            if count >= 256:
                raise self._invalid("a directory with a malformed listing")
            for _ in range(count + 1):
                offset, _, _, length = _LISTED.unpack(reader.read(_LISTED.size))
                if length >= 256:
                    raise self._invalid("a name that is longer than 256 bytes")
                name = reader.read(length + 1)
                left -= _LISTED.size + length + 1
                if name in (b".", b"..") or b"/" in name or b"\0" in name:
                    raise self._invalid(f"the name {name!r:.100} in a directory")
                yield name, block << 16 | offset

    # Inodes

    def _inode(self, reference: int) -> _Inode:
        reader = _Metadata(self, self._inodes + (reference >> 16), reference & 0xFFFF)
        kind, mode, uid, gid, mtime, number = _INODE.unpack(reader.read(_INODE.size))
        if max(uid, gid) >= len(self._ids):
            raise self._invalid("a file whose owner is not in its table")
        extended = kind > 7
        make = {1: self._directory, 2: self._file, 3: self._symlink}.get(kind - 7 * extended)
        if make is not None:
            fields = make(reader, extended)
        elif kind - 7 * extended in (4, 5):
            fields = {"kind": Kind.DEVICE}
        elif kind - 7 * extended in (6, 7):  # a socket means nothing without its program
            fields = {"kind": Kind.FIFO if kind - 7 * extended == 6 else Kind.DEVICE}
        else:
            raise self._invalid(f"a file of type {kind}")
        return _Inode(
            mode=mode & 0o7777, uid=self._ids[uid], gid=self._ids[gid], mtime=mtime, number=number,
            **fields,
        )  # fmt: skip

    def _directory(self, reader: _Metadata, extended: bool) -> dict[str, Any]:
        if extended:
            _, size, block, _, _, offset, _ = reader.unpack("<4I2HI")
        else:
            block, _, size, offset, _ = reader.unpack("<2I2HI")
        return {
            "kind": Kind.DIRECTORY,
            "directory": _Directory(block, offset, max(0, size - 3)),
        }

    def _file(self, reader: _Metadata, extended: bool) -> dict[str, Any]:
        links = 1
        if extended:
            start, size, _, links, fragment, offset, _ = reader.unpack("<3Q4I")
        else:
            start, fragment, offset, size = reader.unpack("<4I")
        whole, rest = divmod(size, self._block_bytes)
        count = whole + (1 if rest and fragment == _NONE else 0)
        self._check_size(size)
        return {
            "kind": Kind.FILE,
            "links": links,
            "size": size,
            "data": _Data(start, reader.numbers(count), fragment, offset),
        }

    def _symlink(self, reader: _Metadata, extended: bool) -> dict[str, Any]:
        links, size = reader.unpack("<2I")
        if size > MAX_LINK_BYTES:
            raise self._invalid(f"a link of {size} bytes")
        target = reader.read(size)
        if b"\0" in target:
            raise self._invalid("a link with a zero byte")
        return {"kind": Kind.SYMLINK, "links": links, "link": target}

    # Content

    def _blocks(self, data: _Data, size: int) -> Iterator[bytes]:
        position = data.start
        for word in data.blocks:
            wanted = min(size, self._block_bytes)
            length = word & ~_STORED_DATA
            yield self._block(position, word, wanted) if length else bytes(wanted)
            position += length
            size -= wanted
        if size:
            fragment = self._fragment(data.fragment)
            if data.fragment_offset + size > len(fragment):
                raise self._invalid("a file whose end is not in its fragment")
            yield fragment[data.fragment_offset : data.fragment_offset + size]

    def _block(self, position: int, word: int, wanted: int) -> bytes:
        """Return a block of a file, which must have the wanted size."""
        block = self._unpacked(position, word, wanted)
        if len(block) != wanted:
            raise self._invalid("a block of the wrong size")
        return block

    def _unpacked(self, position: int, word: int, most: int) -> bytes:
        length = word & ~_STORED_DATA
        if length > MAX_BLOCK_BYTES:
            raise self._invalid(f"a block of {length} bytes")
        raw = self._exactly(position, length)
        return raw if word & _STORED_DATA else self._decompress(raw, most)

    def _fragment(self, index: int) -> bytes:
        """Return a block with the ends of several files."""
        if (known := self._fragments.get(index)) is not None:
            self._fragments.move_to_end(index)
            return known
        if index >= self._fragment_count:
            raise self._invalid(f"a fragment {index} of {self._fragment_count}")
        start, word, _ = _FRAGMENT.unpack(self._indexed(self._fragment_table, index, _FRAGMENT))
        block = self._unpacked(start, word, self._block_bytes)
        self._fragments[index] = block
        if len(self._fragments) > CACHED_FRAGMENTS:
            self._fragments.popitem(last=False)
        return block

    def _indexed(self, table: int, index: int, kind: struct.Struct) -> bytes:
        """Return an element of a table whose metadata blocks are found by a list of offsets."""
        block, offset = divmod(index * kind.size, METADATA_BYTES)
        (start,) = struct.unpack("<Q", self._exactly(table + 8 * block, 8))
        return _Metadata(self, start, offset).read(kind.size)

    def _read_ids(self, table: int, count: int) -> list[int]:
        if not 0 < count <= MAX_IDS:
            raise self._invalid(f"{count} owners")
        number = struct.Struct("<I")
        return [number.unpack(self._indexed(table, i, number))[0] for i in range(count)]

    # Blocks

    def metadata(self, position: int) -> tuple[bytes, int]:
        """Return an unpacked metadata block, and where the next one starts."""
        if (known := self._metadata.get(position)) is not None:
            return known
        (word,) = struct.unpack("<H", self._exactly(position, 2))
        length = word & ~_STORED_METADATA
        if not 0 < length <= METADATA_BYTES:
            raise self._invalid(f"a metadata block of {length} bytes")
        raw = self._exactly(position + 2, length)
        stored = word & _STORED_METADATA
        block = raw if stored else self._decompress(raw, METADATA_BYTES)
        self._metadata[position] = found = block, position + 2 + length
        if len(self._metadata) > CACHED_METADATA:
            self._metadata.popitem(last=False)
        return found

    def _decompress(self, raw: bytes, most: int) -> bytes:
        try:
            data = self._unpack(raw, most)
        except (zlib.error, lzma.LZMAError, zstd.ZstdError, EOFError) as error:
            raise self._invalid(f"a block that cannot be unpacked ({error})") from error
        if not data or len(data) > most:
            raise self._invalid(f"a block that unpacks to nothing, or to more than {most} bytes")
        return data

    def _exactly(self, position: int, size: int) -> bytes:
        if position + size > self._size:
            raise self._invalid(f"a reference to byte {position}, and has {self._size}")
        data = os.pread(self._descriptor, size, self._base + position)
        if len(data) != size:
            raise self._invalid("fewer bytes than its header says: it is cut off")
        return data

    def _invalid(self, has: str) -> InvalidImage:
        return InvalidImage(f"{self._what} is damaged: it has {has}; copy or build it again")


class _Metadata:
    """A place in a table of metadata blocks, which continues over them."""

    def __init__(self, system: Squashfs, position: int, offset: int) -> None:
        self._system = system
        self._block, self._next = system.metadata(position)
        self._offset = offset

    def read(self, size: int) -> bytes:
        parts = [self._block[self._offset : self._offset + size]]
        self._offset += len(parts[0])
        left = size - len(parts[0])
        while left:
            self._block, self._next = self._system.metadata(self._next)
            parts.append(self._block[:left])
            self._offset = len(parts[-1])
            left -= self._offset
        return b"".join(parts)

    def unpack(self, format: str) -> tuple[int, ...]:
        kind = struct.Struct(format)
        return kind.unpack(self.read(kind.size))

    def numbers(self, count: int) -> tuple[int, ...]:
        """Return a list of 32-bit numbers, whose length the file decides."""
        return struct.unpack(f"<{count}I", self.read(4 * count))
