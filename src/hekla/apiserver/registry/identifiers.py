"""New uids and name suffixes, from buffered kernel randomness.

A system call for sixteen bytes costs more than the rest of a uid (up to 0.1 ms on virtual
machines), and each object needs one.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable

_PAGE = 4096
# No vowels and no look-alikes, as in Kubernetes.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH = 5


class Identifiers:
    """A source of uids and suffixes; tests inject `entropy`."""

    def __init__(self, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._entropy = entropy
        self._page = b""
        self._at = 0

    def _take(self, count: int) -> bytes:
        if self._at + count > len(self._page):
            self._page, self._at = self._entropy(_PAGE), 0
        taken = self._page[self._at : self._at + count]
        self._at += count
        return taken

    def uid(self) -> str:
        return str(uuid.UUID(bytes=self._take(16), version=4))

    def suffix(self) -> str:
        """Return the suffix for `generateName`."""
        return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in self._take(SUFFIX_LENGTH))
