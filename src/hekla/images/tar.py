"""Read a tar stream of unknown origin, forwards and with bounds.

The formats are those of layers: POSIX with pax headers, GNU with long names, and v7. Files with
holes are read in GNU's old form and in pax form 1.0. Global pax headers are ignored, as by Go.

Note: Python's `tarfile` is not used. It reads a pax header or long name of any size into memory,
recurses for each of them, keeps all entries, and before 3.11.10 takes quadratic time for some pax
headers (CVE-2024-6232).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final, Protocol

from hekla.images.errors import InvalidImage, UnsupportedImage

__all__ = ["Entry", "Kind", "TarReader"]

BLOCK: Final = 512
MAX_HEADER_BYTES: Final = 1 << 20
"""Of the pax headers and long names of one entry: enough for the largest extended attributes."""
MAX_PARTS: Final = 10_000
"""Of a file with holes."""
MAX_NANOSECONDS: Final = (1 << 33) * 1_000_000_000

_XATTR = b"SCHILY.xattr."


class Kind(enum.Enum):
    FILE = enum.auto()
    DIRECTORY = enum.auto()
    SYMLINK = enum.auto()
    HARD_LINK = enum.auto()
    FIFO = enum.auto()
    DEVICE = enum.auto()


_KINDS: Final = {
    b"0": Kind.FILE,
    b"\0": Kind.FILE,
    b"7": Kind.FILE,
    b"S": Kind.FILE,
    b"1": Kind.HARD_LINK,
    b"2": Kind.SYMLINK,
    b"3": Kind.DEVICE,
    b"4": Kind.DEVICE,
    b"5": Kind.DIRECTORY,
    b"6": Kind.FIFO,
}

Part = tuple[int, int]
"""Offset and size of data in a file with holes."""


@dataclass(slots=True)
class Entry:
    """One file of an archive. Names are bytes, as on the file system."""

    kind: Kind
    path: bytes
    link: bytes
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    size: int
    """Of the file, with its holes."""
    xattrs: dict[bytes, bytes] = field(default_factory=dict)
    parts: list[Part] | None = None
    """The data of a file with holes; None for other files."""


class Stream(Protocol):
    def read(self, size: int) -> bytes:
        """Return exactly `size` bytes, or fewer at the end."""
        ...

    def read_some(self, most: int) -> bytes:
        """Return at least one byte and at most `most`; nothing at the end."""
        ...

    def skip(self, size: int) -> int:
        """Pass over bytes; return how many there were."""
        ...


class TarReader:
    """The entries of a tar stream, one after the other."""

    def __init__(self, stream: Stream, what: str) -> None:
        self._stream = stream
        self._what = what
        self._left = 0
        """Bytes of the current entry's data that are not read yet."""
        self._padding = 0

    def next(self) -> Entry | None:
        """Return the next entry; None at the end. Data that was not read is skipped."""
        records: dict[bytes, bytes] = {}
        names: dict[bytes, bytes] = {}
        budget = MAX_HEADER_BYTES
        while True:
            self._skip_data()
            header = self._header()
            if header is None:
                return None
            kind = header[156:157]
            if kind not in (b"x", b"g", b"L", b"K"):
                return self._entry(header, records, names)
            size = _number(header[124:136], self._what)
            budget -= size + BLOCK
            if budget < 0:
                raise self._invalid(f"a header of {size} bytes; {MAX_HEADER_BYTES} is the limit")
            self._start_data(size)
            data = self._exactly(size)
            self._left = 0
            if kind == b"x":
                records |= _pax_records(data, self._what)
            elif kind != b"g":
                names[kind] = data.partition(b"\0")[0]

    def read(self, most: int) -> bytes:
        """Return data of the current entry, at most `most` bytes; nothing at its end."""
        if self._left == 0:
            return b""
        data = self._stream.read_some(min(most, self._left))
        if not data:
            raise self._truncated()
        self._left -= len(data)
        return data

    def _header(self) -> bytes | None:
        block = self._stream.read(BLOCK)
        if not block:
            return None  # some writers leave out the two zero blocks
        if len(block) < BLOCK:
            raise self._truncated()
        if block.count(0) == BLOCK:
            return None
        want = _number(block[148:156], self._what)
        if want != sum(block) - sum(block[148:156]) + 8 * 32:
            raise self._invalid("a header with a wrong checksum")
        return block

    def _entry(self, header: bytes, pax: dict[bytes, bytes], names: dict[bytes, bytes]) -> Entry:
        letter = header[156:157]
        kind = _KINDS.get(letter)
        if kind is None:
            raise self._invalid(f"an entry of type {letter!r}, which no layer may have")
        path = pax.get(b"path") or names.get(b"L") or _path(header)
        if letter == b"\0" and path.endswith(b"/"):
            kind = Kind.DIRECTORY  # of v7
        link = pax.get(b"linkpath") or names.get(b"K") or _text(header[157:257])
        size = _decimal(pax.get(b"size"), self._what)
        if size is None:
            size = _number(header[124:136], self._what)
        uid = _decimal(pax.get(b"uid"), self._what)
        gid = _decimal(pax.get(b"gid"), self._what)
        entry = Entry(
            kind=kind,
            path=path,
            link=link,
            mode=_number(header[100:108], self._what) & 0o7777,
            uid=_number(header[108:116], self._what) if uid is None else uid,
            gid=_number(header[116:124], self._what) if gid is None else gid,
            mtime_ns=_nanoseconds(pax.get(b"mtime"), header, self._what),
            size=size if kind is Kind.FILE else 0,
        )
        if b"\0" in path or b"\0" in link:
            raise self._invalid("a name with a zero byte")
        if pax:
            entry.xattrs = {
                key.removeprefix(_XATTR): value
                for key, value in pax.items()
                if key.startswith(_XATTR)
            }
        self._start_data(entry.size)
        if letter == b"S":
            self._read_old_parts(entry, header)
        elif b"GNU.sparse.major" in pax or b"GNU.sparse.size" in pax:
            self._read_pax_parts(entry, pax)
        return entry

    # Data

    def _start_data(self, size: int) -> None:
        self._left = size
        self._padding = -size % BLOCK

    def _skip_data(self) -> None:
        left = self._left + self._padding
        if left and self._stream.skip(left) < left:
            raise self._truncated()
        self._left = self._padding = 0

    def _exactly(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise self._truncated()
        return data

    # Files with holes

    def _read_old_parts(self, entry: Entry, header: bytes) -> None:
        parts = _old_parts(header[386:482], self._what)
        more, entry.size = header[482], _number(header[483:495], self._what)
        while more:
            block = self._exactly(BLOCK)
            parts += _old_parts(block[:504], self._what)
            more = block[504]
            self._check_parts_number(len(parts))
        self._set_parts(entry, parts)

    def _read_pax_parts(self, entry: Entry, pax: dict[bytes, bytes]) -> None:
        version = pax.get(b"GNU.sparse.major"), pax.get(b"GNU.sparse.minor")
        if version != (b"1", b"0"):
            raise UnsupportedImage(
                f"{self._what} has a file with holes in an old form; make it with a tar from after "
                "2006"
            )
        entry.path = pax.get(b"GNU.sparse.name") or entry.path
        entry.size = _decimal(pax.get(b"GNU.sparse.realsize"), self._what) or 0
        numbers = self._sparse_map()
        self._set_parts(entry, list(zip(numbers[::2], numbers[1::2], strict=True)))

    def _sparse_map(self) -> list[int]:
        """Read the map in front of the data: its length, and offsets and sizes, in lines."""
        text, lines, want = b"", 0, 1
        while lines < want:
            if self._left < BLOCK:
                raise self._truncated()
            text += self._exactly(BLOCK)
            self._left -= BLOCK
            lines = text.count(b"\n")
            if want == 1 and lines:
                number = _decimal(text.partition(b"\n")[0], self._what) or 0
                self._check_parts_number(number)
                want = 1 + 2 * number
            elif not lines:
                raise self._invalid("a file with holes whose map cannot be read")
        return [_decimal(line, self._what) or 0 for line in text.split(b"\n")[1:want]]

    def _set_parts(self, entry: Entry, parts: list[Part]) -> None:
        end = 0
        for offset, size in parts:
            if offset < end or offset + size > entry.size:
                raise self._invalid("a file with holes whose parts overlap")
            end = offset + size
        if sum(size for _, size in parts) != self._left:
            raise self._invalid("a file with holes whose parts have another size than its data")
        entry.parts = parts

    def _check_parts_number(self, number: int) -> None:
        if number > MAX_PARTS:
            raise self._invalid(f"a file with more than {MAX_PARTS} holes")

    def _truncated(self) -> InvalidImage:
        return InvalidImage(f"{self._what} ends in the middle of a file; fetch it again")

    def _invalid(self, what: str) -> InvalidImage:
        return InvalidImage(f"{self._what} has {what}; build the image again")


def _path(header: bytes) -> bytes:
    name = _text(header[:100])
    if header[257:263] != b"ustar\0":
        return name  # GNU has times where POSIX has the prefix
    # Schily's tar keeps times at the end of the prefix, and marks that.
    prefix = _text(header[345:476] if header[508:512] == b"tar\0" else header[345:500])
    return prefix + b"/" + name if prefix else name


def _text(data: bytes) -> bytes:
    return data.partition(b"\0")[0]


def _number(data: bytes, what: str) -> int:
    """Return a number in octal digits, or in GNU's binary form."""
    if data[0] & 0x80:
        value = int.from_bytes(data, "big") & ((1 << (8 * len(data) - 1)) - 1)
        if data[0] & 0x40:
            raise InvalidImage(f"{what} has a negative number in a header; build the image again")
    else:
        digits = data.strip(b" \0")
        if not digits:
            return 0
        if not digits.isdigit() or b"8" in digits or b"9" in digits:
            raise InvalidImage(f"{what} is not a tar archive: a number in a header is {digits!r}")
        value = int(digits, 8)
    if value >= 1 << 63:
        raise InvalidImage(f"{what} has the number {value} in a header; build the image again")
    return value


def _decimal(data: bytes | None, what: str) -> int | None:
    if data is None:
        return None
    if not data.isdigit() or len(data) > 18:
        raise InvalidImage(f"{what} has the number {data[:40]!r} in a header")
    return int(data)


def _nanoseconds(given: bytes | None, header: bytes, what: str) -> int:
    """Return the time of a file; what lies outside of the file system's range is cut."""
    if given is None:
        if header[136] & 0xC0 == 0xC0:
            return 0  # before 1970
        return min(_number(header[136:148], what) * 1_000_000_000, MAX_NANOSECONDS)
    whole, _, fraction = given.partition(b".")
    if whole.startswith(b"-"):
        return 0
    seconds = _decimal(whole or b"0", what) or 0
    rest = _decimal(fraction[:9].ljust(9, b"0"), what) or 0
    return min(seconds * 1_000_000_000 + rest, MAX_NANOSECONDS)


def _old_parts(data: bytes, what: str) -> list[Part]:
    parts = []
    for start in range(0, len(data), 24):
        if data[start] == 0:
            break
        offset = _number(data[start : start + 12], what)
        parts.append((offset, _number(data[start + 12 : start + 24], what)))
    return parts


def _pax_records(data: bytes, what: str) -> dict[bytes, bytes]:
    """Read `length key=value` lines. An empty value takes a key back."""
    records = {}
    position = 0
    while position < len(data):
        space = data.find(b" ", position, position + 10)
        length = data[position:space] if space > 0 else b""
        end = position + int(length) if length.isdigit() else 0
        if space < 0 or end <= space or end > len(data) or data[end - 1] != 0x0A:
            raise InvalidImage(f"{what} has a pax header that cannot be read; build it again")
        key, equals, value = data[space + 1 : end - 1].partition(b"=")
        if not equals or not key:
            raise InvalidImage(f"{what} has a pax header without a value; build the image again")
        records[key] = value
        position = end
    return {key: value for key, value in records.items() if value or key.startswith(_XATTR)}
