"""Authentication: bearer tokens to users.

Static tokens (of the administrator and of components) are created at first start and stored in a
file readable by the owner only. Service-account tokens are signed and expire. Tokens are compared
by digest, so neither a log nor a timing difference reveals one.
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


_ACCOUNT = "system:serviceaccount:"


def split_service_account(user_name: str) -> tuple[str, str] | None:
    """Return namespace and name of a service account's user name; None for other users."""
    if not user_name.startswith(_ACCOUNT):
        return None
    namespace, _, name = user_name.removeprefix(_ACCOUNT).partition(":")
    return (namespace, name) if namespace and name and ":" not in name else None


def service_account_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups of each service account in a namespace."""
    return (
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
        AUTHENTICATED,
    )


class TokenReader(Protocol):
    """Authenticates some tokens; None for others."""

    def user_for(self, token: str) -> User | None: ...


class StaticTokens:
    """Static tokens, stored as digests."""

    def __init__(self) -> None:
        self._users: dict[bytes, User] = {}

    def add(self, token: str, user: User) -> None:
        self._users[_digest(token)] = user

    def user_for(self, token: str) -> User | None:
        return self._users.get(_digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class Authenticator:
    """Tries each token reader in order."""

    def __init__(self, *readers: TokenReader) -> None:
        self.readers = list(readers)

    def user_for(self, authorization: str) -> User | None:
        """Return the user of an Authorization header; ANONYMOUS without one, None if invalid."""
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
