"""Read a layer's blob once: decompress it, and take the digests of both forms on the way.

Reading, hashing and decompressing of the next chunk run in a thread while the caller uses this one;
all three release the interpreter.
"""

from __future__ import annotations

import hashlib
import sys
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Protocol

from hekla.images.errors import DiskFull, InvalidImage, UnsupportedImage

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["Blob", "LayerStream", "check_bytes"]

CHUNK_BYTES: Final = 1 << 18
_MOST_OUTPUT: Final = 1 << 20
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_REFUSED: Final = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x04\x22\x4d\x18": "lz4"}
_MAGIC_BYTES: Final = 4
MAX_RATIO: Final = 200
"""Layers of programs and libraries are below 10."""
_RATIO_FROM_BYTES: Final = 1 << 30
"""Small layers may have any ratio: a file of zeros is no attack."""


class Blob(Protocol):
    """What a layer is read from."""

    def read(self, size: int, /) -> bytes: ...


class _Decoder(Protocol):
    """One member of a stream: a member of gzip, or a frame of zstd."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Gunzip:
    """zlib with the interface of zstd: it keeps the input that it could not use yet."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


class LayerStream:
    """The uncompressed bytes of a layer."""

    def __init__(
        self,
        blob: Blob,
        what: str,
        *,
        max_bytes: int,
        algorithm: str = "sha256",
        max_ratio: int = MAX_RATIO,
    ) -> None:
        """`algorithm` is the one of the blob's digest and diff id."""
        self._blob = blob
        self._what = what
        self._max_bytes = max_bytes
        self._max_ratio = max_ratio
        self._blob_hash = hashlib.new(algorithm)
        self._hash = hashlib.new(algorithm)
        self._algorithm = algorithm
        self.blob_bytes = 0
        self.bytes = 0
        self._chunks = self._decompressed()
        self._buffer, self._position = b"", 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="layer")
        self._next: Future[bytes] | None = self._thread.submit(self._advance)

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def read(self, size: int) -> bytes:
        """Return exactly `size` bytes, or fewer at the end."""
        end = self._position + size
        if end <= len(self._buffer):
            data = self._buffer[self._position : end]
            self._position = end
            return data
        parts = []
        while size > 0 and (part := self.read_some(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def read_some(self, most: int) -> bytes:
        """Return at least one byte and at most `most`; nothing at the end."""
        if self._position == len(self._buffer):
            self._fill()
        data = self._buffer[self._position : self._position + most]
        self._position += len(data)
        return data

    def skip(self, size: int) -> int:
        """Pass over bytes; return how many there were."""
        left = size
        while left and (data := self.read_some(left)):
            left -= len(data)
        return size - left

    def digests(self) -> tuple[str, str]:
        """Read to the end; return the digests of the blob and of its uncompressed form."""
        while self.read_some(_MOST_OUTPUT):
            pass
        prefix = f"{self._algorithm}:"
        return prefix + self._blob_hash.hexdigest(), prefix + self._hash.hexdigest()

    def _fill(self) -> None:
        if self._next is None:
            self._buffer, self._position = b"", 0
            return
        self._buffer, self._position = self._next.result(), 0
        self._next = self._thread.submit(self._advance) if self._buffer else None

    def _advance(self) -> bytes:
        """Return the next uncompressed bytes; nothing at the end."""
        for data in self._chunks:
            if data:
                self._hash.update(data)
                self.bytes += len(data)
                check_bytes(self.bytes, self._max_bytes, self._what)
                self._check_ratio()
                return data
        return b""

    def _check_ratio(self) -> None:
        if self.bytes > max(_RATIO_FROM_BYTES, self.blob_bytes * self._max_ratio):
            raise InvalidImage(
                f"{self._what} unpacks to more than {self._max_ratio} times its size; "
                "it looks like a decompression bomb, and is not used"
            )

    def _read_blob(self) -> bytes:
        data = self._blob.read(CHUNK_BYTES)
        self._blob_hash.update(data)
        self.blob_bytes += len(data)
        return data

    def _decompressed(self) -> Iterator[bytes]:
        data = self._at_least(_MAGIC_BYTES, b"")
        for magic, name in _REFUSED.items():
            if data.startswith(magic):
                raise UnsupportedImage(f"{self._what} is compressed with {name}; use gzip or zstd")
        if _decoder(data) is not None:
            yield from self._members(data)
            return
        while data:
            yield data
            data = self._read_blob()

    def _members(self, data: bytes) -> Iterator[bytes]:
        """Decompress members one after the other, as parallel compressors write them."""
        while data:
            decoder = _decoder(data)
            if decoder is None:
                raise self._damaged("it does not continue after a compressed part")
            while not decoder.eof:
                is_at_end = decoder.needs_input and not (data := data or self._read_blob())
                try:
                    unpacked = decoder.decompress(data, _MOST_OUTPUT)
                except (zlib.error, zstd.ZstdError) as error:
                    raise self._damaged(str(error)) from error
                if is_at_end and not unpacked and not decoder.eof:
                    raise self._damaged("it ends too early")
                yield unpacked
                data = b""
            data = self._at_least(_MAGIC_BYTES, decoder.unused_data.lstrip(b"\0"))

    def _at_least(self, number: int, data: bytes) -> bytes:
        """Return `data` with as much of the blob as makes it long enough, if there is so much."""
        while len(data) < number and (more := self._read_blob()):
            data += more
        return data

    def _damaged(self, why: str) -> InvalidImage:
        return InvalidImage(f"{self._what} cannot be decompressed: {why}; fetch it again")


def check_bytes(number: int, most: int, what: str) -> None:
    """Raise DiskFull if a layer takes more space than there is for it."""
    if number > most:
        raise DiskFull(
            f"{what} takes more than {most >> 20} MiB, the space that is left for it; free disk "
            "space, or remove images that are not used"
        )


def _decoder(data: bytes) -> _Decoder | None:
    """Return a decoder for data that starts a member; None for other data."""
    if data.startswith(_GZIP):
        return _Gunzip()
    is_skippable = data[1:4] == b"\x2a\x4d\x18" and data[0] & 0xF0 == 0x50
    if data.startswith(_ZSTD) or is_skippable:
        return zstd.ZstdDecompressor()
    return None
