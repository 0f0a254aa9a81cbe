"""Effects that several controllers decide on, as data. A controller or writer applies them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hekla.units.objects import Object

EventType = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class CreateJob:
    """Create a job that the reconciled object owns."""

    body: Object


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete a job that the reconciled object owns."""

    job: Object


@dataclass(frozen=True, slots=True)
class SetStatus:
    """Merge-patch the status of the reconciled object, if its version is still the same."""

    patch: Object


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Emit an Event on the reconciled object."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Reconcile again after this time, even if nothing changes."""

    after_s: float


def requeue(*waits_s: float | None) -> Iterator[RequeueAfter]:
    """Yield one requeue for the earliest of several times, none if all are None."""
    known = [wait_s for wait_s in waits_s if wait_s is not None]
    if known:
        yield RequeueAfter(min(known) + 0.01)
