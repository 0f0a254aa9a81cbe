"""What workload controllers decide to do, as data; `base` performs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hekla.controllers.effects import SetStatus as SetStatus
from hekla.controllers.effects import Tell as Tell
from hekla.controllers.effects import Wake as Wake
from hekla.kube.resources import Resource
from hekla.units.objects import Object


@dataclass(frozen=True, slots=True)
class Create:
    """A new object. With `generateName` its name is drawn when it is made."""

    resource: Resource[Any]
    body: Object
    is_shared: bool = False
    """Whether one of that name that is somebody else's will do."""


@dataclass(frozen=True, slots=True)
class Delete:
    resource: Resource[Any]
    obj: Object


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch on exactly the version that was looked at."""

    resource: Resource[Any]
    obj: Object
    patch: Object


@dataclass(frozen=True, slots=True)
class Adopt:
    """Become the controller of an object that has none; only if we are not being deleted."""

    resource: Resource[Any]
    obj: Object


Effect = Create | Delete | Patch | Adopt | SetStatus | Tell | Wake
