"""Options and result of a write."""

from __future__ import annotations

from dataclasses import dataclass, field

from hekla.apiserver.auth.authenticator import SYSTEM, User
from hekla.units.objects import Object


@dataclass(slots=True)
class Options:
    """How a write is to be made."""

    user: User = SYSTEM
    dry_run: bool = False
    manager: str = "hekla"
    field_validation: str = "Ignore"
    find_duplicates: bool = False
    subresource: str = ""
    applies: bool = False
    is_reviewed: bool = False
    """Hooks have been asked about what this write follows from (a Scale, a Binding)."""
    warnings: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    """Fields the body gives more than once, when `find_duplicates` asked for them."""


@dataclass(slots=True)
class DeleteOptions:
    grace_s: int | None = None
    propagation: str = ""  # Background, Foreground or Orphan
    uid: str = ""
    revision: str = ""


@dataclass(slots=True)
class WriteResult:
    """The outcome of a write: the object as stored, its bytes, and what happened."""

    obj: Object
    body: bytes
    created: bool = False
    removed: bool = False
