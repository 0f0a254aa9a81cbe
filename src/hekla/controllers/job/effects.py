"""What a job needs done, as data.

A list of effects is carried out in order: pods that stand next to each other at once, everything
else one by one, and nothing after one that failed. So whoever returns effects puts the record of a
decision (`SetStatus`) before the acts that follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hekla.controllers.effects import (
    Tell as Tell,
)
from hekla.controllers.effects import (
    Wake as Wake,
)
from hekla.controllers.job.plugins.plugin import Managed
from hekla.units.objects import Object


@dataclass(frozen=True, slots=True)
class CreateGroup:
    body: Object


@dataclass(frozen=True, slots=True)
class PatchGroup:
    name: str
    patch: Object


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class CreateClaim:
    body: Object


@dataclass(frozen=True, slots=True)
class PatchJob:
    """A merge patch of metadata or spec, if the job is still what was decided on."""

    patch: Object


@dataclass(frozen=True, slots=True)
class EnsureObjects:
    """The plugins' objects shall exist and hold this."""

    objects: tuple[Managed, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class DropObjects:
    """The plugins' objects shall go, if they are this job's."""

    objects: tuple[Managed, ...]


@dataclass(frozen=True, slots=True)
class CreatePod:
    body: Object


@dataclass(frozen=True, slots=True)
class MarkPod:
    """The pod is to be replaced: from now on what happens to it is no event."""

    pod: Object


@dataclass(frozen=True, slots=True)
class DeletePod:
    pod: Object


@dataclass(frozen=True, slots=True)
class SetStatus:
    """A merge patch of the status, if the job is still what was decided on."""

    patch: Object
    is_urgent: bool = True
    """False for mere counts, which may wait a moment for more of their kind."""


@dataclass(frozen=True, slots=True)
class FinishCommand:
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
    | Tell
    | Wake
)
