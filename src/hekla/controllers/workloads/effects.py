"""Effects that workload controllers decide on, as data; `writer` applies them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from hekla.controllers.effects import EmitEvent as EmitEvent
from hekla.controllers.effects import RequeueAfter as RequeueAfter
from hekla.controllers.effects import SetStatus as SetStatus
from hekla.controllers.effects import requeue as requeue
from hekla.kube.resources import Resource
from hekla.units.objects import Object

MAX_BURST: Final = 500
"""Pods that one reconciliation creates or deletes at most; the next one continues."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object; `generateName` is resolved when it is created."""

    resource: Resource[Any]
    body: Object
    is_shared: bool = False
    """Whether an existing object of that name with another owner is accepted."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object, by UID."""

    resource: Resource[Any]
    obj: Object


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge-patch an object, if its version is still the same."""

    resource: Resource[Any]
    obj: Object
    patch: Object


@dataclass(frozen=True, slots=True)
class Adopt:
    """Become the controller of an orphan, unless the owner is being deleted."""

    resource: Resource[Any]
    obj: Object


Effect = Create | Delete | Patch | Adopt | SetStatus | EmitEvent | RequeueAfter
