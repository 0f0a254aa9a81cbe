"""Options and result of a write."""

from __future__ import annotations

from dataclasses import dataclass, field

from hekla.apiserver.auth.authenticator import SYSTEM, User
from hekla.units.objects import Object


@dataclass(slots=True)
class Options:
    """Options of a write."""

    user: User = SYSTEM
    dry_run: bool = False
    field_manager: str = "hekla"
    field_validation: str = "Ignore"
    find_duplicates: bool = False
    subresource: str = ""
    is_apply: bool = False
    is_reviewed: bool = False
    """Admission reviewed the request that caused this write (a Scale, a Binding)."""
    warnings: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    """Duplicate fields of the body, if `find_duplicates` is set."""


@dataclass(slots=True)
class DeleteOptions:
    grace_s: int | None = None
    propagation: str = ""  # Background, Foreground or Orphan
    uid: str = ""
    revision: str = ""


@dataclass(slots=True)
class WriteResult:
    """The result of a write: the stored object and its bytes."""

    obj: Object
    body: bytes
    created: bool = False
    removed: bool = False
