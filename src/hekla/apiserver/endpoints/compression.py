"""gzip of large responses to clients that accept it, as kube-apiserver.

Small bodies are sent as they are: compressing them costs more than it saves. Level 1 is fast; JSON
shrinks by a factor of five to ten.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

THRESHOLD = 128 * 1024
_LEVEL = 1
_GZIP = 16 + zlib.MAX_WBITS

HEADERS = (("content-encoding", "gzip"), ("vary", "Accept-Encoding"))


def is_accepted(accept_encoding: str) -> bool:
    """Return whether a client takes gzip; a weight is not understood, as upstream."""
    return bool(accept_encoding) and "gzip" in map(str.strip, accept_encoding.split(","))


def compressed(body: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return packer.compress(body) + packer.flush()


def is_large(chunks: Iterator[bytes]) -> tuple[bool, list[bytes]]:
    """Return whether chunks exceed the threshold, and those taken to find out."""
    taken: list[bytes] = []
    size = 0
    for chunk in chunks:
        taken.append(chunk)
        size += len(chunk)
        if size > THRESHOLD:
            return True, taken
    return False, taken


def compressed_chunks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Compress a stream of chunks; the event loop runs between them."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    for chunk in chunks:
        if packed := packer.compress(chunk):
            yield packed
    yield packer.flush()
