"""Pagination: consistent pages of a list, built from encoded bytes.

A continue token has the revision of the first page and the last key. Later pages show the state at
that revision, computed by undoing newer events of the watch cache. When the cache has dropped it,
the client gets 410 with a token to continue inconsistently.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from hekla.apiserver import errors
from hekla.apiserver.storage.selection import Matcher
from hekla.apiserver.storage.store import Store
from hekla.apiserver.storage.watch_cache import Entry

CHUNK = 256 * 1024


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


@dataclass(slots=True)
class Page:
    entries: list[Entry]
    revision: int
    continue_token: str = ""
    remaining: int | None = None


def _encode_token(revision: int, last_key: str) -> str:
    raw = msgspec.json.encode(_Token("meta.k8s.io/v1", revision, last_key))
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode_token(text: str) -> _Token:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.json.decode(raw, type=_Token)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise errors.bad_request("continue key is not valid: it must come from a list") from error


def page(
    store: Store,
    resource: str,
    *,
    prefix: str = "",
    name_key: str = "",
    matches: Matcher | None = None,
    limit: int = 0,
    continue_token: str = "",
    exact_revision: int | None = None,
) -> Page:
    """Return the requested entries. `exact_revision` is resourceVersionMatch=Exact."""
    table = store.table(resource)
    revision, start = store.revision, ""
    if continue_token:
        token = _decode_token(continue_token)
        start = token.start
        if token.rv > 0:  # a token without revision continues inconsistently, as the client chose
            if not table.watch_cache.reaches(token.rv):
                raise errors.expired(
                    "The provided continue parameter is too old to display a consistent list "
                    "result. You can start a new list without the continue parameter, or use the "
                    "continue token in this response to retrieve the remainder of the results. "
                    "Continuing with the provided token results in an inconsistent list.",
                    continue_token=_encode_token(-1, start),
                )
            revision = token.rv
    elif exact_revision is not None:
        if not table.watch_cache.reaches(exact_revision):
            raise errors.expired(
                f"The resourceVersion for the provided list is too old: {exact_revision}"
            )
        revision = exact_revision
    keys, entries = table.keys, table.entries
    if revision != store.revision:
        keys, entries = table.at(revision)
    if name_key:
        keys = [name_key] if name_key in entries else []
    elif keys is table.keys:
        keys = table.range(prefix, start)
    else:
        keys = [key for key in keys if key.startswith(prefix) and key > start]
    return _cut(keys, entries, revision, matches, limit)


def _cut(
    keys: list[str],
    entries: dict[str, Entry],
    revision: int,
    matches: Matcher | None,
    limit: int,
) -> Page:
    if matches is None:
        taken = keys[:limit] if limit else keys
        chosen = [entries[key] for key in taken]
        rest = len(keys) - len(taken)
        token = _encode_token(revision, taken[-1]) if rest else ""
        return Page(chosen, revision, token, rest or None)
    chosen = []
    for index, key in enumerate(keys):
        entry = entries[key]
        if matches(entry):
            chosen.append(entry)
            if limit and len(chosen) == limit and index + 1 < len(keys):
                # The number of remaining matches is unknown; upstream omits it, too.
                return Page(chosen, revision, _encode_token(revision, key))
    return Page(chosen, revision)


def chunks(head: bytes, bodies: Iterator[bytes], tail: bytes) -> Iterator[bytes]:
    """Yield a JSON list in chunks of about CHUNK bytes, to bound the memory."""
    pieces = [head]
    size = len(head)
    first = True
    for body in bodies:
        if not first:
            pieces.append(b",")
        first = False
        pieces.append(body)
        size += len(body) + 1
        if size >= CHUNK:
            yield b"".join(pieces)
            pieces, size = [], 0
    pieces.append(tail)
    yield b"".join(pieces)
