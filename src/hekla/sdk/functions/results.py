"""What a call returned or raised, read from the output of its pod."""

from __future__ import annotations

import base64
import binascii
import pickle
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MARK = "hekla-result:"
MAX_OUTCOME_BYTES = 256 << 20
"""Uncompressed."""


class FunctionFailed(Exception):
    """A function failed, and its exception cannot be shown here as it is; the text says why.

    Example:
        try:
            job.wait()
        except FunctionFailed as error:
            print(error)
    """


@dataclass(frozen=True)
class Outcome:
    """How a call ended: with a value, or with an exception."""

    is_value: bool
    value: Any
    traceback: str = ""

    def result(self, where: str) -> Any:
        """Return the value, or raise the exception; `where` names the pod."""
        if self.is_value:
            return self.value
        if not isinstance(self.value, BaseException):
            raise FunctionFailed(f"{where}: {self.traceback.strip()}")
        self.value.add_note(f"in {where}:\n{self.traceback.rstrip()}")
        raise self.value


def outcome_in(lines: Iterable[str], token: str) -> Outcome | None:
    """Return the outcome printed in a pod's output; None if it has none or only a part."""
    mark = f"{MARK}{token}:"
    chunks: dict[int, str] = {}
    count = -1
    for line in lines:
        at = line.find(mark)
        if at < 0:
            continue
        position, _, chunk = line[at + len(mark) :].partition(":")
        number, _, total = position.partition("/")
        if number.isdigit() and total.isdigit():
            chunks[int(number)] = chunk
            count = int(total)
    if count < 0 or sorted(chunks) != list(range(1, count + 1)):
        return None
    return _unpacked("".join(chunks[number] for number in range(1, count + 1)))


def _unpacked(text: str) -> Outcome | None:
    try:
        unzip = zlib.decompressobj()
        data = unzip.decompress(base64.b64decode(text, validate=True), MAX_OUTCOME_BYTES)
        if not unzip.eof:
            return None
    except (binascii.Error, zlib.error):
        return None
    try:
        is_value, value, traceback = pickle.loads(data)
    except Exception as error:
        return Outcome(False, None, f"the result cannot be unpickled here: {error!r}")
    return Outcome(is_value, value, traceback)


def is_result(line: str) -> bool:
    """Return whether a line of output is a part of a result, which nobody wants to read."""
    return line.startswith(MARK)
