"""Decide the state of a queue: Open, Closing or Closed, and its PodGroup counts.

`next_step` is pure. A queue follows its parent: it closes when the parent does, gets the annotation
`closed-by-parent`, and opens again with the parent. A queue that a user closed stays closed. The
PodGroup counts by phase go into the status; Volcano declares these fields and leaves them empty.

Note: Closing is not Closed. A Closing queue takes no new jobs, but its jobs continue and restart;
it is Closed when its last PodGroup is deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hekla.api import wellknown
from hekla.api.wellknown import Action, PodGroupPhase, QueueState
from hekla.controllers.effects import RequeueAfter
from hekla.controllers.objects import annotations_of, created_at, is_deleting, key_of, status_of
from hekla.units.objects import Object

OPEN_RETRY_S: Final = 1.0
OPEN_TIMEOUT_S: Final = 15.0

_COUNTED: Final = {
    PodGroupPhase.PENDING: "pending",
    PodGroupPhase.INQUEUE: "inqueue",
    PodGroupPhase.RUNNING: "running",
    PodGroupPhase.UNKNOWN: "unknown",
    PodGroupPhase.COMPLETED: "completed",
}
_CLOSED: Final = (QueueState.CLOSED, QueueState.CLOSING)


@dataclass(frozen=True, slots=True)
class PatchQueue:
    """Merge-patch the queue."""

    patch: Object


@dataclass(frozen=True, slots=True)
class SetState:
    """Set the state of the queue; `action` is the reason of the Event."""

    state: str
    action: str


@dataclass(frozen=True, slots=True)
class SetCounts:
    """Set the PodGroup counts in the status."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class FinishCommand:
    """Delete a command that was carried out or rejected."""

    command: Object


@dataclass(frozen=True, slots=True)
class RejectCommand:
    """Emit a Warning Event for a command that cannot be carried out."""

    action: str
    reason: str


Effect = PatchQueue | SetState | SetCounts | FinishCommand | RejectCommand | RequeueAfter


@dataclass(frozen=True)
class QueueView:
    """The input of a decision about one queue."""

    queue: Object
    now: float
    parent: Object | None = None
    """None also for a parent that does not exist; that closes nothing."""
    groups: Sequence[Object] = ()
    commands: Sequence[Object] = ()

    @property
    def name(self) -> str:
        return str(self.queue["metadata"]["name"])

    @property
    def state(self) -> str:
        return str(status_of(self.queue).get("state") or "")

    @property
    def is_closed(self) -> bool:
        return self.state in _CLOSED

    @property
    def is_parent_closed(self) -> bool:
        return self.parent is not None and status_of(self.parent).get("state") in _CLOSED

    @property
    def closed_state(self) -> str:
        return QueueState.CLOSING if self.groups else QueueState.CLOSED

    @property
    def is_closed_by_parent(self) -> bool:
        return annotations_of(self.queue).get(wellknown.CLOSED_BY_PARENT) == "true"


def next_step(view: QueueView) -> list[Effect]:
    """Return the effects that reconcile a queue."""
    if is_deleting(view.queue):
        return []
    is_root = view.name == wellknown.ROOT_QUEUE
    effects: list[Effect] = []
    if not is_root and not (view.queue.get("spec") or {}).get("parent"):
        effects.append(PatchQueue({"spec": {"parent": wellknown.ROOT_QUEUE}}))
    for command in sorted(view.commands, key=lambda each: (created_at(each), key_of(each))):
        return effects + _by_command(view, command)
    effects += _by_parent(view)
    counts = podgroup_counts(view.groups)
    status = status_of(view.queue)
    if any(int(status.get(name) or 0) != value for name, value in counts.items()):
        effects.append(SetCounts(counts))
    return effects


def podgroup_counts(groups: Sequence[Object]) -> dict[str, int]:
    """Count PodGroups by phase; one without a phase is Pending."""
    phases = Counter(status_of(group).get("phase") or PodGroupPhase.PENDING for group in groups)
    return {name: phases[phase] for phase, name in _COUNTED.items()}


def _by_command(view: QueueView, command: Object) -> list[Effect]:
    done = FinishCommand(command)
    action = str(command.get("action") or "")
    if action == Action.CLOSE_QUEUE:
        if view.name == wellknown.ROOT_QUEUE:
            return [
                RejectCommand(action, "the root queue cannot be closed; close its children"),
                done,
            ]
        if view.state == view.closed_state:
            return [done]
        return [SetState(view.closed_state, action), done]
    if action == Action.OPEN_QUEUE:
        if view.is_parent_closed:
            assert view.parent is not None
            # The parent may be about to open too.
            if view.now - created_at(command) < OPEN_TIMEOUT_S:
                return [RequeueAfter(OPEN_RETRY_S)]
            parent = view.parent["metadata"]["name"]
            return [RejectCommand(action, f"its parent {parent!r} is closed; open it first"), done]
        return [*_open(view), done]
    return [
        RejectCommand(action or "Command", "a queue supports only OpenQueue and CloseQueue"),
        done,
    ]


def _open(view: QueueView) -> list[Effect]:
    effects: list[Effect] = []
    if view.state != QueueState.OPEN:
        effects.append(SetState(QueueState.OPEN, Action.OPEN_QUEUE))
    if view.is_closed_by_parent:
        # Last: if the controller restarts before this, the annotation still opens the queue.
        effects.append(_set_closed_by_parent("false"))
    return effects


def _set_closed_by_parent(value: str) -> PatchQueue:
    return PatchQueue({"metadata": {"annotations": {wellknown.CLOSED_BY_PARENT: value}}})


def _by_parent(view: QueueView) -> list[Effect]:
    """Return the effects that follow from the parent's state and the remaining PodGroups."""
    if view.is_parent_closed:
        if not view.is_closed:
            mark: list[Effect] = [] if view.is_closed_by_parent else [_set_closed_by_parent("true")]
            return [*mark, SetState(view.closed_state, Action.CLOSE_QUEUE)]
    elif view.is_closed_by_parent:
        return _open(view)
    if view.state == "":
        return [SetState(QueueState.OPEN, Action.SYNC_QUEUE)]
    if view.is_closed and view.state != view.closed_state:
        return [SetState(view.closed_state, Action.SYNC_QUEUE)]
    return []
