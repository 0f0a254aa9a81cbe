"""What the small controllers decide to do, as data; whoever runs them performs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hekla.units.objects import Object


@dataclass(frozen=True, slots=True)
class CreateJob:
    body: Object


@dataclass(frozen=True, slots=True)
class DeleteJob:
    job: Object


@dataclass(frozen=True, slots=True)
class SetStatus:
    patch: Object


@dataclass(frozen=True, slots=True)
class Tell:
    """An Event on the object that is looked after."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Wake:
    """Look again after this long, even if nothing changes."""

    after_s: float
