"""Effects that are decided for a job, as data; `writer` applies them.

Effects are applied in order: adjacent pod effects in parallel, all others one by one, and none
after a failure. So the record of a decision (`SetStatus`) comes before the effects that follow from
it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hekla.controllers.effects import (
    EmitEvent as EmitEvent,
)
from hekla.controllers.effects import (
    RequeueAfter as RequeueAfter,
)
from hekla.controllers.job.plugins.plugin import ManagedObject
from hekla.units.objects import Object


@dataclass(frozen=True, slots=True)
class CreateGroup:
    """Create the job's PodGroup."""

    body: Object


@dataclass(frozen=True, slots=True)
class PatchGroup:
    """Merge-patch the job's PodGroup."""

    name: str
    patch: Object


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete the job's PodGroup, by UID."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class CreateClaim:
    """Create a persistent volume claim of the job."""

    body: Object


@dataclass(frozen=True, slots=True)
class PatchJob:
    """Merge-patch metadata or spec, if the job's version is still the same."""

    patch: Object


@dataclass(frozen=True, slots=True)
class EnsureObjects:
    """Create or update the plugins' objects."""

    objects: tuple[ManagedObject, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class DropObjects:
    """Delete the plugins' objects that the job owns."""

    objects: tuple[ManagedObject, ...]


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create a pod of the job."""

    body: Object


@dataclass(frozen=True, slots=True)
class MarkPod:
    """Annotate a pod that is to be replaced; it causes no events from then on."""

    pod: Object


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod of the job, by UID."""

    pod: Object


@dataclass(frozen=True, slots=True)
class SetStatus:
    """Merge-patch the status, if the job's version is still the same."""

    patch: Object
    is_urgent: bool = True
    """False for mere counts, whose writes are batched."""


@dataclass(frozen=True, slots=True)
class FinishCommand:
    """Delete a command that was carried out."""

    command: Object


Effect = (
    CreateGroup
    | PatchGroup
    | DeleteGroup
    | CreateClaim
    | PatchJob
    | EnsureObjects
    | DropObjects
    | CreatePod
    | MarkPod
    | DeletePod
    | SetStatus
    | FinishCommand
    | EmitEvent
    | RequeueAfter
)
