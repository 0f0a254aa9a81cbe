"""Who is asking: bearer tokens to users.

Two sorts of token: static ones (the administrator's and the components' own, made at first start,
kept in a file only the owner can read) and signed service-account tokens that expire. Tokens are
compared by digest, so neither a log nor a timing difference can give one away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated identity."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, list[str]] = field(default_factory=dict)


AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"

SYSTEM = User("system:apiserver", (MASTERS, AUTHENTICATED))
ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))


class TokenReader(Protocol):
    """Something that knows some tokens: None for those it does not."""

    def user_for(self, token: str) -> User | None: ...


class StaticTokens:
    """Tokens known in advance, kept as digests."""

    def __init__(self) -> None:
        self._users: dict[bytes, User] = {}

    def add(self, token: str, user: User) -> None:
        self._users[_digest(token)] = user

    def user_for(self, token: str) -> User | None:
        return self._users.get(_digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class Authenticator:
    """Asks each reader in turn."""

    def __init__(self, *readers: TokenReader) -> None:
        self.readers = list(readers)

    def user_for(self, authorization: str) -> User | None:
        """The user of an Authorization header; ANONYMOUS without one, None when it is not valid."""
        if not authorization:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return None
        for reader in self.readers:
            user = reader.user_for(token)
            if user is not None:
                return user
        return None
